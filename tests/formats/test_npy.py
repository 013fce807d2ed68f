"""NumPy .npy files: every kind of header, sound and hostile."""

from __future__ import annotations

import io
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.formats.npy import parse_header


def save(array: np.ndarray[Any, Any], version: tuple[int, int] | None = None) -> None:
    with open("x.npy", "wb") as file:
        np.lib.format.write_array(file, array, version=version, allow_pickle=True)


def save_header(text: str, data: bytes = b"", version: int = 1) -> None:
    body = text.encode() + b"\n"
    length = len(body).to_bytes(2 if version == 1 else 4, "little")
    with open("x.npy", "wb") as file:
        file.write(b"\x93NUMPY" + bytes([version, 0]) + length + body + data)


def header(descr: str = "'<f8'", shape: str = "(2,)", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


def assert_read_as_numpy_does() -> None:
    wanted = np.load("x.npy")
    ds = rm.open("x.npy")
    assert len(ds) == len(wanted)
    found = ds["data"]
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert found.tobytes() == wanted.tobytes()
    assert ds[1:]["data"].tobytes() == wanted[1:].tobytes()


def refused(why: str) -> None:
    with pytest.raises(rm.DataError, match=why) as raised:
        rm.open("x.npy")
    assert "x.npy" in str(raised.value)
    assert raised.value.file == "x.npy"


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_headers_of_every_version_are_read(version: tuple[int, int]) -> None:
    save(np.arange(12.0).reshape(4, 3), version)
    assert_read_as_numpy_does()


def test_names_beyond_latin_1_make_a_header_of_version_3() -> None:
    rm.from_arrays({"größe": np.arange(3), "Ω": np.ones(3)}).save("x.npy")
    assert np.load("x.npy").dtype.names == ("größe", "Ω")
    assert list(rm.open("x.npy").schema) == ["größe", "Ω"]


@pytest.mark.parametrize("shape", [(5,), (4, 3), (3, 4, 2), (6, 1), (1, 6)], ids=str)
@pytest.mark.parametrize("dtype", ["<i4", ">i4", ">f8", "|u1", "<c16", "|b1", "<M8[ns]", "|V3"])
def test_arrays_in_fortran_order_and_of_either_byte_order_are_read(
    dtype: str, shape: tuple[int, ...]
) -> None:
    raw = np.arange(np.prod(shape) * np.dtype(dtype).itemsize, dtype=np.uint8) % 2
    array = raw.view(dtype).reshape(shape)
    save(array)
    assert_read_as_numpy_does()
    save(np.asfortranarray(array))
    assert_read_as_numpy_does()


def test_an_array_in_fortran_order_is_converted_in_the_order_of_rows() -> None:
    array = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    save(array)
    rm.convert("x.npy", "rows.npy", verify="full")
    assert np.array_equal(np.load("rows.npy"), array)


def test_fields_of_a_structured_array_are_columns() -> None:
    point = np.dtype([("at", [("x", "<f4"), ("y", ">f4")]), ("color", "u1", (3,)), ("name", "S4")])
    array = np.zeros(5, point)
    array["at"]["x"], array["at"]["y"] = np.arange(5), -np.arange(5)
    array["color"] = np.arange(15).reshape(5, 3)
    array["name"] = [b"a", b"", b"abcd", b"x", b"y"]
    save(array)
    ds = rm.open("x.npy")
    assert ds.schema == {"at.x": "float32", "at.y": ">f4", "color": "uint8[3]", "name": "bytes"}
    assert np.array_equal(ds["at.y"], array["at"]["y"])
    assert np.array_equal(ds[[4, 0]]["color"], array["color"][[4, 0]])
    assert ds[:]["name"].tolist() == array["name"].tolist()


def test_padding_between_aligned_fields_is_skipped() -> None:
    array = np.zeros(4, np.dtype([("a", "u1"), ("b", "<f8"), ("c", "<i2")], align=True))
    array["a"], array["b"], array["c"] = np.arange(4), np.arange(4) / 2, -np.arange(4)
    save(array)
    ds = rm.open("x.npy")
    assert list(ds.schema) == ["a", "b", "c"]
    for name in ds.schema:
        assert np.array_equal(ds[:][name], array[name])


def test_a_field_with_the_name_of_its_parent_is_told_apart() -> None:
    array = np.zeros(2, [("a", [("a", "i4"), ("b", "i4")])])
    array["a"]["a"] = [1, 2]
    save(array)
    ds = rm.open("x.npy")
    assert list(ds.schema) == ["a.a", "a.b"]
    assert ds["a.a"].tolist() == [1, 2]


def test_two_fields_of_one_column_name_are_refused() -> None:
    save(np.zeros(2, [("a.b", "i4"), ("a", [("b", "i4")])]))
    with pytest.raises(rm.DataError, match="two fields .* 'a.b'"):
        rm.open("x.npy")


@pytest.mark.parametrize("dtype", ["S5", "U5", ">U5"])
def test_fixed_width_strings_become_byte_strings(dtype: str) -> None:
    save(np.array(["", "ab", "abcde"], dtype))
    assert rm.open("x.npy")[:]["data"].tolist() == [b"", b"ab", b"abcde"]
    save(np.array([["a", "b"], ["c", ""]], dtype))
    assert rm.open("x.npy").schema == {"data": "bytes[2]"}
    assert rm.open("x.npy")[1:]["data"].tolist() == [[b"c", b""]]


def test_text_beyond_ascii_becomes_utf_8() -> None:
    save(np.array(["größe", "Ω"]))
    assert rm.open("x.npy")[:]["data"].tolist() == ["größe".encode(), "Ω".encode()]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (4, 0), (0, 0)], ids=str)
