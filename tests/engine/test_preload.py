"""What a fork server does once for all jobs."""

from __future__ import annotations

import json
import subprocess
import sys

_PROGRAM = """
import json
import os
from engine.executor import preload

rehearsed = {}
threads = []
original = preload._warm_up_codec

def watched(registry, write, fmt):
    threads.append(len(os.listdir("/proc/self/task")))
    try:
        original(registry, write, fmt)
        rehearsed[fmt.name] = None
    except Exception as error:
        rehearsed[fmt.name] = repr(error)
        raise

preload._warm_up_codec = watched
preload.preload()
threads.append(len(os.listdir("/proc/self/task")))
print(json.dumps([rehearsed, threads]))
"""


def test_every_codec_is_rehearsed_and_leaves_no_thread() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)

    rehearsed, threads = json.loads(done.stdout)
    assert rehearsed == dict.fromkeys(
        ["avif", "bmp", "eps", "gif", "heic", "jpeg", "pdf", "png", "psd", "tiff", "webp"]
    )
    assert len({*threads}) == 1  # threads would not survive the fork
