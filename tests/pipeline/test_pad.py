"""Ragged columns of a batch as dense arrays."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import recmap as rm
from recmap.pipeline.transforms.pad import Pad, Padding
from tests.frameworks import tf

TOKENS = rm.Ragged.from_rows([[1, 2, 3], [], [4]], np.int64)
BOXES = rm.Ragged.from_rows(
    [np.arange(8).reshape(2, 4), np.zeros((0, 4)), np.ones((1, 4))], np.float32
)
NESTED = rm.Ragged(rm.Ragged.from_rows([[1, 2], [3], [], [4, 5, 6]], np.int64), [0, 2, 3, 4])
BATCH: dict[str, Any] = {
    "tokens": TOKENS,
    "boxes": BOXES,
    "name": rm.Ragged.from_bytes([b"a", b"", b"bcd"]),
    "label": np.arange(3),
}
SCHEMA = rm.Schema(
    {"tokens": "int64[*]", "boxes": "float32[*,4]", "name": "bytes", "label": "int64"}
)
NESTED_SCHEMA = rm.Schema({"x": "int64[*,*]"})


def apply(padding: Padding, column: Any, field: Any) -> dict[str, Any]:
    return dict(padding.apply({"x": column}, rm.Schema({"x": field})))


def padded(pad: Any, **options: bool) -> dict[str, Any]:
    return dict(Padding(pad, **options).apply(dict(BATCH), SCHEMA))


def test_longest_pads_every_ragged_column_of_numbers() -> None:
    batch = padded("longest")
    assert batch["tokens"].tolist() == [[1, 2, 3], [0, 0, 0], [4, 0, 0]]
    assert batch["boxes"].shape == (3, 2, 4)
    assert np.array_equal(batch["boxes"][0], np.arange(8).reshape(2, 4))
    assert not batch["boxes"][1].any()
    assert batch["name"] is BATCH["name"]
    assert batch["label"] is BATCH["label"]


def test_a_number_pads_every_ragged_column_of_numbers() -> None:
    batch = padded(2)
    assert batch["tokens"].tolist() == [[1, 2], [0, 0], [4, 0]]
    assert batch["boxes"].shape == (3, 2, 4)


def test_only_the_columns_named_are_padded() -> None:
    batch = padded({"tokens": 4})
    assert batch["tokens"].shape == (3, 4)
    assert batch["boxes"] is BOXES


def test_each_column_may_have_its_own_pad() -> None:
    batch = padded({"tokens": Pad(5, fill=-1, side="left"), "boxes": "longest"})
    assert batch["tokens"].tolist() == [[-1, -1, 1, 2, 3], [-1] * 5, [-1, -1, -1, -1, 4]]
    assert batch["boxes"].shape == (3, 2, 4)


def test_one_pad_may_apply_to_all_columns() -> None:
    assert padded(Pad(fill=7))["tokens"].tolist() == [[1, 2, 3], [7, 7, 7], [4, 7, 7]]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("cut", ["right", "left"])
@pytest.mark.parametrize("length", [1, 7, 40])
def test_rows_are_padded_and_cut_like_keras(side: Any, cut: Any, length: int) -> None:
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 99, n) for n in rng.integers(0, 30, 64)]
    keras = {"right": "post", "left": "pre"}
    expected = tf.keras.utils.pad_sequences(
        rows, length, np.int64, padding=keras[side], truncating=keras[cut], value=-5
    )
    padding = Padding({"x": Pad(length, fill=-5, side=side, cut=cut)})
    got = apply(padding, rm.Ragged.from_rows(rows), "int64[*]")
    assert np.array_equal(got["x"], expected)


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int16", "float16", "float64", ">i4", "complex64", "M8[s]", "m8[D]"]
)
def test_every_dtype_keeps_its_values(dtype: str) -> None:
    column = rm.Ragged(np.array([1, 0, 1, 1]).astype(dtype), [0, 3, 4])
    got = apply(Padding("longest"), column, rm.Field(dtype, (None,)))["x"]
    assert got.dtype == np.dtype(dtype)
    assert np.array_equal(got, np.array([[1, 0, 1], [1, 0, 0]], "i8").astype(dtype))


def test_bfloat16_is_padded() -> None:
    values = np.array([1.5, 2.5, -1], ml_dtypes.bfloat16)
    got = apply(Padding(Pad(fill=0.5)), rm.Ragged(values, [0, 1, 3]), "bfloat16[*]")["x"]
    assert got.tolist() == [[1.5, 0.5], [2.5, -1]]


def test_the_longest_row_is_rounded_up_to_a_multiple() -> None:
    assert padded({"tokens": Pad(multiple=8)})["tokens"].shape == (3, 8)
    assert padded({"tokens": Pad(multiple=3)})["tokens"].shape == (3, 3)


def test_a_row_that_must_not_be_cut_is_refused() -> None:
    with pytest.raises(rm.DataError, match="'tokens': row 0 of the batch has 3 items.*to 2 .cut="):
        padded({"tokens": Pad(2, cut="error")})
    assert padded({"tokens": Pad(3, cut="error")})["tokens"].shape == (3, 3)


def test_lengths_count_what_was_kept() -> None:
    batch = padded({"tokens": 2}, lengths=True)
    assert batch["tokens_length"].tolist() == [2, 0, 1]
    assert batch["tokens_length"].dtype == np.int64
    assert list(batch) == ["tokens", "tokens_length", "boxes", "name", "label"]


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_mask_tells_values_from_filler(side: Any) -> None:
    batch = padded({"tokens": Pad(4, side=side), "boxes": Pad(1)}, mask=True)
    right = np.array([[1, 1, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]], bool)
    assert np.array_equal(batch["tokens_mask"], right if side == "right" else right[:, ::-1])
    assert batch["tokens_mask"].dtype == np.bool_
    assert batch["boxes_mask"].tolist() == [[True], [False], [True]]


def test_nested_rows_are_padded_along_both_axes() -> None:
    padding = Padding("longest", lengths=True, mask=True)
    batch = apply(padding, NESTED, "int64[*,*]")
    expected = tf.ragged.constant([[[1, 2], [3]], [[]], [[4, 5, 6]]], tf.int64).to_tensor()
    assert np.array_equal(batch["x"], expected)
    assert batch["x_length"].tolist() == [2, 1, 1]
    assert np.array_equal(batch["x_mask"], expected.numpy() != 0)


def test_each_nested_axis_may_have_its_own_length() -> None:
    padding = Padding({"x": Pad((1, 4), fill=-1)})
    assert apply(padding, NESTED, "int64[*,*]")["x"].tolist() == [
        [[1, 2, -1, -1]],
        [[-1, -1, -1, -1]],
        [[4, 5, 6, -1]],
    ]
    assert apply(padding, NESTED[1:], "int64[*,*]")["x"].shape == (2, 1, 4)
    assert padding.schema(NESTED_SCHEMA)["x"] == rm.Field("int64", (1, 4))
    with pytest.raises(rm.DataError, match="'x': list 3 of the batch has 3 items"):
        apply(Padding({"x": Pad((2, 2), cut="error")}), NESTED, "int64[*,*]")
    with pytest.raises(rm.OptionError, match="3 lengths.*ragged axes: 2"):
        apply(Padding({"x": (1, 2, 3)}), NESTED, "int64[*,*]")


def test_the_schema_has_the_fixed_axes() -> None:
    padding = Padding({"tokens": 128, "boxes": "longest"}, lengths=True, mask=True)
    assert padding.schema(SCHEMA) == rm.Schema(
        {
            "tokens": "int64[128]",
            "tokens_length": "int64",
            "tokens_mask": "bool[128]",
            "boxes": "float32[*,4]",
            "boxes_length": "int64",
            "boxes_mask": "bool[*]",
            "name": "bytes",
            "label": "int64",
        }
    )
    assert Padding({"x": ("longest", 5)}).schema(NESTED_SCHEMA)["x"].shape == (None, 5)
    assert Padding({"x": (5, "longest")}).schema(NESTED_SCHEMA)["x"].shape == (None, None)


def test_rows_that_happen_to_have_equal_lengths_are_padded_too() -> None:
    equal = rm.Ragged.from_rows([[1, 2], [3, 4]])
    for column in (equal, equal.pad()):
        assert apply(Padding(3), column, "int64[*]")["x"].tolist() == [[1, 2, 0], [3, 4, 0]]
    dense = np.arange(12).reshape(2, 3, 2)
    assert np.array_equal(apply(Padding("longest"), dense, "int64[*,*]")["x"], dense)


def test_batches_without_rows_or_of_empty_rows_are_padded() -> None:
    nothing = Padding("longest", lengths=True, mask=True)
    for rows in (0, 2):
        empty = rm.Ragged(np.empty(0, np.int64), np.zeros(rows + 1))
        batch = nothing.apply({"tokens": empty}, SCHEMA)
        assert {n: c.shape for n, c in batch.items() if isinstance(c, np.ndarray)} == {
            "tokens": (rows, 0),
            "tokens_length": (rows,),
            "tokens_mask": (rows, 0),
        }
        full = apply(Padding({"x": 2}), empty, "int64[*]")["x"]
        assert np.array_equal(full, np.zeros((rows, 2)))


@pytest.mark.parametrize(
    ("pad", "message"),
    [
        ({"nope": 3}, "'nope': no such column; there are: tokens, boxes"),
        ({"label": 3}, "'label': its rows, int64, already have the same length"),
        ({"name": 3}, "'name': it is bytes.*leave it out of pad="),
        ({"tokens": Pad(fill=0.5)}, "'tokens': int64 cannot hold the fill value 0.5"),
        ({"tokens": Pad(fill=np.nan)}, "cannot hold"),
        ({"tokens": Pad(fill=None)}, "cannot hold"),
        ({"tokens": Pad(fill="0")}, "cannot hold"),
        ({"tokens": Pad(fill=[0, 1])}, "cannot hold"),
    ],
)
def test_columns_that_cannot_be_padded_are_refused_before_any_row_is_read(
    pad: Any, message: str
) -> None:
    with pytest.raises(rm.OptionError, match=message):
        Padding(pad).schema(SCHEMA)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "cannot pad to 0"),
        ({"length": -1}, "cannot pad to -1"),
        ({"length": "long"}, "cannot pad to 'long'"),
        ({"length": 2.0}, "cannot pad to 2.0"),
        ({"length": True}, "cannot pad to True"),
        ({"side": "top"}, "side='top'"),
        ({"cut": "middle"}, "cut='middle'"),
        ({"multiple": 0}, "multiple=0"),
        ({"length": 10, "multiple": 8}, "multiple=8 rounds 'longest' up"),
    ],
)
def test_an_invalid_pad_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(rm.OptionError, match=message):
        Pad(**options)


def test_lengths_and_masks_do_not_overwrite_columns() -> None:
    schema = rm.Schema({"x": "int64[*]", "x_length": "int64", "x_mask": "bool"})
    for option in ("length", "mask"):
        padding = Padding(3, **{"lengths" if option == "length" else "mask": True})
        with pytest.raises(rm.OptionError, match=f"adds a column 'x_{option}'"):
            padding.schema(schema)


def test_offsets_that_do_not_fit_allocate_nothing() -> None:
    for offsets in ([0, 1 << 60], [0, 3, 1], [2, 5]):
        with pytest.raises(rm.ColumnError, match="offsets"):
            rm.Ragged(np.arange(3), offsets).pad()


@given(
    st.lists(hnp.arrays(np.int32, st.integers(0, 9)), min_size=1, max_size=9),
    st.integers(1, 12),
    st.data(),
)
def test_slices_and_gathers_are_padded_like_their_rows(
    rows: list[np.ndarray], length: int, data: st.DataObject
) -> None:
    ragged = rm.Ragged.from_rows(rows, np.int32)
    start = data.draw(st.integers(0, len(rows)))
    picked = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1))
    for part, expected in ((ragged[start:], rows[start:]), (ragged[picked], None)):
        wanted = [rows[i] for i in picked] if expected is None else expected
        got = part.pad(length, fill=9)
        assert got.shape == (len(wanted), length)
        for row, items in zip(got, wanted, strict=True):
            kept = items[:length]
            assert row.tolist() == [*kept.tolist(), *[9] * (length - len(kept))]


def test_an_array_to_write_to_must_fit_and_be_writable() -> None:
    column = rm.Ragged.from_rows([[1, 2], [3]])
    out = np.empty((2, 2), np.int64)
    assert column.pad(out=out) is out
    assert out.tolist() == [[1, 2], [3, 0]]
    out.flags.writeable = False
    for wrong in (out, np.empty((2, 3), np.int64), np.empty((2, 2)), np.empty((2, 4), int)[:, ::2]):
        with pytest.raises(rm.OptionError, match="out="):
            column.pad(out=wrong)


def test_bytes_of_a_fixed_size_are_padded_with_zeros() -> None:
    hashes = np.array([b"abc", b"xyz", b"123"], "V3")
    ds = rm.from_arrays({"x": rm.Ragged.from_rows([hashes[:2], hashes[2:]])})
    (batch,) = ds.batch(2, pad="longest")
    assert batch["x"].tolist() == [[b"abc", b"xyz"], [b"123", b"\0\0\0"]]
    (packed,) = ds.pack(4).batch(1)
    assert packed["x"].tolist() == [[b"abc", b"xyz", b"123", b"\0\0\0"]]
    with pytest.raises(rm.OptionError, match="cannot hold the fill value 7"):
        list(ds.batch(2, pad=rm.Pad(2, fill=7)))
