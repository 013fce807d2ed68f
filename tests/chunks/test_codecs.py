"""Codecs of chunks: what other libraries encode is decoded, and damage is an error."""

from __future__ import annotations

import gzip
import math
import os
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import numpy.typing as npt
import pytest

from recmap.chunks import codecs
from recmap.chunks.codecs import ChunkError, Codec, CodecChain
from recmap.chunks.stored import Grid, box_of
from recmap.native import _core

DTYPE = np.dtype("<i4")
RNG = np.random.default_rng(0)


def hdf5_lz4(data: bytes, block: int = 100) -> bytes:
    """Encode blocks as the LZ4 filter of HDF5 does."""
    packed = len(data).to_bytes(8, "big") + block.to_bytes(4, "big")
    for at in range(0, len(data), block):
        part = data[at : at + block]
        shrunk = numcodecs.LZ4().encode(part)[4:]
        stored = shrunk if len(shrunk) < len(part) else part
        packed += len(stored).to_bytes(4, "big") + stored
    return packed


def bitshuffled(
    data: bytes, size: int = 4, block: int = 40, pack: Callable[[bytes], bytes] | None = None
) -> bytes:
    """Encode blocks as bitshuffle does, one after another; the filter of HDF5 compresses each."""
    done = b"" if pack is None else len(data).to_bytes(8, "big") + (block * size).to_bytes(4, "big")
    whole = len(data) // size // 8 * 8 * size
    for at in range(0, whole, block * size):
        items = np.frombuffer(data[at : min(at + block * size, whole)], np.uint8).reshape(-1, size)
        bits = np.unpackbits(items, axis=1, bitorder="little").T
        planes = np.packbits(bits, axis=1, bitorder="little").tobytes()
        stored = planes if pack is None else pack(planes)
        done += stored if pack is None else len(stored).to_bytes(4, "big") + stored
    return done + data[whole:]


def lz4_block(data: bytes) -> bytes:
    return bytes(numcodecs.LZ4().encode(data)[4:])


def bits(*options: Any) -> Codec:
    codec = codecs.bitshuffle(*options)
    assert codec is not None
    return codec


def shuffled(data: bytes) -> bytes:
    whole = len(data) // 4 * 4
    return np.frombuffer(data[:whole], np.uint8).reshape(-1, 4).T.tobytes() + data[whole:]


def zstd(data: bytes) -> bytes:
    return bytes(numcodecs.Zstd().encode(data))


def packed(name: str) -> Codec:
    codec = codecs.packed(name)
    assert codec is not None
    return codec


