"""Members of gzip files, inflated many at once, are what Python's gzip makes of them."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from recmap.local.gzip import Deflater
from recmap.local.inflate import inflate
from recmap.machine.cpus import using_threads


def member(plain: bytes, kind: str, level: int = 1) -> bytes:
    """Make a member that states its size in ``IG`` or ``BC``, or does not."""
    if kind == "none":
        return gzip.compress(plain, level)
    engine = zlib.compressobj(level, wbits=-15)
    body = engine.compress(plain) + engine.flush()
    form, less = ("<I", 0) if kind == "IG" else ("<H", 1)
    other = b"xy\x03\x00abc" if len(plain) % 2 else b""
    extra = len(other) + 4 + struct.calcsize(form)
    size = struct.pack(form, 12 + extra + len(body) + 8 - less)
    head = b"\x1f\x8b\x08\x04" + bytes(5) + b"\xff" + struct.pack("<H", extra) + other
    head += kind.encode() + struct.pack("<H", len(size)) + size
    return head + body + struct.pack("<II", zlib.crc32(plain), len(plain))


def some_bytes(rng: np.random.Generator, size: int) -> bytes:
    return rng.integers(0, int(rng.choice([0, 5, 255])), size, np.uint8, endpoint=True).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_members_of_every_kind_are_what_gzip_makes_of_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = ["IG", "BC", "none"][: 1 + seed % 3]
    parts: list[tuple[bytes, bytes]] = []
    for _ in range(int(rng.integers(1, 120))):
        kind = str(rng.choice(kinds))
        most = 60_000 if kind == "BC" else int(rng.choice([0, 10, 5000, 300_000, 700_000]))
        plain = some_bytes(rng, int(rng.integers(0, most, endpoint=True)))
        parts.append((plain, member(plain, kind, int(rng.integers(0, 10)))))
    stored = b"".join(packed for _, packed in parts)
    Path("x.gz").write_bytes(stored)
    expected = gzip.decompress(stored)
    begins = np.cumsum([0, *(len(packed) for _, packed in parts)]).tolist()
    places = dict(zip(begins, np.cumsum([0, *(len(p) for p, _ in parts)]).tolist(), strict=True))
    with using_threads(1 + seed % 4):
        for chosen in {0, len(parts) // 2, len(parts) - 1}:
            at = made = places[begins[chosen]]
            for block in inflate("x.gz", "gzip", begins[chosen]):
                assert block.failure is None
                assert all(places[begin] == made + place for begin, place in block.begins)
                if block.memory is not None:
                    block.memory[: -len(block.plain) or None] = 7  # the bytes before are free
                assert bytes(block.plain) == expected[made : made + len(block.plain)]
                made += len(block.plain)
            assert expected[at:made] == expected[at:]


@pytest.mark.parametrize("seed", range(12))
def test_damage_is_where_it_is_without_sizes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    plain = [some_bytes(rng, int(rng.integers(100, 40_000))) for _ in range(40)]
    packed = [member(each, "IG") for each in plain]
    bad = int(rng.integers(40))
    damaged = bytearray(packed[bad])
    at = int(rng.integers(28, len(damaged)))  # after the header
    damaged[at] ^= 0xFF
    stored = b"".join([*packed[:bad], damaged, *packed[bad + 1 :]])
    # The same members without their extra field.
    plainly = [member(each, "none") for each in plain]
    less = len(packed[bad]) - len(plainly[bad])
    bare = bytearray(plainly[bad])
    bare[at - less] ^= damaged[at] ^ packed[bad][at]
    Path("sized.gz").write_bytes(stored)
    Path("bare.gz").write_bytes(b"".join([*plainly[:bad], bare, *plainly[bad + 1 :]]))
    found = {}
    for name in ("sized.gz", "bare.gz"):
        blocks = list(inflate(name, "gzip"))
        found[name] = b"".join(bytes(block.plain) for block in blocks)
        assert blocks[-1].failure is not None
        assert blocks[-1].failure.file == name
    assert found["sized.gz"] == found["bare.gz"]
    sound = b"".join(plain[:bad])
    assert found["sized.gz"][: len(sound)] == sound


@pytest.mark.parametrize("claimed", [0, 1, 39_999, 40_001, 1 << 19, 0xFFFFFFFF])
def test_a_member_that_claims_another_plain_size_is_damaged(claimed: int) -> None:
    plain = bytes(40_000)
    packed = member(plain, "IG")
    Path("x.gz").write_bytes(member(plain, "IG") + packed[:-4] + struct.pack("<I", claimed))
    blocks = list(inflate("x.gz", "gzip"))
    assert b"".join(bytes(block.plain) for block in blocks) == 2 * plain
    failure = blocks[-1].failure
    assert failure is not None
    assert "damaged gzip stream" in str(failure)


def test_what_recmap_writes_is_inflated_many_members_at_once() -> None:
    plain = some_bytes(np.random.default_rng(0), 5_000_000)
    deflater = Deflater("gzip")
    stored = b"".join([*deflater.compress(plain), *deflater.finish()])
    Path("x.gz").write_bytes(stored)
    assert gzip.decompress(stored) == plain
    blocks = list(inflate("x.gz", "gzip"))
    assert b"".join(bytes(block.plain) for block in blocks) == plain
    assert len(blocks) < sum(len(block.begins) for block in blocks)
