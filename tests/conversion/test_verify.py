"""verify="full" reads source and output through the libraries of their formats."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import recmap as rm
from recmap.chunks.codecs import CodecChain
from recmap.conversion import verify
from recmap.conversion.budget import Budget
from recmap.formats.npz.members import Deflated
from recmap.formats.open_spec import OpenOptions, open_source
from recmap.machine.mapped import MappedFile
from recmap.model.source import reference

VALUES = np.arange(60, dtype="<i4").reshape(20, 3)


def hdf5_file(name: str = "x.h5", **options: Any) -> None:
    with h5py.File(name, "w") as file:
        file.create_dataset("x", data=VALUES, **options)
        file["text"] = [b"a" * (i % 5) for i in range(20)]


@pytest.mark.parametrize(
    ("output", "change"),
    [
        *((output, None) for output in ("y.tfrecord", "y.npz", "y.zarr", "y.h5")),
        *(("y.tfrecord", change) for change in ("rows", "columns", "cast", "concatenated")),
        *(("y.npz", "rows"), ("y.h5", "columns"), ("y.zarr", "cast"), ("y.h5", "concatenated")),
    ],
)
def test_values_that_recmap_reads_wrongly_do_not_pass(
    output: str, change: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    hdf5_file("a.h5", chunks=(4, 3), compression="gzip")
    hdf5_file("b.h5", chunks=(4, 3), compression="gzip")
    verbs: dict[str | None, Callable[[rm.Dataset], rm.Dataset]] = {
        "rows": lambda ds: ds.select(slice(1, None, 2)),
        "columns": lambda ds: ds.select("x").rename({"x": "y"}),
        "cast": lambda ds: ds.cast({"x": "int64"}),
    }
    source = ["a.h5", "b.h5"] if change == "concatenated" else "a.h5"

    def opened() -> rm.Dataset:  # anew, without chunks that were kept
        ds = rm.open(source)
        return verbs[change](ds) if change in verbs else ds

    opened().save(f"sound-{output}", verify="full")
    right = CodecChain.undo

    def wrong(self: CodecChain, stored: Any, mask: int = 0, out: Any = None) -> Any:
        del out
        read = right(self, stored, mask)
        return (read.view("<i4") + 1).view("u1") if read.nbytes == 4 * 3 * 4 else read

    monkeypatch.setattr(CodecChain, "native", None)
    monkeypatch.setattr(CodecChain, "undo", wrong)
    with pytest.raises(rm.VerificationError, match="are not those that were read"):
        opened().save(output, verify="full")
    assert not Path(output).exists()


@pytest.mark.parametrize("name", ["x.npz", "packed.npz", "x.bin"])
def test_arrays_that_recmap_maps_wrongly_do_not_pass(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    array_file(name)
    rm.open(name, fields=["x", "y"]).save("sound.h5", verify="full")
    mapped, inflated = MappedFile.array, Deflated.read

    def wrong(self: MappedFile, *place: Any) -> Any:
        return mapped(self, *place)[::-1]

    def wrong_bytes(self: Deflated, offset: int, size: int) -> Any:
        read = inflated(self, offset, size)
        return read[::-1].copy() if offset else read  # leave the header as it is

    monkeypatch.setattr(MappedFile, "array", wrong)
    monkeypatch.setattr(Deflated, "read", wrong_bytes)
    with pytest.raises(rm.VerificationError, match="are not those that were read"):
        rm.open(name, fields=["x", "y"]).save("y.h5", verify="full")
    assert not Path("y.h5").exists()


@pytest.mark.slow
@pytest.mark.parametrize("together", [1, 3, 7])
@pytest.mark.parametrize("output", ["y.h5", "y.npz", "y.zarr"])
def test_every_value_is_compared_however_few_columns_are_compared_at_a_time(
    output: str, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(together)
    rows, format = 20, output.partition(".")[2].replace("h5", "hdf5")
    lengths = rng.integers(0, 5, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    columns: dict[str, Any] = {f"x{i}": rng.random((rows, 2)) for i in range(4)}
    columns |= {f"y{i}": rm.Ragged(rng.random(offsets[-1]), offsets) for i in range(3)}
    rm.from_arrays(columns).save("x.npz")
    source = open_source("x.npz", None, OpenOptions())
    budget = Budget(10**5, 1, 4, source.row_bytes(), "")
    monkeypatch.setattr(verify, "_COLUMN_SIZE", budget.limit // together)
    compared, compare = [], verify._compare

    def noted(name: str, original: Any, written: Any, names: Any, *rest: Any) -> None:
        compared.append(list(names))
        assert list(original.schema) == list(names)
        compare(name, original, written, names, *rest)

    monkeypatch.setattr(verify, "_compare", noted)
    rm.from_arrays(columns).save(output)
    verify.check_values(output, output, format, source, 0, rows, budget)
    assert [name for names in compared for name in names] == list(columns)
    assert max(map(len, compared)) == together
    for changed in columns:
        values = columns[changed].flat if changed[0] == "y" else columns[changed].reshape(-1)
        at = rng.integers(len(values))
        before, values[at] = values[at], 2
        rm.from_arrays(columns).save(output, overwrite=True)
        values[at] = before
        with pytest.raises(rm.VerificationError, match=f"column '{changed}'"):
            verify.check_values(output, output, format, source, 0, rows, budget)


def array_file(name: str) -> None:
    text = [b"a" * (i % 5) for i in range(20)]
    columns = {"x": VALUES, "y": np.arange(20, dtype=">f8")}
    if name == "x.bin":
        rm.from_arrays(columns).save(name)
    elif name == "packed.npz":
        rm.from_arrays(columns).save(name, compression="deflate")
    elif name == "lists.npz":
        rm.from_arrays({"t": text}).save(name, compression="deflate")
    elif name == "fortran.npz":
        np.savez(name, x=np.asfortranarray(VALUES), s=np.array(text), t=np.zeros(20, "f4,2i8"))
    elif name == "x.npz":
        rm.from_arrays({**columns, "t": text}).save(name)
    else:
        np.save(name, VALUES)


@pytest.mark.slow
def test_a_table_of_thousands_of_fields_is_compared() -> None:
    # Its header is longer than NumPy reads by default.
    np.save("x.npy", np.zeros(3, [(f"field{i}", "f4") for i in range(2_000)]))
    assert rm.convert("x.npy", "y.npy", verify="full").rows == 3


@pytest.mark.parametrize(
    "name", ["x.h5", "x.npy", "x.npz", "packed.npz", "lists.npz", "fortran.npz", "x.bin"]
)
def test_a_reference_reads_the_same_rows(name: str) -> None:
    if name == "x.h5":
        hdf5_file(chunks=(4, 2), maxshape=(None, 3))
    else:
        array_file(name)
    source = open_source(name, None, OpenOptions())
    other = reference(source)
    assert other is not source
    assert other.schema == source.schema
    assert len(other) == len(source)
    for column in source.schema:
        one, two = source.read(3, 17)[column], other.read(3, 17)[column]
        assert [np.asarray(row).tolist() for row in one] == [
            np.asarray(row).tolist() for row in two
        ]
        alone = reference(source.select([column]))
        assert list(alone.schema) == [column]
        assert len(alone.read(0, 5)[column]) == 5


@pytest.mark.slow
@pytest.mark.parametrize("compound", [False, True])
def test_the_reference_of_large_chunks_decodes_each_once(
    compound: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    numbers = rng.integers(0, 9, (1000, 3000))
    rows: Any = numbers
    if compound:
        rows = np.zeros(1000, [("a", "i4"), ("b", [("c", "i8", (3000,))]), ("d", "i8", (40, 25))])
        rows["a"], rows["b"]["c"], rows["d"] = numbers[:, 0], numbers, rng.random((1000, 40, 25))
    with h5py.File("large.h5", "w") as file:  # each row group exceeds the library's cache
        file.create_dataset("x", data=rows, chunks=(300, *rows.shape[1:]), compression="gzip")
    other = reference(open_source("large.h5", None, OpenOptions()))
    decoded = []
    read = h5py.Dataset.__getitem__

    def counted(dataset: Any, rows: Any) -> Any:
        decoded.append(rows)
        return read(dataset, rows)

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counted)
    edges = [0, *sorted(rng.choice(np.arange(1, 1000), 40, replace=False).tolist()), 1000]
    for start, stop in pairwise(edges):
        found = other.read(start, stop)
        for name, column in found.items():
            wanted: Any = rows[start:stop]
            for part in name.split(".")[1:] if compound else ():
                wanted = wanted[part]
            np.testing.assert_array_equal(column, wanted)
    assert len(decoded) == 4
    some = rng.integers(0, 1000, 50)
    for name, column in other.gather(some).items():
        np.testing.assert_array_equal(column, other.read(0, 1000)[name][some])


@pytest.mark.parametrize("shape", [(0, 3), (5, 0), (5,)])
def test_small_and_empty_arrays_are_compared_too(shape: tuple[int, ...]) -> None:
    rm.from_arrays({"data": np.zeros(shape, ">f4")}).save("x.npy", verify="full")
    rm.convert("x.npy", "y.npz", verify="full")
    rm.convert("y.npz", "y.npy", verify="full")
    assert np.load("y.npy").shape == shape


def test_columns_of_several_files_are_compared() -> None:
    hdf5_file(chunks=(4, 3))
    np.save("n.npy", np.arange(20))
    done = rm.convert({"n": "n.npy", "h": rm.open("x.h5", fields=["x"])}, "y.npz", verify="full")
    assert done.rows == 20
