"""Damages files: flips bits, cuts the end off, removes or overwrites spans."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable

import recmap as rm
from hostile.case import READING_REFERENCE, Case
from hostile.table import Table, assert_same, plain

__all__ = ["check_damaged", "damage"]


def check_damaged(
    case: Case, path: str, read: Callable[[], Table], *, checksums: bool = False
) -> None:
    """Damage a file, and check what recmap reads from it.

    It must be what ``read`` returns now or returned before the damage, or an error. With
    ``checksums``, recmap must raise wherever ``read`` does.
    """
    before = read()
    damage(case, path)
    case.note(READING_REFERENCE)  # if the process dies now, recmap is not to blame
    wanted: Table | None = None
    try:
        wanted = read()
    except Exception as e:
        case.note(f"the reference refuses it: {e!r}")
    case.note("reading with recmap")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rm.LeftOutWarning)
            ds = rm.open(path)
        batches = list(ds.batches(case.between(1, 100)))
    except rm.RecmapError as e:
        case.note(f"refused: {e}")
        case.outcome = "refused"
        return
    if wanted is None and checksums:
        raise AssertionError("the reference refuses the file, but a full pass of recmap does not")
    for name, column in (wanted or {}).items():
        if name in ds.schema:
            found = [row for batch in batches for row in batch[name]]
            if list(map(plain, found)) != list(map(plain, before.get(name, ()))):
                assert_same(found, column, f"damaged {name!r}")


def damage(case: Case, path: str) -> None:
    """Damage a file in one or several places."""
    with open(path, "rb") as file:
        content = bytearray(file.read())
    for _ in range(case.pick([1, 1, 1, 2, 4])):
        _damage_once(case, content)
    # Replace the file instead of overwriting it: it may be mapped.
    with open(path + ".damaged", "wb") as file:
        file.write(content)
    os.replace(path + ".damaged", path)


def _damage_once(case: Case, content: bytearray) -> None:
    kind = case.pick(["flip", "flip", "flip", "byte", "cut", "zero", "insert", "remove", "append"])
    if not content:
        kind = "append"
    at = case.between(0, max(0, len(content) - 1))
    size = case.pick([1, 2, 8, 64, 1000])
    case.note(f"damage: {kind} {size} at {at} of {len(content)}")
    if kind == "flip":
        content[at] ^= 1 << case.between(0, 7)
    elif kind == "byte":
        content[at] = case.between(0, 255)
    elif kind == "cut":
        del content[at:]
    elif kind == "zero":
        content[at : at + size] = bytes(len(content[at : at + size]))
    elif kind == "insert":
        content[at:at] = case.rng.bytes(size)
    elif kind == "remove":
        del content[at : at + size]
    else:
        content += case.rng.bytes(size)
