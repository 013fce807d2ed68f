"""Statistics of a dataset, compared with NumPy's."""

from __future__ import annotations

import math
import sys
import warnings
from bisect import bisect_right
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import recmap as rm
from recmap.dataset.field_stats import Numbers
from recmap.dataset.stats_collector import FieldCollector
from recmap.model.field import Field
from recmap.model.progress import Progress
from tests.forked import run_program

RNG = np.random.default_rng(7)


def numbers(column: npt.NDArray[Any], step: int = 70_001) -> Numbers:
    collector = FieldCollector(Field(column.dtype))
    for start in range(0, len(column), step):
        collector.add(column[start : start + step])
    found = collector.result().values
    assert found is not None
    return found


def check_histogram(found: Numbers, values: npt.NDArray[np.float64]) -> None:
    histogram = found.histogram
    assert histogram is not None
    assert len(histogram.counts) <= 32
    edges = histogram.start + histogram.width * np.arange(len(histogram.counts) + 1)
    edges[-1] = np.inf  # numpy counts the last edge
    assert np.histogram(values, edges)[0].tolist() == histogram.counts


@pytest.mark.parametrize(
    "column",
    [
        RNG.normal(3, 2, 200_000),
        RNG.normal(size=1000).astype(np.float16),
        RNG.normal(size=1000).astype(">f4"),
        RNG.normal(size=1000).astype(ml_dtypes.bfloat16),
        RNG.random(100) < 0.3,
        RNG.integers(0, 256, 100_000, dtype=np.uint8),
        RNG.integers(-128, 128, 100_000, dtype=np.int8)[::2],
        RNG.integers(-500, 500, 1000).astype(">i8"),
        RNG.integers(0, 2**64 - 1, 1000, dtype=np.uint64),
        np.full(10, 1e9),
        np.array([1e9, 1e9 + 1e-3]),
        np.array([0.0, 5e-324]),
        np.array([-0.0]),
        np.concatenate([np.zeros(100_000), [1e-3, 2e-3]]),
    ],
    ids=lambda column: f"{column.dtype}-{len(column)}",
)
def test_numbers_match_numpy(column: npt.NDArray[Any]) -> None:
    found = numbers(column)
    wide = column.astype(np.float64)
    assert (found.count, found.nan) == (len(column), 0)
    assert found.min == column.min().item()
    assert found.max == column.max().item()
    assert found.mean == pytest.approx(wide.mean(), rel=1e-12, abs=1e-15)
    assert found.std == pytest.approx(wide.std(), rel=1e-9)
    check_histogram(found, wide)


def test_sums_of_integers_are_exact() -> None:
    column = np.array([2**63 - 1] * 3 + [-(2**63)], np.int64)
    assert numbers(column).mean == (3 * (2**63 - 1) - 2**63) / 4
    large = np.full(1000, 2**64 - 1, np.uint64)
    found = numbers(large)
    assert (found.min, found.max, found.mean) == (2**64 - 1, 2**64 - 1, float(2**64 - 1))


def test_nan_is_counted_and_left_out() -> None:
    column = np.array([np.nan, 1.0, np.nan, 4.0])
    found = numbers(column)
    assert (found.count, found.nan, found.min, found.max) == (4, 2, 1.0, 4.0)
    assert (found.mean, found.std) == (np.nanmean(column), np.nanstd(column))
    nothing = numbers(np.full(3, np.nan))
    assert (nothing.count, nothing.nan, nothing.min, nothing.mean) == (3, 3, None, None)
    assert nothing.histogram is None