def test_empty_arrays_and_empty_rows_are_read(shape: tuple[int, ...]) -> None:
    save(np.empty(shape))
    assert_read_as_numpy_does()
    assert [batch["data"].shape for batch in rm.open("x.npy").batches(10)] in ([shape], [])


def test_numbers_written_by_python_2_are_read() -> None:
    save_header(header(shape="(2L,)"), np.arange(2.0).tobytes())
    assert rm.open("x.npy")["data"].tolist() == [0.0, 1.0]
    save_header(header(shape="(2L, 1L)"), np.arange(2.0).tobytes())
    assert rm.open("x.npy")["data"].shape == (2, 1)


def test_a_name_that_looks_like_such_a_number_is_kept() -> None:
    save(np.zeros(2, [("v1L,", "<f8")]))
    assert list(rm.open("x.npy").schema) == ["v1L,"]


def test_a_single_value_has_no_rows() -> None:
    save(np.array(3.0))
    refused(r"a single value, which has no rows; reshape it to \(1,\)")


class _Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("sprung",)


@pytest.mark.parametrize("dtype", [object, [("a", "i4"), ("b", object)]], ids=["plain", "field"])
def test_objects_are_refused_and_never_unpickled(dtype: Any) -> None:
    array = np.zeros(1, dtype)
    (array if array.dtype.names is None else array["b"])[0] = _Trap()
    save(array)
    refused("holds Python objects.*np.load")
    assert not os.path.exists("sprung")
    np.load("x.npy", allow_pickle=True)  # NumPy does fall into the trap
    assert os.path.exists("sprung")


def test_a_pickle_is_not_read_as_an_array() -> None:
    with open("x.npy", "wb") as file:
        pickle.dump(_Trap(), file)
    with pytest.raises(rm.DataError, match="x.npy"):
        rm.open("x.npy", format="npy")
    assert not os.path.exists("sprung")


def test_the_error_for_cut_data_says_how_much_is_missing() -> None:
    save(np.arange(10.0))
    os.truncate("x.npy", 150)
    refused("truncated: .* need 208 bytes, but the file has 150")


def test_bytes_after_the_data_are_not_read() -> None:
    save_header(header(), np.arange(3.0).tobytes())
    assert rm.open("x.npy")["data"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("size", [0, 5, 6, 9, 10, 11, 40, 127])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_a_cut_header_is_refused(version: tuple[int, int], size: int) -> None:
    save(np.arange(10.0), version)
    os.truncate("x.npy", size)
    with pytest.raises(rm.DataError, match="not a valid .npy header"):
        rm.open("x.npy", format="npy")


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "None", "{}", "{'descr': '<f8'}", "\0\0", "1 + 1", "__import__('os')"),
        header(shape="(-1,)"),
        header(shape="(2.0,)"),
        header(shape="(True,)"),
        header(shape="[2]"),
        header(shape="2"),
        header(shape="('2',)"),
        header(order="'no'"),
        header(order="None"),
        header(descr="'<f7'"),
        header(descr="None"),
        header(descr="5"),
        header(descr="()"),
        header(descr="','"),
        header(descr="[('a', '<f8'), ('a', '<f8')]"),
        header(descr="('<f8', (-1,))"),
        header(descr="'<f8'", shape=str((1,) * 100)),
        header(shape="(0, 4611686018427387904)"),
        header(shape="(4611686018427387904, 0)"),
        header(shape="(1180591620717411303424, 0)"),
        header(descr="(" * 200 + "'<f8'" + ",)" * 200),
        "(" * 5000,
        "-" * 20000 + "1",
        "[" * 10000 + "]" * 10000,
        header(descr="[('a', " * 300 + "'<f8'" + ")]" * 300),
        header().replace("}", "'more': 1}"),
    ],
    ids=lambda text: text[:50],
)
def test_a_hostile_header_is_refused(text: str) -> None:
    save_header(text, bytes(64))
    refused("not a valid .npy header")