CASES: dict[str, tuple[Codec, Callable[[bytes], bytes]]] = {
    "zlib": (codecs.ZLIB, zlib.compress),
    "gzip": (codecs.GZIP, gzip.compress),
    "two members": (codecs.GZIP, lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
    "zstd": (packed("zstd"), zstd),
    "lz4": (packed("lz4"), numcodecs.LZ4().encode),
    "hdf5_lz4": (packed("hdf5_lz4"), hdf5_lz4),
    "blosc": (packed("blosc"), numcodecs.Blosc("zstd", 5, numcodecs.Blosc.BITSHUFFLE).encode),
    "two frames": (packed("zstd"), lambda data: zstd(data[:400]) + zstd(data[400:])),
    "shuffle": (codecs.shuffle(4), shuffled),
    "bitshuffle": (bits(4, 40), bitshuffled),
    "bitshuffle of threes": (bits(3, 8), lambda data: bitshuffled(data, 3, 8)),
    "bitshuffle+lz4": (bits(4, 0, "lz4"), lambda data: bitshuffled(data, pack=lz4_block)),
    "bitshuffle+zstd": (bits(4, 0, "zstd"), lambda data: bitshuffled(data, pack=zstd)),
    "fletcher32": (codecs.FLETCHER32, lambda data: bytes(numcodecs.Fletcher32().encode(data))),
    "crc32c": (codecs.CRC32C, lambda data: bytes(numcodecs.CRC32C().encode(data))),
    "delta": (
        codecs.delta(DTYPE),
        lambda data: numcodecs.Delta(DTYPE).encode(np.frombuffer(data, DTYPE)).tobytes(),
    ),
}
BLOCKS = ["hdf5_lz4", "bitshuffle+lz4", "bitshuffle+zstd"]
CHECKED = {"zlib", "gzip", "two members", "fletcher32", "crc32c"}
every_codec = pytest.mark.parametrize("name", CASES)


def contents() -> bytes:
    return np.repeat(RNG.integers(0, 9, 50), 3).astype(DTYPE).tobytes()


def as_array(data: bytes | bytearray) -> npt.NDArray[np.uint8]:
    return np.frombuffer(bytes(data), np.uint8)


@every_codec
def test_what_others_encode_is_decoded_into_any_memory(name: str) -> None:
    codec, encode = CASES[name]
    data = contents()
    chain = CodecChain([codec], len(data))
    assert chain.undo(as_array(encode(data))).tobytes() == data
    place: Any = np.zeros(len(data), np.uint8)
    decoded = chain.undo(as_array(encode(data)), 0, place)
    assert decoded.tobytes() == data
    assert chain.undo(as_array(data), 1).tobytes() == data  # not applied to this chunk


@every_codec
def test_damage_is_an_error_or_harmless(name: str) -> None:
    codec, encode = CASES[name]
    data = contents()
    chain, stored = CodecChain([codec], len(data)), bytes(encode(data))
    rng = random.Random(name)
    for _ in range(200):
        damaged = bytearray(stored)
        if rng.random() < 0.3:
            del damaged[rng.randrange(len(damaged)) :]
        else:
            for _ in range(rng.choice([1, 1, 5])):
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        try:
            decoded = chain.undo(as_array(damaged))
        except ChunkError:
            continue
        assert len(decoded) == len(data)
        assert name not in CHECKED or decoded.tobytes() == data


@every_codec
def test_the_native_core_decodes_the_same_and_refuses_what_is_refused(
    name: str, tmp_path: Path
) -> None:
    codec, encode = CASES[name]
    data = contents()
    chain, stored = CodecChain([codec], len(data)), bytes(encode(data))
    assert (chain.native is None) == (name == "delta")
    rng, refused = random.Random(name), 0
    for _ in range(200 if chain.native else 0):
        damaged = bytearray(stored)
        for _ in range(rng.choice([0, 1, 5])):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        del damaged[rng.choice([len(damaged), rng.randrange(len(damaged))]) :]
        path, out = tmp_path / "chunk", np.zeros(len(data), np.uint8)
        path.write_bytes(b"###" + damaged)
        with path.open("rb") as file:
            memory: tuple[Any, int, int] = as_array(damaged), 0, 0
            job = _core.ChunkJob(*rng.choice([memory, (file.fileno(), 3, len(damaged))]), 0, out)
            failed = _core.decode_chunks(chain.native or [], [job], 1) == [0]
        refused += failed
        if not failed:
            assert out.tobytes() == chain.undo(as_array(damaged)).tobytes()
        elif bytes(damaged) == stored:  # left to Python
            assert name in ("two members", "two frames")
    assert refused or name in ("delta", "shuffle", "bitshuffle", "bitshuffle of threes")


@pytest.mark.parametrize("chain", ["", "shuffle", "shuffle zlib", "fletcher32 zlib", "zlib crc32c"])
def test_chunks_are_put_in_their_place_together(chain: str) -> None:
    """Random boxes of chunks, beside NumPy; some codecs were not applied to some chunks."""
    encoders = {name: CASES[name] for name in chain.split()}
    rng = np.random.default_rng(len(chain))
    for _ in range(30):
        chunk = tuple(rng.integers(1, 6, 3).tolist())
        shape = tuple(step * 3 - int(rng.integers(step)) for step in chunk)
        grid = Grid(shape, chunk)
        codecs = CodecChain([codec for codec, _ in encoders.values()], math.prod(chunk) * 4)
        array, right = np.zeros((2, *shape), DTYPE)
        jobs, held = [], []
        for number in rng.permutation(math.prod(grid.counts)).tolist():
            corner, values = grid.corner(number), rng.integers(0, 99, chunk).astype(DTYPE)
            stored, mask = values.tobytes(), int(rng.integers(1 << len(encoders)))
            for i, (_, encode) in enumerate(encoders.values()):
                stored = stored if mask >> i & 1 else bytes(encode(stored))
            box = box_of(grid.tile(number), grid, 4)
            rows = math.prod(chunk[1:]) * 4, math.prod(shape[1:]) * 4
            part = _core.ChunkPart(box.axes, box.run, box.at, *rows, codecs.nbytes)
            extent = grid.extent(corner)
            first = int(rng.integers(extent[0]))
            where: Any = first, corner[0] + first, extent[0] - first
            source, target = (
                slice(first, extent[0]),
                slice(corner[0] + first, corner[0] + extent[0]),
            )
            if rng.random() < 0.5:
                places = rng.permutation(extent[0]) + corner[0]
                where = rng.integers(0, extent[0], extent[0]), places
                source, target = where
            inner = tuple(slice(at, at + n) for at, n in zip(corner[1:], extent[1:], strict=True))
            right[(target, *inner)] = values[(source, *(slice(n) for n in extent[1:]))]
            held.append(as_array(stored))
            flat = array.reshape(-1).view(np.uint8)
            jobs.append(_core.ChunkJob(held[-1], 0, 0, mask, flat, part, where))
        assert _core.decode_chunks(codecs.native or [], jobs, 3) == []
        assert np.array_equal(array, right)


def test_a_chunk_whose_place_or_rows_do_not_exist_is_refused() -> None:
    stored, out = as_array(bytes(24)), np.ones(24, np.uint8)
    part = _core.ChunkPart([(2, 2, 4)], 2, 2, 6, 8, 24)
    for rows in ((0, 0, 4), (4, 0, 1), (0, 3, 1), (1 << 63, 0, 1), (0, 0, 1 << 63)):
        assert _core.decode_chunks([], [_core.ChunkJob(stored, 0, 0, 0, out, part, rows)], 1) == [0]
    for numbers in ([4], [-1], [1 << 40]):
        at, other = np.array(numbers), np.zeros(1, np.int64)
        for some in ((at, other), (other, at), (at, other[:0])):
            job = _core.ChunkJob(stored, 0, 0, 0, out, part, some)
            assert _core.decode_chunks([], [job], 1) == [0]
    for wrong in (
        _core.ChunkPart([(2, 2, 4)], 2, 3, 6, 8, 24),
        _core.ChunkPart([(3, 3, 2)], 2, 0, 6, 8, 24),
        _core.ChunkPart([(2, 1 << 63, 1 << 63)], 2, 0, 6, 8, 24),
        _core.ChunkPart([], 1, 9, 6, 8, 24),
        _core.ChunkPart([], 1, 0, 6, 0, 24),
        _core.ChunkPart([], 1, 0, 6, 8, 25),
    ):
        job = _core.ChunkJob(stored, 0, 0, 0, out, wrong, (0, 0, 1))
        assert _core.decode_chunks([], [job], 1) == [0]
    assert (out == 1).all()
    for path in (b"missing", b".", os.fsencode(os.devnull)):
        assert _core.decode_chunks([], [_core.ChunkJob(path, 0, 0, 0, out)], 1) == [0]


@pytest.mark.parametrize("name", ["zlib", "gzip", "zstd", "two frames", "lz4", *BLOCKS, "blosc"])
@pytest.mark.parametrize("size", [1, 599, 601, 1 << 40])
def test_a_chunk_of_another_size_is_refused_and_nothing_is_allocated(name: str, size: int) -> None:
    codec, encode = CASES[name]
    if size == 1 << 40 and name not in ("lz4", *BLOCKS, "blosc"):
        size = 1 << 20
    with pytest.raises(ChunkError):
        CodecChain([codec], size).undo(as_array(encode(contents())))


def test_codecs_are_undone_in_reverse() -> None:
    data = contents()
    planes, zipped, summed = codecs.shuffle(4), codecs.ZLIB, codecs.FLETCHER32
    encode = {codec.name: CASES[name][1] for name, (codec, _) in CASES.items()}
    encode |= {"gzip": zlib.compress, "zstd": zstd}
    for chain in (
        [planes, zipped],
        [zipped, planes],
        [planes, summed, zipped],
        [summed, zipped, summed],
        [codecs.delta(DTYPE), planes, packed("zstd"), codecs.CRC32C],
    ):
        stored = data
        for codec in chain:
            stored = bytes(encode[codec.name](stored))
        assert CodecChain(chain, len(data)).undo(as_array(stored)).tobytes() == data
    assert not CodecChain([zipped, packed("zstd")], len(data)).known  # the size between is unknown


def test_bitshuffle_is_that_of_blosc() -> None:
    # A Blosc frame of one block: a header, the offset of the block, and its quarters by LZ4, each
    # after its size.
    data = np.arange(2048, dtype="<i4")
    blosc = numcodecs.Blosc("lz4", 5, numcodecs.Blosc.BITSHUFFLE, blocksize=data.nbytes)
    frame, planes = bytes(blosc.encode(data)), b""
    at = int.from_bytes(frame[16:20], "little")
    for _ in range(4):
        size = int.from_bytes(frame[at : at + 4], "little")
        stored = len(data).to_bytes(4, "little") + frame[at + 4 : at + 4 + size]
        planes += (
            frame[at + 4 : at + 4 + size] if size == len(data) else numcodecs.LZ4().decode(stored)
        )
        at += 4 + size
    chain = CodecChain([bits(4, len(data))], data.nbytes)
    assert chain.undo(as_array(planes)).tobytes() == data.tobytes()


def test_bitshuffle_with_parameters_of_no_sense_is_not_decoded() -> None:
    for options in ((0,), (4, 7), (4, 0, "?")):
        assert codecs.bitshuffle(*options) is None
