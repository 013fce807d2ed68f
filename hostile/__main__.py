"""``python -m hostile``: try random cases for a while, and report what failed.

    python -m hostile --seconds 60              every area, a minute in all
    python -m hostile --area hdf5 --seconds 600 one area
    python -m hostile --area hdf5 --case 1234   one case again, with its traceback

Failed cases are kept in build/hostile and run first the next time. The exit code is 1 if any
case failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time

from hostile.case import AREAS, run_case
from hostile.runner import Report, run

__all__ = ["main"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hostile", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--area", action="append", choices=AREAS, help="only this area; repeatable")
    parser.add_argument("--seconds", type=float, default=60, help="how long in all (60)")
    parser.add_argument("--seed", type=int, help="seed of the first case (default: from the clock)")
    parser.add_argument("--case", type=int, help="run this case of the area again, in this process")
    parser.add_argument("--limit", type=float, default=120, help="seconds a case may take (120)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", default="build/hostile", help="folder for the logs of failures")
    asked = parser.parse_args()
    areas = asked.area or list(AREAS)
    if asked.case is not None:
        with tempfile.TemporaryDirectory() as root:
            folder = os.path.join(root, "case")
            os.mkdir(folder)
            case = run_case(areas[0], asked.case, folder)
            print("\n".join([*case.log, case.outcome]))
        return 0
    first = int(time.time()) * 1000 % 10**9 if asked.seed is None else asked.seed
    report = run(areas, asked.seconds, first, asked.limit, asked.workers, asked.keep)
    _print(report, first, asked.keep)
    return 1 if report.failures else 0


def _print(report: Report, first: int, keep: str) -> None:
    print(f"{'area':<14}{'cases':>9}{'read':>9}{'refused':>9}{'no reference':>14}{'failed':>8}")
    for area, counts in report.counts.items():
        total = sum(counts.values())
        row = [counts[name] for name in ("read", "refused", "no reference", "failed")]
        print(f"{area:<14}{total:>9,}{row[0]:>9,}{row[1]:>9,}{row[2]:>14,}{row[3]:>8,}")
    total = sum(sum(counts.values()) for counts in report.counts.values())
    print(f"{total:,} cases from seed {first}, {len(report.failures):,} failed")
    for failure in report.failures[:20]:
        last = failure.detail.strip().splitlines()[-1] if failure.detail.strip() else ""
        print(f"  python -m hostile --area {failure.area} --case {failure.seed}: {last[:300]}")
    if report.failures:
        print(f"Their logs are in {keep}.")


if __name__ == "__main__":
    sys.exit(main())
