"""Readers of other formats as entrants: Lance, Hugging Face datasets, ArrayRecord, WebDataset.

Each gets the rows of a workload in its own format, written before the race.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.timing import Entrant
from benchmarks.workloads import Workload

__all__ = ["image_readers", "readers", "shufflers", "tar_files"]


def readers(bench: Bench, workload: Workload) -> list[Entrant]:
    """Return those that read the rows in order. Slow ones read fewer, or none if rows are small."""
    batch = workload.batch
    options: dict[str, Any] = {"batch": batch, "checked": True}
    entrants = []
    # Scans of the default format are slower, if rows are small.
    for name, version in (("Lance", {}), ("Lance, format 2.0", {"version": "2.0"})):
        if path := _made(bench, workload, "lance", **version):
            entrants += bench.entrants(
                "lance", name, "read", path=path, width=workload.width, **options
            )
    if path := _made(bench, workload, "datasets", ".arrow"):
        for name, form, rows in (
            ("datasets", "numpy", workload.tuned_rows),
            ("datasets, Arrow copy", "arrow", workload.rows),
        ):
            entrants += bench.entrants(
                "datasets", name, "read", path=path, form=form, rows=rows, **options
            )
    group = 1 if workload.large else batch
    if path := _made(bench, workload, "array_record", rows=workload.tuned_rows, group=group):
        entrants += bench.entrants(
            "array_record", "ArrayRecord", "read", path=path, width=workload.width, **options
        )
    if workload.large and (path := _made(bench, workload, "webdataset", rows=workload.loop_rows)):
        entrants += bench.entrants("webdataset", "WebDataset", "read", path=path, **options)
    return entrants


def shufflers(bench: Bench, workload: Workload, rows: int) -> list[Entrant]:
    """Return those that read the first rows in random order; slow ones read a quarter of them."""
    fewer = rows // 4
    options: dict[str, Any] = {"batch": workload.batch, "checked": True}
    entrants = []
    if path := _made(bench, workload, "lance"):
        entrants += bench.entrants(
            "lance", "Lance", "train",
            path=path, width=workload.width, rows=fewer if workload.large else rows, **options,
        )  # fmt: skip
    if path := _made(bench, workload, "datasets", ".arrow"):
        for name, form in (("datasets", "numpy"), ("datasets, Arrow copy", "arrow")):
            entrants += bench.entrants(
                "datasets", name, "train", path=path, form=form, rows=rows, **options
            )
    if path := _made(bench, workload, "array_record", rows=rows, group=1):
        entrants += bench.entrants(
            "array_record", "ArrayRecord", "train", path=path, width=workload.width, **options
        )
    if path := tar_files(bench, workload, fewer):
        entrants += bench.entrants(
            "webdataset", "WebDataset", "read", path=path, shuffle=True, **options
        )
    return entrants


def tar_files(bench: Bench, workload: Workload, rows: int) -> str | None:
    """Return the folder of the first rows in tar files, if rows are large enough for that."""
    return _made(bench, workload, "webdataset", rows=rows) if workload.large else None


def _made(
    bench: Bench, workload: Workload, name: str, ending: str = "", **options: Any
) -> str | None:
    """Return the rows of a workload in the format of a worker, or None if it is not installed."""
    worker = bench.worker(name)
    if worker.missing:
        return None
    source = Path(bench.source(workload), "values.npy")
    parts = [name, *(f"{key}-{value}" for key, value in options.items())]
    path = source.parent / ("_".join(parts) + ending)
    if not path.exists():
        worker.call("make", source=str(source), path=str(path), **options)
    return str(path)


def image_readers(bench: Bench, folder: str, batch: int, size: int) -> list[Entrant]:
    """Return those that decode and resize the JPEG files of a folder."""
    options: dict[str, Any] = {"batch": batch, "size": size, "checked": True}
    entrants = []
    spdl = bench.worker("spdl")
    if not spdl.missing:
        for name, ffmpeg in (("SPDL", True), ("SPDL, Pillow", False)):
            if ffmpeg and not spdl.call("decoders", folder=folder).rows:
                continue
            entrants += bench.entrants(
                "spdl", name, "images", folder=folder, ffmpeg=ffmpeg, **options
            )
    for worker, name in (
        ("datasets", "datasets, 2 workers"),
        ("webdataset", "WebDataset"),
    ):
        if bench.worker(worker).missing:
            continue
        path = f"{folder}-{worker}"
        bench.worker(worker).call("make_images", folder=folder, path=path)
        entrants += bench.entrants(worker, name, "images", path=path, **options)
    return entrants
