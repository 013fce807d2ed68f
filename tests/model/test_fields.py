"""Fields and schemas as text."""

from __future__ import annotations

import numpy as np
import pytest

import recmap as rm


@pytest.mark.parametrize(
    "text",
    ["float32", "float32[10]", "int64[*]", "float32[*,4]", "bytes", "bytes[*]", "uint8[28,28]",
     "int64[*,*]", "int64 = -1", "float32[2] = 0.5", "bytes = none", "bool = True", ">f4[3]",
     "datetime64[ns]", "datetime64[ns][10]", "complex64[2]", "bfloat16[4]", "float32[0]"],
)  # fmt: skip
def test_fields_round_trip_through_text(text: str) -> None:
    field = rm.Field.parse(text)
    assert str(field) == text
    assert rm.Field.parse(str(field)) == field
    assert eval(repr(field), {"Field": rm.Field.parse}) == field


@pytest.mark.parametrize(
    ("loose", "strict"),
    [
        (" float32 [ 2 , 3 ] ", "float32[2,3]"),
        ("f4[*, 4]", "float32[*,4]"),
        ("int64=0x10", "int64 = 16"),
        ("float[]", "float64"),
    ],
)
def test_equivalent_texts_parse_to_the_same_field(loose: str, strict: str) -> None:
    assert str(rm.Field.parse(loose)) == strict


@pytest.mark.parametrize(
    "text",
    ["", "float32[", "float32[1.5]", "nope", "float32[4,*]", "object", "U5", "float32[-1]",
     "int64[*] = x", "int64 = x", "V3 = 1", "float32[*,0]", "float32[2]] ", "int64 = "],
)  # fmt: skip
def test_invalid_text_is_refused(text: str) -> None:
    with pytest.raises(rm.FieldTextError):
        rm.Field.parse(text)
    with pytest.raises(ValueError, match=r".+"):
        rm.Field.parse(text)


def test_a_fill_value_must_fit() -> None:
    with pytest.raises(rm.FieldTextError, match="cannot fill"):
        rm.Field("float32", (3,), fill=[1, 2])
    assert rm.Field.parse("V3 = abc").fill_row().tobytes() == b"abc"  # type: ignore[union-attr]
    assert rm.Field.parse("V3[2] = 0").fill_row().tobytes() == bytes(6)  # type: ignore[union-attr]
    assert rm.Field("float32", (2,), fill=[1, 2]).fill_row().tolist() == [1, 2]  # type: ignore[union-attr]
    with pytest.raises(rm.FieldTextError, match="must be bytes"):
        rm.Field("bytes", fill=3)


def test_schemas_are_ordered_mappings_of_fields() -> None:
    schema = rm.Schema({"x": "float32[2]", "n": rm.Field(np.int32)})
    assert list(schema) == ["x", "n"]
    assert schema == {"x": "float32[2]", "n": "int32"}
    assert schema != {"x": "float32[3]", "n": "int32"}
    assert repr(schema) == "Schema(x: float32[2], n: int32)"
    with pytest.raises(KeyError, match="no column 'y'; there are: x, n"):
        schema["y"]
