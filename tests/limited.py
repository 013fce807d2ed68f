"""Programs whose memory the operating system limits."""

from __future__ import annotations

import os
import subprocess
import sys

__all__ = ["LIMIT", "MB", "run_limited"]

MB = 1 << 20

# Above what the interpreter and the imports take. Thread stacks count as data,
# 8 MB each whether used or not, so that the limit leaves room for a few, and for
# those that inflate, one for each processor.
LIMIT = 100 * MB + (os.cpu_count() or 1) * 8 * MB

PROGRAM = """
import resource, sys
import h5py, zarr
import numpy as np
import recmap as rm
with open("/proc/self/status") as status:
    before = next(int(l.split()[1]) * 1024 for l in status if l.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (before + {limit}, before + {limit}))
{body}
"""


def run_limited(body: str, limit: int = LIMIT) -> str:
    """What a program prints that may use so many bytes."""
    program = PROGRAM.format(limit=limit, body=body)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
