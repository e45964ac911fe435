"""Preloading in a fork server."""

import json
import subprocess
import sys

_PROGRAM = """
import json
import os
from engine.executor import preload

warmed_up = {}
threads = []
original = preload.warm_up_codec

def watched(registry, write, fmt):
    threads.append(len(os.listdir("/proc/self/task")))
    try:
        original(registry, write, fmt)
        warmed_up[fmt.name] = None
    except Exception as error:
        warmed_up[fmt.name] = repr(error)
        raise

preload.warm_up_codec = watched
preload.preload()
threads.append(len(os.listdir("/proc/self/task")))
print(json.dumps([warmed_up, threads]))
"""


def test_every_codec_is_warmed_up_and_leaves_no_thread() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)

    warmed_up, threads = json.loads(done.stdout)
    written = "avif bmp eps exr gif hdr heic j2k jp2 jpeg jph jxr pdf png psd tiff webp"
    assert " ".join(sorted(warmed_up)) == written
    assert not any(warmed_up.values())
    assert len({*threads}) == 1  # threads would not survive the fork
