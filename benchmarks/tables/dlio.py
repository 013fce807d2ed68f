"""Workloads of DLIO, read by its own readers and by recmap."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.bench import Bench
from benchmarks.report import Row, Table, compare
from benchmarks.timing import Timing

__all__ = ["measure"]

_NOTE = (
    "DLIO 2.0.0 runs the data loading of known training jobs, with the data and the readers of "
    "each workload, but fewer and smaller files, in the page cache, read by 2 threads, and no "
    "time for computing. The fastest of {epochs} epochs, as DLIO reports it. ResNet-50 and "
    "CosmoFlow: DLIO reads TFRecord files with tf.data, in the order of the files except for a "
    "small buffer, and parses the records; recmap shuffles them exactly, and checks every CRC. 3D "
    "U-Net: a DataLoader reads one .npz file per sample with np.load, or with recmap, in 2 worker "
    "processes; which take most of the time."
)
_EPOCHS = 5
_MB = 1_000_000


@dataclass(frozen=True)
class _Workload:
    """A workload of DLIO: its name there, and its files here."""

    title: str
    name: str
    reader: str
    files: int
    per_file: int
    sample_bytes: int
    batch: int
    dataset: dict[str, int] = field(default_factory=dict)


_WORKLOADS = (
    _Workload("ResNet-50", "resnet50_h100", "tfrecord", 4, 800, 114_660, 64,
        {"num_samples_per_file": 800}),
    _Workload("CosmoFlow", "cosmoflow_h100", "tfrecord", 128, 1, 2_828_486, 1),
    _Workload("3D U-Net", "unet3d_h100", "npz", 12, 1, 32 * _MB, 4,
        {"record_length": 32 * _MB, "record_length_stdev": 4 * _MB}),
)  # fmt: skip


def measure(bench: Bench) -> Table:
    runner = bench.worker("dlio")
    note = _NOTE.format(epochs=_EPOCHS)
    if runner.missing:
        return Table("DLIO", f"{note} Not measured: {runner.missing} is not installed.")
    return Table("DLIO", note, [_row(bench, each) for each in _WORKLOADS])


def _row(bench: Bench, workload: _Workload) -> Row:
    path = str(bench.folder / f"dlio-{workload.name}")
    files: dict[str, Any] = {"workload": workload.name, "path": path, "files": workload.files}
    runner = bench.worker("dlio")
    runner.call("make", **files, **workload.dataset)
    ours, theirs = Timing("recmap", workload.sample_bytes), Timing("DLIO", workload.sample_bytes)
    for timing, reader in ((ours, workload.reader), (theirs, "")):
        bench.idle.wait()
        # The first epoch of a run is the one that warms up.
        run = runner.call(
            "train", **files, reader=reader, batch=workload.batch,
            samples=workload.files * workload.per_file, epochs=2 if bench.quick else _EPOCHS,
        )  # fmt: skip
        timing.runs.append(run)
    # The processor time is that of all epochs, and of importing what DLIO imports.
    return replace(compare(workload.title, ours, theirs), cpu="")
