"""The five questions: recmap's answer and the usual one."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.report import Row, Table
from benchmarks.timing import Measure

__all__ = ["measure"]

_NOTE = (
    "A program of examples/ and one of examples/usual/ on the same data, each in its own process, "
    "the best of three runs; imports do not count. Memory is the peak of anonymous memory above "
    "that after the imports, worker processes included."
)


@dataclass(frozen=True)
class Case:
    """A question: recmap's program (``ours``) and the usual one, as ``script.function``.

    ``before`` prepares the files that ``ours`` reads; it is not measured.
    """

    title: str
    ours: str
    usual: str
    rows: int
    before: str | None = None


_ROUNDS = 3
# The first word of a title is the page. Sizes give the slower program a few seconds of work.
_CASES = (
    Case("q0 rows as bytes", "q0_bytes_features.answer", "q0_loop_of_bytes.usual", 200_000),
    Case("q0 rows of float64", "q0_float64.answer", "q0_loop_of_floats.usual", 100_000),
    Case("q1 batch by batch", "q1_batch_by_batch.answer", "q1_batches_in_a_list.usual", 12_000),
    Case("q1 row by row", "q1_row_by_row.answer", "q1_rows_in_a_list.usual", 20_000),
    Case("q1 out to disk", "q1_out_to_disk.answer", "q1_append_with_save.usual", 12_000),
    Case("q2 shuffled batches", "q2_memmap_training.answer", "q2_generator.usual", 6_000),
    Case(
        "q2 augmentation, 2 processes", "q2_parallel_augmentation.answer",
        "q2_pool_apply.usual", 6_000,
    ),
    Case("q3 .npy to tf.data", "q3_npy_to_tf_dataset.answer", "q3_memmap_of_npy.usual", 500_000),
    Case("q3 HDF5 to tf.data", "q3_hdf5_to_tf_dataset.answer", "q3_h5py_generator.usual", 20_000),
    Case(
        "q3 chunks, blocks at random", "q3_chunks.read", "q3_guessed_chunks.usual", 200_000,
        before="q3_chunks.answer",
    ),
    Case("q4 images", "q4_images.answer", "q4_images_in_a_buffer.usual", 1_500),
    Case("q4 padded text", "q4_padded_text.answer", "q4_padded_batch.usual", 30_000),
    Case("q4 boxes", "q4_boxes.answer", "q4_boxes_of_zeros.usual", 30_000),
)  # fmt: skip


def measure(bench: Bench) -> Table:
    table = Table("Questions", _NOTE)
    if sys.platform != "linux" or bench.worker("questions").missing:
        table.note += " Not measured: it needs Linux, which reports the memory, and TensorFlow."
        return table
    table.rows = [_row(bench, case) for case in _CASES]
    return table


def _row(bench: Bench, case: Case) -> Row:
    rows = case.rows // 10 if bench.quick else case.rows
    peer, _ = case.usual.split(".")
    rounds = [_round(bench, case, f"{peer}.make", rows) for _ in range(_ROUNDS)]
    both = [{"ours": asdict(ours), "usual": asdict(theirs)} for ours, theirs in rounds]
    bench.races.append({"case": case.title, "rounds": both})
    ours, theirs = (min(runs, key=lambda run: run.seconds) for runs in zip(*rounds, strict=True))
    ratio = theirs.seconds / ours.seconds
    return Row(f"{case.title}, {rows:,} rows", _text(ours), peer, _text(theirs), ratio)


def _round(bench: Bench, case: Case, make: str, rows: int) -> tuple[Measure, Measure]:
    """Run both programs once, on new files."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as name:
        folder = Path(name)
        _run(bench, make, folder, rows)
        if case.before is not None:
            _run(bench, case.before, folder)
        theirs = _run(bench, case.usual, folder)
        return _run(bench, case.ours, folder), theirs


def _run(bench: Bench, what: str, folder: Path, rows: int | None = None) -> Measure:
    script, function = what.split(".")
    bench.idle.wait()
    return bench.worker("questions").call(
        "run", script=script, function=function, folder=str(folder), rows=rows
    )


def _text(run: Measure) -> str:
    return f"{run.seconds:.2f} s, {run.peak / 1e6:,.0f} MB"
