"""Wrapped sources keep the capabilities of the source they wrap."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import recmap as rm
from recmap.conversion.cast import cast_columns
from recmap.formats.combined import ConcatenatedSource, SideBySideSource
from recmap.formats.memory import memory_source
from recmap.model.batch import PadSpec, RowNumbers
from recmap.model.ordered_rows import sliced
from recmap.model.ragged import Ragged
from recmap.model.row_sizes import batch_sizes, measure
from recmap.model.schema import Schema
from recmap.model.source import ColumnMap, MappedColumns, Source, WrappedSource, renamed

ROWS = 100
SPAN = range(10, 40)


@pytest.fixture
def tokens() -> Source:
    """Write ragged tokens and their labels to a TFRecord file."""
    rng = np.random.default_rng(0)
    rows = Ragged.from_rows([rng.integers(0, 1000, n) for n in rng.integers(0, 20, ROWS)])
    with rm.TFRecordWriter("tokens.tfrecord") as writer:
        names = Ragged.from_bytes([f"é{i}".encode() for i in range(ROWS)])
        writer.write({"tokens": rows, "label": np.arange(ROWS), "name": names})
    return rm.open("tokens.tfrecord")._source


WRAPPERS: dict[str, Callable[[Source], Source]] = {
    "wrapped": WrappedSource,
    "renamed": lambda source: renamed(source, {"y": "label", "tokens": "tokens"}),
    "sliced": lambda source: sliced(source, slice(5, 95)),
    "backwards": lambda source: sliced(source, slice(None, None, -1)),
    "cast": lambda source: cast_columns(source, {"tokens": "int32", "label": "float32"}),
    "text": lambda source: cast_columns(source, {"name": "text"}),
    "widened": lambda source: cast_columns(source, {"tokens": "float64"}),
    "side by side": lambda source: SideBySideSource(
        {
            "tokens": source,
            "more": memory_source({"more": np.arange(ROWS)}, Schema({"more": "int64"})),
        }
    ),
    "concatenated": lambda source: ConcatenatedSource([source, source]),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("rows", [SPAN, np.array([7, 3, 60, 60, 2])], ids=["span", "gathered"])
def test_rows_are_padded_while_they_are_decoded(
    tokens: Source, wrapper: str, rows: RowNumbers
) -> None:
    source = WRAPPERS[wrapper](tokens)
    assert source.facts.can_pad
    dtype = source.schema["tokens"].dtype
    pad = PadSpec(None, 1, np.array(-1, dtype).tobytes(), False, False)
    padded = source.read_padded(rows, {"tokens": pad}, 16, lambda size: np.empty(size, np.uint8))
    assert padded is not None
    expected = source.gather(np.asarray(rows))
    column = expected.pop("tokens")
    assert isinstance(column, Ragged)
    assert np.array_equal(padded.padded["tokens"].lengths, column.lengths)
    for i, array in enumerate(padded.padded["tokens"].arrays):
        wanted = column[16 * i : 16 * i + 16].pad(fill=-1)
        assert array.dtype == dtype
        assert np.array_equal(array, wanted)
    assert {name: list(values) for name, values in padded.others.items()} == {
        name: list(values) for name, values in expected.items()
    }


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrapped_sources_still_know_the_sizes_of_rows(tokens: Source, wrapper: str) -> None:
    assert WRAPPERS[wrapper](tokens).row_sizes(np.arange(5)) is not None


def test_a_fill_that_the_old_type_cannot_hold_is_padded_afterwards(tokens: Source) -> None:
    cast = cast_columns(tokens, {"tokens": "float32"})
    pad = PadSpec(None, 1, np.float32(0.5).tobytes(), False, False)
    assert cast.read_padded(SPAN, {"tokens": pad}, 8, lambda n: np.empty(n, np.uint8)) is None


def test_columns_that_are_not_cast_stay_views_of_the_file() -> None:
    np.save("x.npy", np.zeros(10, [("a", "f4"), ("b", "f4")]))
    source = rm.open("x.npy").rename({"b": "c"}).cast({"a": "float64"})._source
    assert source.column("a") is None
    view = source.column("c")
    assert isinstance(view, np.ndarray)
    assert not view.flags.owndata
    assert source.info().mapped == ["c"]


def test_only_selected_columns_are_read(tokens: Source) -> None:
    part = cast_columns(sliced(tokens, slice(0, 50, 2)), {"label": "int32"})
    assert list(part.select(["label"]).schema) == ["label"]
    assert list(part.select(["label"]).read(0, 3)["label"]) == [0, 2, 4]


def test_converted_columns_stay_within_the_memory_limit(tokens: Source) -> None:
    def twice(column: Ragged, rows: RowNumbers) -> Ragged:
        del rows
        return Ragged(np.concatenate([column.flat, column.flat]), column.offsets * 2)

    field = tokens.schema["tokens"]
    maps = {
        "tokens": ColumnMap("tokens", field),
        "more": ColumnMap("tokens", field, twice, growth=2),
        "label": ColumnMap("label", tokens.schema["label"]),
    }
    source = MappedColumns(tokens, maps)
    rows = np.arange(ROWS)
    sizes, known = batch_sizes(source.gather(rows)), source.row_sizes(rows)
    assert known is not None
    assert (np.asarray(sizes) <= known).all()
    cast = cast_columns(rm.from_arrays({"x": np.arange(3, dtype="i1")})._source, {"x": "i8"})
    assert cast.facts.largest_row(7) == (0, 8)
    assert cast.facts.largest_row(8) is None
    read = source.read(0, ROWS, 6000)
    assert 0 < len(read["label"]) < ROWS
    assert measure(read)[1] <= 6000
    assert source.read(0, ROWS)["more"].nbytes > source.read(0, ROWS)["tokens"].nbytes
    assert source.column("more") is None
    # One column is two here, and a conversion of whole rows cannot follow padding.
    assert not source.facts.can_pad
    pad = PadSpec(None, 1, bytes(8), False, False)
    more = MappedColumns(tokens, {"more": maps["more"]})
    assert more.read_padded(SPAN, {"more": pad}, 8, lambda n: np.empty(n, np.uint8)) is None


def test_maps_that_change_nothing_go_when_columns_are_selected(tokens: Source) -> None:
    source = cast_columns(renamed(tokens, {"tokens": "tokens", "y": "label"}), {"y": "int32"})
    assert list(source.select(["y"]).schema) == ["y"]
    assert not isinstance(source.select(["tokens"]), MappedColumns)
    assert cast_columns(tokens, {"label": "int64"}).schema == tokens.schema
    assert cast_columns(tokens, {"label": "int64"}) is tokens


def test_rows_that_a_slice_leaves_out_are_not_converted() -> None:
    source = memory_source({"x": np.array([1, 300, 2, 300])}, Schema({"x": "int64"}))
    part = sliced(cast_columns(source, {"x": "uint8"}), slice(None, None, 2))
    assert part.read(0, 2, 1 << 20)["x"].tolist() == [1, 2]
    with pytest.raises(rm.FieldMismatchError, match="300"):
        cast_columns(source, {"x": "uint8"}).read(0, 4)


def test_values_outside_the_rows_of_a_slice_are_not_cast() -> None:
    rows = Ragged.from_rows([[1, 2], [300], [3]])
    nested = Ragged(rows, [0, 1, 2, 3])
    part = rm.from_arrays({"x": rows, "y": nested}).cast({"x": "uint8", "y": "uint8"})
    assert part[0:1]["x"].tolist() == [[1, 2]]
    assert part[2:3]["y"].tolist() == [[[3]]]
    assert part[2:3]["x"].values.tolist() == [3]
    with pytest.raises(rm.FieldMismatchError, match="300"):
        part[1:2]["x"]
    (batch,) = rm.from_batches([{"x": rows[2:]}], {"x": "float64[*]"}).batches(5)
    assert batch["x"].values.tolist() == [3]
    with pytest.raises(rm.ColumnError, match="must ascend"):
        next(
            rm.from_batches([{"x": Ragged(np.arange(4), [-2, -1])}], {"x": "float64[*]"}).batches(1)
        )
