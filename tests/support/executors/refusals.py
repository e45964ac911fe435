"""The system calls of conversions that the sandbox refuses."""

import json
import subprocess
import sys
from collections.abc import Sequence

EXPECTED_REFUSALS = {
    "clone3",  # for threads the C library then uses clone
    "fcntl 0x6",  # fontconfig locks its cache
    "setpriority",  # x265 lowers the priority of its threads
}
"""Calls that codecs make and that the sandbox refuses, without effect on the result."""


def refused_calls(conversions: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """Converts files in another process. Returns its refused calls, and the conversions that made them.

    Each conversion has the source's format, for a generated file, or the path of a file, and the target's format.
    """
    command, sent = [sys.executable, "-m", "tests.support.executors.refused_calls"], json.dumps(conversions).encode()
    output = subprocess.run(command, input=sent, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    return dict(json.loads(output))
