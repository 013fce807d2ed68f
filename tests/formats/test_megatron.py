"""Token files of Megatron-LM."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.buckets import Bucket
from tests.formats.megatron_library import indexed_dataset

# Their numbers in an index.
DTYPES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}
# All that an index can have.
EVERY_DTYPE = [*DTYPES, "float64", "float32"]


ONE = rm.Ragged(np.array([1]), [0, 1])


def write(stem: Path, documents: list[list[list[int]]], dtype: str) -> None:
    """Write documents of sequences of tokens, as Megatron-LM does."""
    sequences = [np.array(tokens, dtype) for document in documents for tokens in document]
    lengths = np.array([len(tokens) for tokens in sequences], "<i4")
    pointers = np.cumsum([0, *(tokens.nbytes for tokens in sequences)], dtype="<i8")[:-1]
    edges = np.cumsum([0, *map(len, documents)], dtype="<i8")
    head = struct.pack("<QBQQ", 1, DTYPES[dtype], len(sequences), len(edges))
    index = b"MMIDIDX\0\0" + head + lengths.tobytes() + pointers.tobytes() + edges.tobytes()
    stem.with_suffix(".idx").write_bytes(index)
    stem.with_suffix(".bin").write_bytes(b"".join(tokens.tobytes() for tokens in sequences))


def documents_of(rng: np.random.Generator) -> list[list[list[int]]]:
    return [
        [rng.integers(0, 100, rng.integers(0, 9)).tolist() for _ in range(rng.integers(1, 4))]
        for _ in range(rng.integers(1, 8))
    ]


@pytest.mark.parametrize("dtype", DTYPES)
def test_sequences_are_rows(tmp_path: Path, dtype: str) -> None:
    rng = np.random.default_rng(0)
    documents = documents_of(rng)
    write(tmp_path / "a", documents, dtype)
    ds = rm.open(tmp_path / "a.idx")
    sequences = [tokens for document in documents for tokens in document]
    assert ds["tokens"][:].tolist() == sequences
    assert ds.schema["tokens"].dtype == dtype
    assert ds["document"].tolist() == [i for i, d in enumerate(documents) for _ in d]
    assert ds.info().format == "megatron"
    flat = [token for tokens in sequences for token in tokens]
    rows = ds.tokens("tokens", 4)[:]["tokens"]
    assert rows.reshape(-1).tolist() == flat[: rows.size]
    rm.convert(tmp_path / "a.idx", tmp_path / "a.tfrecord")
    assert rm.open(tmp_path / "a.tfrecord")["tokens"][:].tolist() == sequences


def test_a_wrong_index_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.idx"
    write(tmp_path / "a", [[[1, 2, 3], [4]], [[5, 6]]], "uint16")
    index = path.read_bytes()
    for at, wrong, why in (
        (0, b"X", "begin with MMIDIDX"),
        (9, b"\2", "version 2"),
        (17, b"\x0b", "dtype 11"),
        (18, b"\xff" * 7, "sequences take"),
        (34, b"\4", "follow each other"),
        (36, b"\xff\xff", "follow each other"),
        (len(index) - 8, b"\2", "end with its sequences"),
    ):
        path.write_bytes(index[:at] + wrong + index[at + len(wrong) :])
        with pytest.raises(rm.DataError, match=why):
            rm.open(path, format="megatron")
    path.write_bytes(index[:-3])
    with pytest.raises(rm.DataError, match="sequences take"):
        rm.open(path)
    path.write_bytes(index)
    path.with_suffix(".bin").write_bytes(bytes(10))
    with pytest.raises(rm.DataError, match="10 bytes, but"):
        rm.open(path)
    path.with_suffix(".bin").unlink()
    with pytest.raises(FileNotFoundError):
        rm.open(path)


def build(stem: Path, documents: list[list[list[int]]], dtype: str, modes: Any = None) -> None:
    """Write documents with the builder of Megatron-LM."""
    import torch

    builder = indexed_dataset().IndexedDatasetBuilder(
        f"{stem}.bin", getattr(np, dtype), multimodal=modes is not None
    )
    rest = iter(() if modes is None else modes)
    for document in documents:
        for tokens in document:
            builder.add_item(torch.tensor(tokens), next(rest, 0))
        builder.end_document()
    builder.finalize(f"{stem}.idx")


def files(stem: Path) -> tuple[bytes, bytes]:
    return Path(f"{stem}.idx").read_bytes(), Path(f"{stem}.bin").read_bytes()


@pytest.mark.parametrize("dtype", EVERY_DTYPE)
@pytest.mark.parametrize("modes", [False, True])
def test_files_are_those_of_megatron_byte_for_byte(tmp_path: Path, dtype: str, modes: bool) -> None:
    rng = np.random.default_rng(3)
    documents = documents_of(rng)
    sequences = [tokens for document in documents for tokens in document]
    kinds = rng.integers(-3, 3, len(sequences), "int8") if modes else None
    build(tmp_path / "theirs", documents, dtype, kinds)
    ds = rm.open(tmp_path / "theirs.idx")
    assert ds["tokens"][:].tolist() == sequences
    assert ds.schema["tokens"] == rm.Field(dtype, (None,))
    assert ds["document"].tolist() == [i for i, d in enumerate(documents) for _ in d]
    if modes:
        assert ds["mode"].tolist() == kinds.tolist()  # type: ignore[union-attr]
    report = ds.save(tmp_path / "ours.idx", verify="full")
    assert files(tmp_path / "ours") == files(tmp_path / "theirs")
    assert report.written == sum(map(len, files(tmp_path / "ours")))
    read = indexed_dataset().IndexedDataset(str(tmp_path / "ours"), multimodal=modes)
    assert [list(read[i][0] if modes else read[i]) for i in range(len(read))] == sequences


def test_each_row_is_a_document_unless_a_column_numbers_them(tmp_path: Path) -> None:
    tokens = rm.Ragged.from_rows([[1, 2], [], [3], [4, 5]], "uint16")
    rm.from_arrays({"tokens": tokens}).save(tmp_path / "a.idx")
    assert rm.open(tmp_path / "a.idx")["document"].tolist() == [0, 1, 2, 3]
    assert indexed_dataset().IndexedDataset(str(tmp_path / "a")).document_indices.tolist() == [
        *range(5)
    ]
    # A document begins where the number changes; numbers count from 0 again.
    ds = rm.from_arrays({"tokens": tokens, "document": np.array([7, 7, 2, 7])})
    ds.save(tmp_path / "b.idx", verify="full")
    assert rm.open(tmp_path / "b.idx")["document"].tolist() == [0, 0, 1, 2]
    ds.save(tmp_path / "shards/c.idx", shards=2, verify="full")
    assert rm.open(tmp_path / "shards")[:]["tokens"].tolist() == tokens.tolist()
    assert [len(rm.open(path)) for path in sorted((tmp_path / "shards").glob("*.idx"))] == [2, 2]
    none = rm.from_arrays({"tokens": tokens[:0]})
    none.save(tmp_path / "none.idx")
    build(tmp_path / "nothing", [], "uint16")
    assert files(tmp_path / "none") == files(tmp_path / "nothing")
    assert len(rm.open(tmp_path / "none.idx")) == 0


@pytest.mark.parametrize(
    ("columns", "path", "why"),
    [
        ({"ids": ONE}, "a.idx", 'rename\\({"ids": "tokens"}'),
        ({"tokens": ONE}, "a.megatron", "end the name with .idx"),
        ({"tokens": np.zeros((1, 3), "int32")}, "a.idx", "is int32.3.; Megatron files hold lists"),
        ({"tokens": rm.Ragged(np.ones(1, "uint32"), [0, 1])}, "a.idx", "is uint32"),
        ({"tokens": ONE, "x": [1]}, "a.idx", "'x' does not fit"),
        ({"tokens": ONE, "mode": [1]}, "a.idx", '"mode": "int8"'),
    ],
)
def test_what_does_not_fit_is_refused(columns: Any, path: str, why: str) -> None:
    with pytest.raises((rm.ColumnError, rm.OptionError), match=why):
        rm.from_arrays(columns).save(path, format="megatron")
    assert not os.listdir()


def test_tokens_of_another_file_are_not_replaced() -> None:
    Path("train.bin").write_bytes(b"nanoGPT")
    ds = rm.from_arrays({"tokens": rm.Ragged(np.array([1, 2]), [0, 2])})
    with pytest.raises(rm.OutputExistsError, match=r"train\.bin already exists"):
        ds.save("train.idx")
    assert os.listdir() == ["train.bin"]
    ds.save("train.idx", overwrite=True)
    assert rm.open("train.idx")[:]["tokens"].tolist() == [[1, 2]]
    with pytest.raises(rm.OptionError, match="overwritten while it is read"):
        rm.open("train.idx").save("train.idx", overwrite=True)


def test_a_conversion_that_was_killed_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    ds = rm.from_arrays({"tokens": rm.Ragged(np.arange(20), np.arange(0, 21, 2))})
    ds.save("whole.idx", shards=2)
    with monkeypatch.context() as patch:
        patch.setattr("recmap.local.output.put_in_place", _fail)
        with pytest.raises(rm.OutputError):
            ds.save("out/x.idx", shards=2)
    assert not [name for name in os.listdir("out") if name.endswith((".tmp", ".bin", ".idx"))]
    ds.save("out/x.idx", shards=2)
    for number in (0, 1):
        shard = f"-0000{number}-of-00002"
        assert files(Path(f"out/x{shard}")) == files(Path(f"whole{shard}"))
    # Other shards take the place of these, with their tokens.
    ds.save("out/x.idx", shards=1, overwrite=True)
    assert sorted(os.listdir("out")) == ["x.bin", "x.idx"]


def _fail(*_: Any) -> None:
    raise OSError(5, "Input/output error")


def test_files_are_read_from_and_written_to_a_store(bucket: Bucket) -> None:
    lists = [[1, 2, 3], [], [4]]
    ds = rm.from_arrays({"tokens": rm.Ragged.from_rows(lists, "int32")})
    for rows in (ds, ds.take(2)):  # the second replaces the first
        rows.save(f"{bucket.url}/x/a.idx", storage=bucket.storage, overwrite=True)
        for path in ("x/a.idx", "x/"):
            found = rm.open(f"{bucket.url}/{path}", storage=bucket.storage)
            assert found[:]["tokens"].tolist() == lists[: len(rows)]
            assert found[1]["tokens"].tolist() == []
    assert sorted(bucket.keys()) == ["x/a.bin", "x/a.idx"]


def test_a_billion_tokens_open_at_once_and_are_not_copied(tmp_path: Path) -> None:
    count, each = 1_000, 1_000_000
    lengths = np.full(count, each, "<i4")
    pointers = np.arange(count, dtype="<i8") * each * 2
    index = lengths.tobytes() + pointers.tobytes() + np.arange(count + 1, dtype="<i8").tobytes()
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, count, count + 1)
    (tmp_path / "a.idx").write_bytes(head + index)
    (tmp_path / "a.bin").touch()
    os.truncate(tmp_path / "a.bin", 2 * count * each)
    began = time.process_time()
    ds = rm.open(tmp_path / "a.idx")
    rows = ds.tokens("tokens", 2048).shuffle(seed=1)
    assert len(rows) == 488_281
    assert rows[[0, -1]]["tokens"].sum() == 0
    every = ds[:]["tokens"].flat
    assert time.process_time() - began < 1
    assert len(every) == count * each
    assert not every.flags.owndata
    assert "tokens" in ds.info().mapped
