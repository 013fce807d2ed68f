"""Wrapped sources keep the capabilities of the source they wrap."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import recmap as rm
from recmap.conversion.transform import transformed
from recmap.formats.combined import ConcatenatedSource, SideBySideSource
from recmap.formats.memory import MemorySource
from recmap.model.batch import PadSpec, RowNumbers
from recmap.model.ragged import Ragged
from recmap.model.schema import Schema
from recmap.model.source import SelectedSource, Source, WrappedSource

ROWS = 100
SPAN = range(10, 40)


@pytest.fixture
def tokens() -> Source:
    """Write ragged tokens and their labels to a TFRecord file."""
    rng = np.random.default_rng(0)
    rows = Ragged.from_rows([rng.integers(0, 1000, n) for n in rng.integers(0, 20, ROWS)])
    with rm.TFRecordWriter("tokens.tfrecord") as writer:
        writer.write({"tokens": rows, "label": np.arange(ROWS)})
    return rm.open("tokens.tfrecord")._source


WRAPPERS: dict[str, Callable[[Source], Source]] = {
    "wrapped": WrappedSource,
    "renamed": lambda source: SelectedSource(source, {"y": "label", "tokens": "tokens"}),
    "sliced": lambda source: transformed(source, rows=slice(5, 95)),
    "backwards": lambda source: transformed(source, rows=slice(None, None, -1)),
    "cast": lambda source: transformed(source, cast={"tokens": "int32", "label": "float32"}),
    "widened": lambda source: transformed(source, cast={"tokens": "float64"}),
    "side by side": lambda source: SideBySideSource(
        {
            "tokens": source,
            "more": MemorySource({"more": np.arange(ROWS)}, Schema({"more": "int64"})),
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
    cast = transformed(tokens, cast={"tokens": "float32"})
    pad = PadSpec(None, 1, np.float32(0.5).tobytes(), False, False)
    assert cast.read_padded(SPAN, {"tokens": pad}, 8, lambda n: np.empty(n, np.uint8)) is None


def test_columns_that_are_not_cast_stay_views_of_the_file() -> None:
    np.save("x.npy", np.zeros(10, [("a", "f4"), ("b", "f4")]))
    source = transformed(rm.open("x.npy")._source, cast={"a": "float64"}, rename={"b": "c"})
    assert source.column("a") is None
    view = source.column("c")
    assert view is not None
    assert not view.flags.owndata
    assert source.info().mapped == ["c"]


def test_only_selected_columns_are_read(tokens: Source) -> None:
    part = transformed(tokens, rows=slice(0, 50, 2), cast={"label": "int32"})
    assert list(part.select(["label"]).schema) == ["label"]
    assert list(part.select(["label"]).read(0, 3)["label"]) == [0, 2, 4]
