"""``python -m hostile.survey FOLDER``: read every file below a folder, and count the outcomes.

A file is *read* if recmap opened it and gave all of its rows, *refused* if an error of recmap says
what is wrong with it, and *failed* if anything else happened: another exception, a crash, a hang.
Files that are no data for recmap, by their content and their names, are counted as *other*.
Folders that are one dataset, such as a Zarr store, count once.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection

import recmap as rm
from recmap.errors import RecmapError, UnknownFormatError
from recmap.formats.detect import detect
from recmap.formats.registry import FOLDER, FORMATS, format_of

OUTCOMES = ("read", "refused", "failed")
# Files beside others that only describe them.
_METADATA = {".zarray", ".zattrs", ".zgroup", ".zmetadata", "zarr.json"}
# Imported once, instead of in every process.
_PRELOADED = ("h5py", "pyarrow.parquet", "recmap.pipeline.executor", "zarr")
_STORES = (".zarray", ".zgroup", "zarr.json")


@dataclass(frozen=True)
class Found:
    """What became of a file: its format, the outcome, and the reason if it was not read."""

    path: str
    format: str
    outcome: str
    reason: str = ""
    rows: int = 0


def datasets(root: str) -> Iterator[str]:
    """Yield the files below a folder, and the folders that are one dataset."""
    marks = {name for format in FORMATS.values() for name in format.marks}
    for folder, inner, names in os.walk(root):
        inner.sort()
        if any(name in names for name in _STORES) or marks.intersection(names):
            inner.clear()
            yield folder
            continue
        yield from (os.path.join(folder, name) for name in sorted(names) if name not in _METADATA)


def survey(root: str, *, limit: float, workers: int) -> list[Found]:
    """Read every dataset below a folder, each in a process of its own."""
    for name in _PRELOADED:
        with suppress(ImportError):
            import_module(name)
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda path: _isolated(path, limit), datasets(root)))


def _isolated(path: str, limit: float) -> Found:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(path, there))
    process.start()
    there.close()
    answer = None
    try:
        answer = here.recv() if here.poll(limit) else None
        reason = f"not read after {limit:.0f} s"
    except EOFError:
        reason = "the process ended"
    if answer is None:
        process.kill()
    process.join()
    if isinstance(answer, Found):
        return answer
    if process.exitcode not in (0, -9):
        reason = f"the process ended with exit code {process.exitcode}"
    return Found(path, format_of(path) or "unknown", "failed", reason)


def _answer(path: str, answers: Connection) -> None:
    warnings.simplefilter("ignore")
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)  # libraries print what the error says as well
    answers.send(read(path))
    answers.close()


def read(path: str) -> Found:
    """Open a dataset and read all of its rows, and one of them by number."""
    named = FOLDER if os.path.isdir(path) else format_of(path)
    format = named or "other"
    try:
        format = detect(path)
        dataset = rm.open(path)
        rows = 0
        for batch in dataset.batches(256):
            rows += len(next(iter(batch.values()), ()))
        if rows != len(dataset):
            return Found(path, format, "failed", f"{rows:,} rows read of {len(dataset):,}")
        if rows:
            _ = dataset[rows // 2]
    except UnknownFormatError as e:
        outcome = "other" if named is None else "refused"
        return Found(path, format, outcome, _brief(e))
    except RecmapError as e:
        return Found(path, format, "refused", _brief(e))
    except Exception as e:
        return Found(path, format, "failed", f"{type(e).__name__}: {_brief(e)}")
    return Found(path, format, "read", rows=rows)


def _brief(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def table(found: list[Found], root: str) -> str:
    """Return a Markdown table of the outcomes by format."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    projects: dict[str, set[str]] = defaultdict(set)
    for each in found:
        counts[each.format][each.outcome] += 1
        projects[each.format].add(os.path.relpath(each.path, root).split(os.sep)[0])
    lines = ["| format | projects | datasets | read | refused | failed |", "|---|" + "---:|" * 5]
    for format in sorted(counts.keys() - {"other"}):
        mine = [counts[format][name] for name in OUTCOMES]
        lines.append(
            f"| {format} | {len(projects[format])} | {sum(mine):,} | "
            + " | ".join(f"{n:,}" for n in mine)
            + " |"
        )
    known = [each for each in found if each.outcome in OUTCOMES]
    everyone = {os.path.relpath(each.path, root).split(os.sep)[0] for each in known}
    totals = [sum(each.outcome == name for each in known) for name in OUTCOMES]
    lines.append(
        f"| all | {len(everyone)} | {len(known):,} | " + " | ".join(f"{n:,}" for n in totals) + " |"
    )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hostile.survey", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder")
    parser.add_argument("--limit", type=float, default=60, help="seconds a file may take (60)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--reasons", action="store_true", help="say why each file was refused")
    asked = parser.parse_args()
    found = survey(asked.folder, limit=asked.limit, workers=asked.workers)
    print(table(found, asked.folder))
    print(f"\n{sum(each.outcome == 'other' for each in found):,} other files")
    for each in found:
        if each.outcome == "failed" or (asked.reasons and each.outcome == "refused"):
            print(f"{each.outcome}: {os.path.relpath(each.path, asked.folder)}: {each.reason}")
    return 1 if any(each.outcome == "failed" for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
