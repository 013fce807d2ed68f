"""A process that runs cases one after the other, and reports the outcome of each.

It may crash or hang; the runner notices, and knows which case it was.
"""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
import warnings

from hostile.case import NoReferenceError, run_case

__all__ = ["main"]


def main() -> None:
    """Read lines of ``area seed``, and answer each with a line of JSON."""
    limit = float(sys.argv[1])
    warnings.simplefilter("ignore")
    root = tempfile.mkdtemp(prefix="hostile-")
    print(json.dumps({"root": root}), flush=True)
    for line in sys.stdin:
        area, seed = line.split()
        folder = os.path.join(root, "case")
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        open(os.path.join(root, "log.txt"), "w").close()
        with open(os.path.join(root, "stack.txt"), "w") as stack:
            faulthandler.enable(stack)
            faulthandler.dump_traceback_later(limit, exit=True, file=stack)
            begun = time.monotonic()
            answer = _run(area, int(seed), folder)
            faulthandler.cancel_dump_traceback_later()
            faulthandler.disable()
        print(json.dumps({**answer, "seconds": time.monotonic() - begun}), flush=True)
    shutil.rmtree(root, ignore_errors=True)


def _run(area: str, seed: int, folder: str) -> dict[str, str]:
    try:
        return {"outcome": run_case(area, seed, folder).outcome, "detail": ""}
    except NoReferenceError as e:
        return {"outcome": "no reference", "detail": str(e)}
    except Exception:
        return {"outcome": "failed", "detail": traceback.format_exc()}


if __name__ == "__main__":
    main()
