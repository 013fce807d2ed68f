"""What every format keeps, alone and from one to another.

A new format adds a line to FORMATS in ``every_format.py`` and inherits all of it.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.formats.every_format import (
    DTYPES,
    LOOSE,
    PLAIN,
    TEXT_SCHEMA,
    TEXTS,
    TYPED,
    Case,
    assert_same,
    every_fixed_format,
    every_format,
    every_loose_format,
    every_loose_source,
    every_neighbour,
    every_source,
    every_typed_format,
    folders,
    from_file,
    loose,
    mixed,
    numbers,
    save_texts,
    texts,
)


@every_format
def test_every_dtype_keeps_its_bits_and_byte_order(case: Case) -> None:
    columns = {dtype: numbers(dtype, 7, 3) for dtype in DTYPES}
    # A file of a fixed format has one column.
    for names in folders([[dtype] for dtype in DTYPES] if case.fixed else [DTYPES]):
        ds = rm.open(case.save(from_file({name: columns[name] for name in names}), verify="full"))
        for name in names:
            kept = case.kept(columns[name])
            assert ds.schema[name].dtype == kept.dtype
            assert_same(ds[:][name], kept)
            assert_same(ds[2:5][name], kept[2:5])


@every_loose_format
def test_ragged_rows_of_every_dtype_keep_their_bits(case: Case) -> None:
    columns = {dtype: rm.Ragged(numbers(dtype, 12, 2).view(), [0, 5, 5, 12]) for dtype in DTYPES}
    found = rm.open(case.save(columns, verify="full"))[:]
    for dtype, column in columns.items():
        values = column.values
        assert isinstance(values, np.ndarray)
        if values.dtype.kind != "V":
            values = values.astype(values.dtype.newbyteorder("="))
        assert_same(found[dtype], rm.Ragged(values, column.offsets))


@every_format
@pytest.mark.parametrize("rows", [0, 1, 10])
def test_columns_and_their_order_are_kept(case: Case, rows: int) -> None:
    columns = mixed(rows)
    ds = rm.open(case.save(columns, verify="full"))
    assert len(ds) == rows
    if rows or not case.name.startswith("tfrecord"):
        assert set(ds.schema) == set(columns)
        assert ds.schema == rm.from_arrays(columns).schema
    for name in columns if rows else ():
        assert_same(ds[:][name], columns[name])


@every_loose_format
@pytest.mark.parametrize("rows", [1, 10])
def test_ragged_rows_are_kept(case: Case, rows: int) -> None:
    columns = loose(rows)
    ds = rm.open(case.save(columns, verify="full"))
    assert ds.schema == rm.from_arrays(columns).schema
    for name, column in columns.items():
        assert_same(ds[:][name], column)


@every_loose_format
def test_ragged_columns_without_rows_are_kept(case: Case) -> None:
    ds = rm.open(case.save(rm.from_arrays({n: c[:0] for n, c in loose(3).items()})))
    assert len(ds) == 0


@every_loose_format
def test_rows_that_are_all_empty_are_kept(case: Case) -> None:
    columns = {"x": rm.Ragged(np.empty(0, "float32"), [0, 0, 0]), "s": [b"", b""]}
    ds = rm.open(case.save(columns), {"x": "float32[*]", "s": "bytes"})
    assert ds[:]["x"].lengths.tolist() == [0, 0]
    assert ds[:]["s"].tolist() == [b"", b""]


@every_loose_format
def test_strings_along_a_fixed_axis_are_kept(case: Case) -> None:
    column = np.array([[b"a", b"bb"], [b"", b"ccc"]])
    path = case.path("data")
    schema = {"s": "bytes[2]"}
    rm.from_batches([{"s": column}], schema).save(path, **case.options)
    ds = rm.open(path)
    assert ds.schema == schema
    assert ds[:]["s"].tolist() == [[b"a", b"bb"], [b"", b"ccc"]]


@every_loose_format
@pytest.mark.parametrize("rows", [1, 11])
def test_text_is_kept_and_stays_text(case: Case, rows: int) -> None:
    columns = texts(rows)
    path = save_texts(case, columns)
    ds = rm.open(path)
    assert ds.schema == TEXT_SCHEMA
    for name, column in columns.items():
        assert_same(ds[:][name], column)
        assert_same(ds[[0, rows - 1, 0]][name], column[[0, rows - 1, 0]])
    assert ds[rows - 1]["caption"] == TEXTS[(rows - 1) % len(TEXTS)]
    assert rm.open(path, {"caption": "bytes"})[0]["caption"] == b"plain"
    rm.verify(path)


@every_loose_format
def test_text_columns_without_rows_are_kept(case: Case) -> None:
    empty = {name: column[:0] for name, column in texts(3).items()}
    assert len(rm.open(save_texts(case, empty))) == 0


@every_loose_format
def test_byte_strings_are_read_as_text_if_asked_and_checked(case: Case) -> None:
    path = case.save({"caption": [text.encode() for text in TEXTS], "label": np.arange(7)})
    assert rm.open(path).schema["caption"] == rm.Field("bytes")
    ds = rm.open(path, {"caption": "text", ...: None})
    assert ds.schema == {"caption": "text", "label": "int64"}
    assert ds[:]["caption"].tolist() == TEXTS
    path = case.save({"caption": [b"a", b"b", b"caf\xe9", b"c"]}, "latin1")
    ds = rm.open(path, {"caption": "text"})
    assert ds[1]["caption"] == "b"
    for read in (lambda: ds[:], lambda: ds[[3, 2]], lambda: list(ds.batches(2))):
        with pytest.raises(
            rm.FieldMismatchError, match=r'UTF-8.*columns=.*"caption": "bytes"'
        ) as e:
            read()
        assert (e.value.file, e.value.record, e.value.field) == (path, 2, "caption")
    assert rm.open(path, {"caption": "bytes"})[2]["caption"] == b"caf\xe9"


@pytest.mark.slow
@every_loose_source
def test_text_converts_from_every_format_to_every_other(source: Case) -> None:
    columns = texts(9)
    first = save_texts(source, columns)
    for target in PLAIN:
        if target.fixed:
            with pytest.raises(rm.ColumnError, match="rows of different sizes do not fit"):
                target.save(rm.open(first), "second")
            continue
        ds = rm.open(target.save(rm.open(first), "second"))
        assert ds.schema == TEXT_SCHEMA
        for name, column in columns.items():
            assert_same(ds[:][name], column)


@every_loose_format
def test_zeros_in_text_are_kept_or_refused_with_a_remedy(case: Case) -> None:
    column = rm.Ragged.from_text(["fine", "a\0b", "\0", "end\0"])
    if not case.name.startswith("hdf5"):
        ds = rm.open(case.save({"caption": column}))
        assert ds[:]["caption"].tolist() == column.tolist()
        return
    with pytest.raises(rm.ColumnError, match=r"row 1 has a zero.*cast\(.*bytes"):
        case.save({"caption": column})
    rm.from_arrays({"caption": column}).cast({"caption": "bytes"}).save(case.path("bytes"))
    assert rm.open(case.path("bytes"))[1]["caption"] == b"a\0b"
    # Lists of text are stored without such ends.
    lists = rm.Ragged(column, [0, 1, 4])
    assert rm.open(case.save({"words": lists}))[1]["words"].tolist() == ["a\0b", "\0", "end\0"]


@every_format
def test_rows_without_values_are_kept_beside_others(case: Case) -> None:
    columns = {"nothing": np.empty((4, 0), "float32"), "label": np.arange(4)}
    ds = rm.open(case.save(columns))
    assert ds[:]["nothing"].shape == (4, 0)
    assert ds[:]["label"].tolist() == [0, 1, 2, 3]


@every_format
def test_rows_without_values_alone_are_kept_or_refused(case: Case) -> None:
    columns = {"nothing": np.empty((4, 0), "float32")}
    if case.name == "raw":
        with pytest.raises(rm.ColumnError, match="no bytes.*write .npy"):
            case.save(columns)
        assert os.listdir() == []
    else:
        assert rm.open(case.save(columns))[1:]["nothing"].shape == (3, 0)


@every_fixed_format
@pytest.mark.parametrize("name", ["tokens", "name", "words"])
def test_ragged_rows_are_refused_with_a_remedy(case: Case, name: str) -> None:
    with pytest.raises(rm.ColumnError, match=rf"{name}.*write \.npz, \.h5, \.zarr or \.tfrecord"):
        case.save({name: loose(3)[name]})
    assert os.listdir() == []


def test_text_fits_into_npy_and_is_refused_by_raw() -> None:
    for name in ("data", "caption"):
        rm.from_arrays({name: rm.Ragged.from_text(TEXTS)}).save("a.npy", overwrite=True)
        ds = rm.open("a.npy")
        assert ds.schema == {name: "text"}
        assert ds[:][name].tolist() == TEXTS
        assert np.load("a.npy").tolist() == [text.encode() for text in TEXTS]
        assert rm.open("a.npy", {name: "bytes"})[2][name] == "café".encode()
    with pytest.raises(rm.ColumnError, match="row 1 ends with a zero byte"):
        rm.from_arrays({"s": rm.Ragged.from_text(["a", "b\0"])}).save("b.npy")
    with pytest.raises(rm.ColumnError, match=r"'s' is text.*write \.npz"):
        rm.from_arrays({"s": rm.Ragged.from_text(["a"])}).save("b.bin")
    # NumPy's own arrays of text are bytes unless asked for.
    np.save("c.npy", np.array(["é", "漢字"]))
    assert rm.open("c.npy")[0]["data"] == "é".encode()
    assert rm.open("c.npy", {"data": "text"})[1]["data"] == "漢字"


@every_loose_format
def test_lists_of_lists_of_strings_are_kept(case: Case) -> None:
    words = loose(20)["words"]
    texts = rm.Ragged(words, [0, 2, 2, 6, 20])
    ds = rm.open(case.save({"texts": texts, "label": np.arange(4)}))
    assert ds.schema == {"texts": "bytes[*,*]", "label": "int64"}
    assert_same(ds[:]["texts"], texts)
    assert_same(ds[[3, 0, 3]]["texts"], texts[[3, 0, 3]])


@pytest.mark.parametrize("case", [c for c in LOOSE if c in TYPED], ids=lambda case: case.name)
def test_lists_of_any_depth_and_strings_along_any_axes_are_kept(case: Case) -> None:
    boxes = rm.Ragged(rm.Ragged(loose(20)["boxes"], [0, 7, 7, 12, 20]), [0, 3, 3, 4])
    texts = np.array([[[b"a", b"bb"], [b"", b"ccc"]]] * 3)
    schema = {"boxes": "float32[*,*,*,4]", "texts": "bytes[2,2]"}
    rm.from_batches([{"boxes": boxes, "texts": texts}], schema).save(
        case.path("data"), **case.options
    )
    ds = rm.open(case.path("data"))
    assert ds.schema == schema
    assert_same(ds[:]["boxes"], boxes)
    assert ds[1:]["texts"].tolist() == texts[1:].tolist()


@every_format
def test_rows_slices_and_gathers_match_numpy(case: Case) -> None:
    columns = mixed(11)
    ds = rm.open(case.save(columns))
    chosen = [
        *(slice(2, 5), slice(None, -3), slice(-4, None), slice(8, 100), slice(5, 2)),
        *(slice(None, None, 3), slice(None, None, -1), slice(0, 0)),
        *([3, 3, -1, 0, 10], [], np.array([9, 1]), np.arange(11) % 2 == 0),
    ]
    for rows in chosen:
        for name, column in columns.items():
            wanted = column[np.array(rows, dtype=int)] if isinstance(rows, list) else column[rows]
            assert_same(ds[rows][name], wanted)
            assert_same(np.asarray(ds[name][rows]), wanted)
    for row in (0, 10, -1, -11):
        assert_same(ds[row]["image"], columns["image"][row])
        assert ds[row]["label"] == columns["label"][row]
    for row in (11, -12):
        with pytest.raises(rm.RowNotFoundError):
            ds[row]


@every_loose_format
def test_slices_and_gathers_of_ragged_rows_match_those_in_memory(case: Case) -> None:
    columns = loose(11)
    ds = rm.open(case.save(columns))
    for rows in (slice(2, 5), slice(-4, None), slice(5, 2), slice(None, None, -2)):
        for name, column in columns.items():
            assert_same(ds[rows][name], column[rows])
    for name, column in columns.items():
        assert_same(ds[[3, 3, -1, 0, 10]][name], column[[3, 3, 10, 0, 10]])
    assert ds[5]["name"] == columns["name"][5]
    assert ds[7]["tokens"].tolist() == columns["tokens"][7].tolist()


@every_format
def test_batches_cover_all_rows_and_the_last_is_smaller(case: Case) -> None:
    columns = mixed(11)
    ds = rm.open(case.save(columns))
    for size in (1, 4, 11, 100):
        batches = list(ds.batches(size))
        assert [len(b["label"]) for b in batches] == [min(size, 11 - i) for i in range(0, 11, size)]
        for name, column in columns.items():
            assert_same(np.concatenate([batch[name] for batch in batches]), column)
        whole = list(ds.batches(size, drop_last=True))
        assert sum(len(batch["label"]) for batch in whole) == 11 - 11 % size


@every_loose_format
def test_batches_of_ragged_rows_cover_all(case: Case) -> None:
    columns = loose(11)
    batches = list(rm.open(case.save(columns)).batches(4))
    for name, column in columns.items():
        assert [row for batch in batches for row in batch[name].tolist()] == column.tolist()


@every_source
def test_every_format_converts_to_every_other(source: Case) -> None:
    columns = mixed(9) | {"big": numbers(">f4", 9, 2)}
    first = source.save(from_file(columns), "first")
    for target in PLAIN:
        ds = rm.open(target.save(rm.open(first), "second"))
        assert target.name == "tfrecord" or ds.schema == rm.open(first).schema
        for name, column in columns.items():
            assert_same(ds[:][name], target.kept(source.kept(column)))


@every_loose_source
def test_ragged_rows_convert_from_every_format_to_every_other(source: Case) -> None:
    columns = loose(9)
    first = source.save(columns, "first")
    for target in PLAIN:
        if target.fixed:
            with pytest.raises(rm.ColumnError, match="rows of different sizes do not fit"):
                target.save(rm.open(first), "second")
            continue
        ds = rm.open(target.save(rm.open(first), "second"))
        for name, column in columns.items():
            assert_same(ds[:][name], column)


@every_format
def test_the_bytes_do_not_depend_on_batches(case: Case) -> None:
    columns = mixed(10) if case.fixed else loose(10)
    paths = []
    for size in (1, 4, 10):
        batches = [{n: c[i : i + size] for n, c in columns.items()} for i in range(0, 10, size)]
        path = case.path(f"by-{size}")
        rm.from_batches(batches).save(path, **case.options)
        paths.append(path)
    first, *others = [content(path) for path in paths]
    assert all(other == first for other in others)


@every_format
def test_several_files_are_read_end_to_end(case: Case) -> None:
    columns = mixed(10)
    case.save({n: c[:4] for n, c in columns.items()}, "part-0")
    case.save({n: c[4:] for n, c in columns.items()}, "part-1")
    ds = rm.open([case.path("part-0"), case.path("part-1")])
    for name, column in columns.items():
        assert_same(ds[:][name], column)
        assert_same(ds[[9, 0, 4, 3]][name], column[[9, 0, 4, 3]])


@every_typed_format
def test_files_with_different_schemas_are_refused_with_the_difference(case: Case) -> None:
    case.save({"x": np.zeros((3, 2), "float32"), "y": np.arange(3)}, "part-0")
    case.save({"x": np.zeros((3, 4), "float32"), "z": np.arange(3)}, "part-1")
    difference = r"part-1.*: 'x' is float32\[4\], not float32\[2\]; 'y' is missing; 'z' is new"
    with pytest.raises(rm.DataError, match=difference):
        rm.open([case.path("part-0"), case.path("part-1")])


@every_neighbour
def test_columns_from_different_files_are_read_side_by_side(source: Case, target: Case) -> None:
    columns = mixed(5)
    image = source.save({"image": columns["image"]}, "image")
    label = target.save({"label": columns["label"]}, "label")
    ds = rm.open({"image": image, "label": label})
    assert_same(ds[1:4]["image"], columns["image"][1:4])
    assert_same(ds[[4, 0]]["label"], columns["label"][[4, 0]])


@every_neighbour
def test_columns_of_different_lengths_are_refused_with_their_lengths(
    source: Case, target: Case
) -> None:
    five = source.save({"image": mixed(5)["image"]}, "image")
    six = target.save({"label": mixed(6)["label"]}, "label")
    with pytest.raises(rm.DataError, match="'image' has 5, 'label' has 6"):
        rm.open({"image": five, "label": six})


@every_format
def test_a_file_that_fails_leaves_nothing_behind(case: Case) -> None:
    def batches() -> Any:
        yield {"x": np.arange(3)}
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        rm.from_batches(batches()).save(case.path("data"), **case.options)
    assert os.listdir() == []


@every_format
def test_only_the_file_and_its_description_are_left(case: Case) -> None:
    path = case.save(mixed(3))
    sidecars = {f"{path}.recmap.json", f".{path}.recmap", f"{path}.recmap"}
    assert set(os.listdir()) - sidecars == {path}


@every_format
def test_an_output_is_replaced_when_asked(case: Case) -> None:
    path = case.save(mixed(9))
    with pytest.raises(rm.OutputExistsError):
        case.save(mixed(3))
    rm.from_arrays(mixed(3)).save(path, **case.options, overwrite=True)
    assert len(rm.open(path)) == 3


@every_format
def test_an_array_reused_for_every_batch_is_written_each_time(case: Case) -> None:
    def batches() -> Any:
        held = np.empty(2)
        for value in range(5):
            held[:] = value
            yield {"x": held}

    rm.from_batches(batches()).save(case.path("data"), **case.options)
    assert rm.open(case.path("data"))[:]["x"].tolist() == list(np.repeat(np.arange(5.0), 2))


@pytest.mark.parametrize("dtype", ["float32", "int16", "complex128"])
def test_converting_through_all_formats_gives_the_original_bytes(dtype: str) -> None:
    first = numbers(dtype, 50, 6, 2)
    first.tofile("first.bin")
    rm.convert("first.bin", "step-0.tfrecord", dtype=dtype, shape=(-1, 6, 2))
    files = ["step-0.tfrecord"]
    for i, case in enumerate(PLAIN, start=1):
        files.append(f"step-{i}{case.suffix}")
        rm.convert(files[-2], files[-1], verify="full")
    rm.convert(files[-1], "last.tfrecord")
    rm.convert("last.tfrecord", "last.bin")
    assert content("last.bin") == content("first.bin")
    assert rm.open("last.bin").schema == {"data": rm.Field(dtype, (6, 2))}


def content(path: str) -> Any:
    """Return the bytes of a file, or of all files of a folder by name."""
    if not os.path.isdir(path):
        with open(path, "rb") as file:
            return file.read()
    files = [os.path.join(d, name) for d, _, names in os.walk(path) for name in names]
    return {os.path.relpath(file, path): content(file) for file in files}


def test_dtype_applies_only_to_files_without_a_header() -> None:
    x, y = np.arange(20, dtype=np.float32).reshape(2, 10), np.arange(2)
    x.tofile("x.dat")
    np.save("y.npy", y)
    with rm.TFRecordWriter("z.tfrecord") as writer:
        writer.write({"z": y + 5})
    paths = {"x": "x.dat", "y": "y.npy", "z": "z.tfrecord"}
    dataset = rm.open(paths, dtype="float32", shape=(-1, 10))
    assert np.array_equal(dataset[:]["x"], x)
    assert dataset[:]["y"].tolist() == [0, 1]
    assert dataset[:]["z"].tolist() == [5, 6]
