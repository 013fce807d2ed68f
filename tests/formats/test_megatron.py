"""Token files of Megatron-LM."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import recmap as rm

# Their numbers in an index.
DTYPES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


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
