"""Run programs with a memory limit, or measure their peak memory."""

from __future__ import annotations

import os

from tests.forked import run_together

__all__ = ["LIMIT", "MB", "peak_of", "run_limited"]

MB = 1 << 20

# Bytes on top of the interpreter and the imports. A thread stack counts as 8 MB of data, used or
# not. This leaves room for a few threads, and for one per CPU that decompresses.
LIMIT = 100 * MB + (os.cpu_count() or 1) * 8 * MB

PROGRAM = """
import resource, sys
import h5py, zarr
import numpy as np
import recmap as rm
all(getattr(rm, name) for name in rm.__all__)  # names are loaded on first use
with open("/proc/self/status") as status:
    before = next(int(l.split()[1]) * 1024 for l in status if l.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (before + {limit}, before + {limit}))
{body}
"""


WATCHED = """
import os, resource, sys, threading
import h5py, zarr
import pyarrow.parquet
import numpy as np
import recmap as rm
all(getattr(rm, name) for name in rm.__all__)  # names are loaded on first use
pages = os.open("/proc/self/statm", os.O_RDONLY)  # quicker to read than status
def anonymous():
    resident, shared = os.pread(pages, 100, 0).split()[1:3]
    return (int(resident) - int(shared)) * resource.getpagesize()
before = peak = anonymous()
done = threading.Event()
def watch():
    global peak
    while not done.wait(0.0005):
        peak = max(peak, anonymous())
watcher = threading.Thread(target=watch)
watcher.start()
try:
    {body}
finally:
    done.set()
    watcher.join()
print(peak - before)
"""


def run_limited(body: str, limit: int = LIMIT) -> str:
    """Run a program that may use ``limit`` more bytes, and return its output."""
    return _run(PROGRAM.format(limit=limit, body=body)).strip()


def peak_of(statement: str) -> int:
    """Return how many bytes anonymous memory grows at most while a statement runs."""
    return int(_run(WATCHED.format(body=statement)))


def _run(program: str) -> str:
    # Memory that the imports have freed would hide as much of what the program takes.
    trim = "import ctypes; ctypes.CDLL(None).malloc_trim(0)\n"
    [printed] = run_together(trim + program)
    return printed