@pytest.mark.parametrize("values", [[1, np.inf], [-np.inf, 1], [np.inf, 1, -np.inf], [np.inf]])
def test_infinities_are_treated_as_in_numpy(values: list[float]) -> None:
    column = np.array(values)
    found = numbers(column, step=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert (found.min, found.max) == (column.min(), column.max())
        assert np.array_equal(found.mean or 0.0, column.mean(), equal_nan=True)
        assert np.isnan(found.std or 0.0)
    finite = column[np.isfinite(column)]
    if len(finite):
        check_histogram(found, finite)


def test_dates_have_a_first_and_a_last() -> None:
    column = np.array(["2021-02-03", "NaT", "2020-01-01"], "M8[D]")
    found = numbers(column)
    assert (found.min, found.max, found.nan) == ("2020-01-01", "2021-02-03", 1)
    assert found.mean is None


def test_complex_numbers_are_counted() -> None:
    found = numbers(np.array([1 + 2j, complex(np.nan, 0)]))
    assert (found.count, found.nan, found.min, found.histogram) == (2, 1, None, None)


@given(
    arrays.arrays(
        np.float64, st.integers(1, 60), elements=st.floats(-1e100, 1e100, allow_subnormal=False)
    ),
    st.integers(1, 60),
)
def test_histograms_do_not_depend_on_the_batches(
    column: npt.NDArray[np.float64], step: int
) -> None:
    whole, pieces = numbers(column), numbers(column, step)
    assert whole.histogram == pieces.histogram
    check_histogram(pieces, column)
    shuffled = numbers(column[::-1], step)
    assert shuffled.histogram == whole.histogram


def test_ragged_rows_and_strings_have_lengths_and_sizes() -> None:
    tokens = rm.Ragged.from_rows([[1, 2, 3], [], [4]])
    words = rm.Ragged(rm.Ragged.from_bytes([b"a", b"bcd", b""]), [0, 2, 2, 3])
    steps = rm.Ragged(rm.Ragged.from_rows([[1.0], [2.0, 3.0]]), [0, 2, 2, 2])
    ds = rm.from_arrays({"tokens": tokens, "words": words, "steps": steps, "s": [b"a", b"", b""]})
    found = ds.stats()
    assert found["tokens"].values is not None
    assert found["tokens"].values.count == 4
    (lengths,) = found["tokens"].lengths
    assert (lengths.count, lengths.min, lengths.max, lengths.mean) == (3, 0, 3, 4 / 3)
    assert found["words"].values is None
    assert [n.max for n in found["words"].lengths] == [2]
    assert found["words"].sizes is not None
    assert (found["words"].sizes.count, found["words"].sizes.max) == (3, 3)
    assert [n.max for n in found["steps"].lengths] == [2, 2]
    assert found["s"].sizes is not None
    assert found["s"].sizes.mean == 1 / 3
    assert found["s"].rows == 3


def test_without_rows_there_are_no_numbers() -> None:
    found = rm.from_arrays({"x": np.zeros((0, 3))}).stats()["x"]
    assert found.rows == 0
    assert found.values is not None
    assert (found.values.count, found.values.min) == (0, None)


def test_every_format_gives_the_same_statistics() -> None:
    x = RNG.normal(size=(50_000, 4)).astype(np.float32)
    np.save("x.npy", x)
    x.tofile("x.bin")
    rm.convert("x.npy", "x.tfrecord")
    rm.convert("x.npy", "y.tfrecord.gz")
    first = rm.open("x.npy").stats()["data"]
    assert first.values is not None
    assert first.values.mean == pytest.approx(x.mean(dtype=np.float64), rel=1e-12)
    others = [
        rm.open("x.bin", dtype="float32", shape=(-1, 4)),
        rm.open("x.tfrecord"),
        rm.open("y.tfrecord.gz"),
    ]
    for ds in others:
        found = ds.stats()["data"].values
        assert found is not None
        assert (found.min, found.max, found.histogram) == (
            first.values.min,
            first.values.max,
            first.values.histogram,
        )
        assert found.std == pytest.approx(first.values.std, rel=1e-12)


def test_progress_reaches_all_rows() -> None:
    told: list[Progress] = []
    rm.from_arrays({"x": np.zeros(1000)}).stats(progress=told.append)
    assert (told[-1].rows, told[-1].total_rows) == (1000, 1000)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits data by RLIMIT_DATA")
def test_memory_is_bounded() -> None:
    """Read rows of 48 MiB with memory for less than one."""
    np.lib.format.open_memmap("x.npy", "w+", "u1", (2, 48 << 20)).flush()
    program = """if True:
        import resource, recmap as rm
        ds = rm.open("x.npy")
        in_use = int(open("/proc/self/statm").read().split()[5]) * 4096
        resource.setrlimit(resource.RLIMIT_DATA, (in_use + (32 << 20), -1))
        print(ds.stats()["data"].values.count)
    """
    run = run_program(program)
    assert run.stdout == f"{96 << 20}\n", run.stderr


TOP = float(np.finfo(np.float64).max)
EDGES: dict[str, npt.NDArray[Any]] = {
    "all equal": np.full(9, 3.0),
    "on every edge": np.arange(33.0),
    "huge": np.array([1e301, 1.5e301]),
    "the largest": np.array([TOP]),
    "everything": np.array([-TOP, 0.0, 5e-324, TOP]),
    "denormal": np.array([-5e-324, 5e-324, 1e-323, 2e-308]),
    "beside infinity": np.array([np.inf, 1, 2, np.nan, -np.inf]),
    "neighbours": np.array([1e9, np.nextafter(1e9, 2e9)]),
    "int64 from end to end": np.array([-(2**63), -1, 0, 2**63 - 1]),
    "large int64": np.array([2**63 - 1, 2**63 - 2, 2**63 - 4097]),
    "beyond 2**53": np.array([2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2]),
    "uint64 from end to end": np.array([0, 2**63, 2**64 - 1], np.uint64),
    "large uint64": np.array([2**64 - 1, 2**64 - 2], np.uint64),
    "bytes": np.arange(-128, 128, dtype=np.int8),
}


def exactly_binned(histogram: Any, column: npt.NDArray[Any]) -> list[int]:
    """Count the values between the edges, in exact arithmetic."""
    edges = [Fraction(edge) for edge in histogram.edges]
    counts = [0] * (len(edges) - 1)
    for value in column.tolist():
        if math.isfinite(value):
            i = bisect_right(edges, Fraction(value)) - 1
            # The greatest float64 has no edge above it.
            counts[i - (i == len(counts) and value == TOP)] += 1
    return counts


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("step", [1, 100])
def test_every_value_lies_between_the_edges_of_its_bin(name: str, step: int) -> None:
    for column in (EDGES[name], EDGES[name][::-1].copy()):
        histogram = numbers(column, step).histogram
        assert histogram is not None
        assert len(histogram.counts) <= 32
        assert math.isfinite(histogram.start)
        assert (np.diff(np.array(histogram.edges) / 4) > 0).all()
        assert histogram.counts == exactly_binned(histogram, column)


@given(
    arrays.arrays(np.int64, st.integers(1, 40), elements=st.integers(-(2**20), 2**20)),
    st.integers(-(2**62), 2**62),
)
def test_large_integers_are_not_rounded_into_another_bin(
    column: npt.NDArray[np.int64], base: int
) -> None:
    histogram = numbers(column + base).histogram
    assert histogram is not None
    assert histogram.counts == exactly_binned(histogram, column + base)
