"""Imported once by the fork server, so that every job's process starts with all plugins loaded and all pairs planned.

Threads of libraries would not survive the fork, and jobs share the machine: each computes on one.
"""

import gc
import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

from PIL import Image  # noqa: E402

from engine.registry import load_registry  # noqa: E402

Image.init()
load_registry().catalogue()  # plans every pair once, for all

# Whatever the collector touches in a job's process is copied for it.
gc.collect()
gc.freeze()
