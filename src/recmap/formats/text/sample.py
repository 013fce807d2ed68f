"""The first rows of text files, which tell the types of their columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from recmap.errors import DataError
from recmap.formats.text.faults import misplaced
from recmap.formats.text.text_file import Bytes, open_text
from recmap.machine.mapped import guarded
from recmap.native import _core
from recmap.store.paths import for_each_file

# Bytes of all files together, the least of each, and how many files are looked at.
_SIZE, _LEAST, _FILES = 8 << 20, 1 << 18, 64


class TextSample(NamedTuple):
    """Whole rows from the beginning of a file, and whether they are all of it."""

    path: str
    rows: Bytes
    whole: bool


def samples(
    files: Sequence[str], syntax: Callable[[TextSample], _core.RowSyntax]
) -> list[TextSample]:
    """Return the first rows of some of the files, the first one among them."""
    step = -(-len(files) // _FILES)
    chosen = [*files[::step]]
    size = max(_LEAST, _SIZE // len(chosen))
    return for_each_file(lambda file: _sample(file, size, syntax), chosen)


@guarded
def _sample(path: str, size: int, syntax: Callable[[TextSample], _core.RowSyntax]) -> TextSample:
    text = open_text(path)
    parts, at, ended = [], text.begin, False
    while at - text.begin < size and not ended:
        window = text.window(at)
        parts.append(window.bytes[: size - (at - text.begin)])
        ended = window.after < 0 and len(parts[-1]) == len(window.bytes)
        at += len(parts[-1])
    found = np.concatenate([np.empty(0, np.uint8), *parts])
    if found[:2].tobytes() in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{path}: UTF-16: write it again as UTF-8", file=path, byte=0)
    used = syntax(TextSample(path, found, ended))
    after = -1 if ended else ord("\n")
    rows = _core.scan_text_rows(found, after, _core.RowState(), used, 1, 1)
    if rows.fault != _core.RowFault.none and rows.rows < 2:
        raise misplaced(text, rows.fault, 0, text.begin + rows.fault_offset)
    if ended:
        return TextSample(path, found, True)
    # What comes after the last row that begins may belong to it.
    last = int(rows.anchor_offsets[-1]) if rows.rows > 1 else 0
    if not last:
        raise DataError(
            f"{path}: the first row does not end within {len(found):,} bytes", file=path, byte=0
        )
    return TextSample(path, found[:last], False)
