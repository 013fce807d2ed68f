"""What happens to files: bits that flip, ends that are cut, stretches that are lost."""

from __future__ import annotations

import os

from hostile.case import Case

__all__ = ["damage"]


def damage(case: Case, path: str) -> None:
    """Damages a file in place, in one way or several."""
    with open(path, "rb") as file:
        content = bytearray(file.read())
    for _ in range(case.pick([1, 1, 1, 2, 4])):
        _hurt(case, content)
    # A file is replaced, not written over: others may have mapped it.
    with open(path + ".hurt", "wb") as file:
        file.write(content)
    os.replace(path + ".hurt", path)


def _hurt(case: Case, content: bytearray) -> None:
    kind = case.pick(["flip", "flip", "flip", "byte", "cut", "zero", "insert", "remove", "append"])
    if not content:
        kind = "append"
    at = case.between(0, max(0, len(content) - 1))
    size = case.pick([1, 2, 8, 64, 1000])
    case.say(f"damage: {kind} {size} at {at} of {len(content)}")
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
