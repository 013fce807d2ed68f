"""Damaged TFRecord files: a read gives the rows that are there or an error, and repair writes a
sound file.
"""

from __future__ import annotations

import gzip
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from isal import igzip, isal_zlib

import recmap as rm
from hostile import records
from hostile.case import Case, NoReferenceError
from hostile.file_damage import damage
from hostile.table import assert_same
from tests import wire

__all__ = ["case"]


def case(case: Case) -> None:
    count = case.pick([1, 5, 50, 300])
    content = [_record(i) for i in range(count)]
    compression = case.pick([None, None, "gzip", "zlib", "recmap gzip"])
    path = case.path("x.tfrecord")
    if compression == "recmap gzip":
        with rm.TFRecordWriter(path, compression="gzip", index=False) as writer:
            writer.write({"n": np.arange(count), "t": [b"t" * (i % 50) for i in range(count)]})
    else:
        whole = records.compress(case, records.frames(content), compression)
        Path(path).write_bytes(whole)
    if case.chance(0.3):
        rm.index(path)
    case.note(f"{count} records, {compression}")
    damage(case, path)
    wanted = _sound(Path(path).read_bytes())
    case.note(f"the reference {'reads' if wanted is not None else 'refuses'} it")
    _in_order(case, path, wanted, compression)
    _skipping(case, path, count)
    if case.chance(0.5):
        _repaired(case, path)


def _record(i: int) -> bytes:
    return wire.example(n=wire.int64_list(i), t=wire.bytes_list(b"t" * (i % 50)))


def _sound(content: bytes) -> list[bytes] | None:
    """Return the records of a sound file; None if it is damaged."""
    try:
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        elif _is_zlib(content):
            stream = zlib.decompressobj()
            content = stream.decompress(content) + stream.flush()
            if not stream.eof or stream.unused_data:
                return None
        return records.split(content)
    except (OSError, EOFError, zlib.error, NoReferenceError):
        return None


def _by_isal(content: bytes) -> list[bytes] | None:
    """Return the records of a gzip file that only zlib refuses: for a wrong code that is not used.

    What comes out has the right CRC.
    """
    try:
        return records.split(bytes(igzip.decompress(content)))  # type: ignore[no-untyped-call]
    except (OSError, EOFError, isal_zlib.error, NoReferenceError):  # type: ignore[misc]
        return None


def _is_zlib(content: bytes) -> bool:
    # A plain file begins with a length and its CRC.
    try:
        records.split(content[: 16 + int.from_bytes(content[:8], "little")])
    except (NoReferenceError, OverflowError):
        return len(content) > 1 and content[0] & 15 == 8 and int.from_bytes(content[:2]) % 31 == 0
    return False


def _in_order(case: Case, path: str, wanted: list[bytes] | None, compression: str | None) -> None:
    """Check that rows before an error are right, and that there is an error."""
    found: list[int] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ds = rm.open(path)
            if "n" not in ds.schema:
                if wanted and not _is_unexpected(wanted):  # an empty file has no columns
                    raise AssertionError(f"there is no column 'n' in {ds.schema}")
                return
            found.extend(int(row["n"]) for row in ds)
    except rm.RecmapError as e:
        case.note(f"refused after {len(found)} rows: {e}")
        case.outcome = "refused"
        if wanted is not None and len(wanted) and not _is_unexpected(wanted):
            raise AssertionError(f"a sound file is refused: {e}") from e
        _check_prefix(path, found, compression)
        return
    if wanted is None:
        wanted = _by_isal(Path(path).read_bytes())
    if wanted is None:
        raise AssertionError("a damaged file was read to its end")
    assert_same(found, [_number(data) for data in wanted], "in order")


def _is_unexpected(wanted: list[bytes]) -> bool:
    """Tell whether the records are sound, but not those that were written."""
    try:
        return any(set(records.parse(data)) != {"n", "t"} for data in wanted)
    except NoReferenceError:
        return True


def _number(data: bytes) -> int:
    return int(records.parse(data)["n"][1][0])


def _check_prefix(path: str, found: list[int], compression: str | None) -> None:
    """Check that all sound records before the first damaged one were read."""
    if compression is not None:
        return
    content, sound = Path(path).read_bytes(), 0
    at = 0
    while at + 16 <= len(content):
        end = at + 16 + int.from_bytes(content[at : at + 8], "little")
        try:
            (data,) = records.split(content[at:end])
            if set(records.parse(data)) != {"n", "t"}:
                return  # the damage made another sound record
        except (NoReferenceError, ValueError, OverflowError):
            break
        at, sound = end, sound + 1
    if found and len(found) != sound:
        raise AssertionError(f"{len(found)} rows came before the error, {sound} are sound")


def _skipping(case: Case, path: str, count: int) -> None:
    """Check that ``errors="skip"`` keeps only records that were written, once and in order."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = list(rm.open(path, errors="skip"))
    except rm.RecmapError as e:
        case.note(f"skip: {e}")
        return
    numbers = [int(row["n"]) for row in rows if "n" in row]
    if any(not 0 <= n < count for n in numbers):
        raise AssertionError(f"skip invented rows: {numbers}")


def _repaired(case: Case, path: str) -> None:
    """Check that ``repair`` writes a sound file of the records that skipping reads."""
    saved = case.path("saved.tfrecord")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rm.repair(path, saved)
    except rm.RecmapError as e:
        case.note(f"repair: {e}")
        return
    records.split(Path(saved).read_bytes())
    kept: Any = list(rm.tfrecord.records(saved))
    case.note(f"repair kept {len(kept)}")