@pytest.mark.parametrize(
    "shape",
    ["(4611686018427387904,)", "(1000000, 1000000)", "(9,)", "(3037000500, 3037000500, 1)"],
)
def test_a_shape_larger_than_the_file_is_refused(shape: str) -> None:
    save_header(header(shape=shape), bytes(64))
    refused("truncated|no memory is as large")


def test_rows_that_take_no_bytes_are_refused() -> None:
    save_header(header(descr="'<U0'", shape="(1000000000000,)"))
    refused("take no bytes")
    save_header(header(descr="[]", shape="(1000000000000,)"))
    refused("take no bytes")


def test_a_header_that_is_too_long_is_refused() -> None:
    with open("x.npy", "wb") as file:
        file.write(b"\x93NUMPY\2\0" + (2**32 - 1).to_bytes(4, "little") + bytes(100))
    refused("4,294,967,295 bytes long")


def test_an_unknown_version_is_refused() -> None:
    save_header(header(), version=4)
    refused("version 4.0 is not known")


@pytest.mark.parametrize("inner", [(), (3,), (2, 5)], ids=str)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "complex64", "M8[ns]"])
def test_numpy_maps_an_array_written_in_batches(dtype: str, inner: tuple[int, ...]) -> None:
    values = np.arange(700 * np.prod(inner, dtype=int)).reshape(700, *inner).astype(dtype)
    rm.from_batches({"x": values[i : i + 99]} for i in range(0, 700, 99)).save("x.npy")
    mapped = np.load("x.npy", mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    assert mapped.dtype == values.dtype
    assert np.array_equal(mapped, values)
    assert mapped.offset % 64 == 0


def test_columns_written_in_batches_are_a_structured_array() -> None:
    def batches() -> Any:
        for i in range(5):
            yield {"a": np.full((i, 2), i, "float32"), "b": np.arange(i)}

    rm.from_batches(batches()).save("x.npy")
    mapped = np.load("x.npy", mmap_mode="r")
    assert mapped.dtype == [("a", "<f4", (2,)), ("b", "<i8")]
    assert mapped["b"].tolist() == [0, 0, 1, 0, 1, 2, 0, 1, 2, 3]
    assert mapped["a"][:, 1].tolist() == [1, 2, 2, 3, 3, 3, 4, 4, 4, 4]


def test_an_array_without_rows_is_saved() -> None:
    rm.from_batches([], {"x": "float32[3]"}).save("x.npy")
    assert np.load("x.npy").shape == (0, 3)


def test_a_dtype_that_numpy_cannot_store_is_refused_beside_others() -> None:
    import ml_dtypes

    half = np.ones(3, ml_dtypes.bfloat16)
    with pytest.raises(rm.ColumnError, match="'h' is bfloat16.*write it to a separate .npy file"):
        rm.from_arrays({"h": half, "y": np.arange(3)}).save("x.npy")
    rm.from_arrays({"h": half}).save("x.npy")
    assert rm.open("x.npy").schema == {"h": "bfloat16"}


@pytest.mark.slow
def test_many_threads_open_files_at_once() -> None:
    np.save("x.npy", np.zeros(3, [("a", "f4", (2,)), ("b", [("c", "i8"), ("d", "u1")])]))
    with ThreadPoolExecutor(8) as pool:
        lengths = list(pool.map(lambda _: len(rm.open("x.npy")), range(2000)))
    assert lengths == [3] * 2000


@pytest.mark.parametrize(
    "array",
    [
        np.array([b"ab", b"", b"cde"]),
        np.array(["ab", "", "cd\u00e9"]),
        np.array([["a", "bb"], ["c", ""]]),
        np.array([], "S4"),
        np.array([b"", b""]),
    ],
    ids=["bytes", "text", "two axes", "none", "empty"],
)
def test_strings_convert_from_npy_to_npy(array: np.ndarray[Any, Any]) -> None:
    np.save("x.npy", array)
    rm.convert("x.npy", "y.npy", verify="full")
    found = np.load("y.npy")
    encoded = np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array
    assert found.dtype.kind == "S"
    assert found.shape == array.shape
    assert found.tolist() == encoded.tolist()
    assert rm.open("y.npy").schema == rm.open("x.npy").schema


@pytest.mark.slow
def test_strings_of_any_length_are_padded_to_the_longest() -> None:
    r = np.random.default_rng(0)
    strings = [r.bytes(n).rstrip(b"\0") for n in r.integers(0, 300, 30_000)]
    rm.from_arrays({"s": rm.Ragged.from_bytes(strings)}).save("x.npy")
    assert np.load("x.npy").tolist() == strings
    assert rm.open("x.npy")["s"][:] == rm.Ragged.from_bytes(strings)


def test_strings_that_a_npy_file_cannot_keep_are_refused() -> None:
    ending = rm.Ragged.from_bytes([b"a", b"a\0"])
    with pytest.raises(rm.ColumnError, match="'s': row 1 ends with a zero byte"):
        rm.from_arrays({"s": ending}).save("x.npy")
    uneven = rm.Ragged.from_bytes([b"x" * 10**5, *[b""] * 10**4])
    with pytest.raises(rm.ColumnError, match=r"10,001 of them would take 1 GB in x\.npy"):
        rm.from_arrays({"s": uneven}).save("x.npy")
    assert os.listdir() == []


@pytest.mark.parametrize("order", ["1", "0", "1.0", "None", "'False'", "[]"])
def test_an_order_that_is_not_a_bool_is_refused_as_by_numpy(order: str) -> None:
    save_header(header(order=order), bytes(16))
    with pytest.raises(ValueError, match="fortran_order"):
        np.load("x.npy")
    with pytest.raises(rm.DataError, match="fortran_order"):
        rm.open("x.npy")


PARTS = {
    "descr": ["'<f4'", "'|u1'", "[('a', '<f4'), ('b', '<i2', (2,))]", "'|O'", "b'<f4'", "'<f3'"],
    "shape": ["(3,)", "()", "[3]", "3", "(3.0,)", "(3L,)", "(0x3,)", "(3, None)", "('3',)"],
    "order": ["False", "True", "0", "1", "None"],
}
AROUND = ["", "", "", " ", "\n", "\x0b", "\xa0", "\x85", "#c\n", "\0", "\\\n"]


@pytest.mark.filterwarnings("ignore:Reading `.npy`:UserWarning")
def test_no_header_is_read_that_numpy_refuses() -> None:
    rng = np.random.default_rng(29)
    read = 0
    for _ in range(1500):
        chosen = {name: str(rng.choice(choices)) for name, choices in PARTS.items()}
        text = str(rng.choice(AROUND)) + header(**chosen) + str(rng.choice(AROUND))
        if rng.random() < 0.3:
            at = int(rng.integers(len(text)))
            text = text[:at] + chr(int(rng.integers(256))) + text[at + 1 :]
        body = text.encode("latin1")
        version = [int(rng.integers(1, 5)), int(rng.random() < 0.1)]
        length = len(body).to_bytes(2 if version[0] == 1 else 4, "little")
        content = b"\x93NUMPY" + bytes(version) + length + body
        try:
            parse_header(content, "x.npy")
        except rm.DataError:
            continue
        found = np.lib.format.read_magic(file := io.BytesIO(content))
        assert found == tuple(version)
        assert found in ((1, 0), (2, 0), (3, 0))
        reader = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
        if found[0] in reader:  # there is no public one for version 3
            reader[found[0]](file)
        read += 1
    assert read > 20


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(5, 2, 3), (2, 0), (2, 2, 0, 1), (0, 2, 3), (4, 1, 1)])
def test_strings_of_any_shape_are_written_or_refused(shape: tuple[int, ...]) -> None:
    for given in (np.full(shape, b"ab"), np.full(shape, "\xe9")):
        np.save("in.npy", given)
        for ds in (rm.open(given), rm.open("in.npy")):
            for name in ("x.npy", "x.npz", "x.h5", "x.zarr", "x.parquet", "x.arrow", "x.tfrecord"):
                if 0 in shape[1:] and name == "x.tfrecord":
                    with pytest.raises(rm.ColumnError, match=r"length 0.*write \.npz"):
                        ds.save(name, overwrite=True)
                    continue
                ds.save(name, overwrite=True)
                assert rm.diff(name, ds).same, name
