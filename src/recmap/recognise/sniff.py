"""Detect what a file is by its content, and describe what recmap does not read.

Everything that opens a file uses this module, so that every call and every command describes
an unknown file in the same words.
"""

from __future__ import annotations

import os
import re

from recmap.errors import Message, Option, UnknownFormatError
from recmap.local.local_path import located
from recmap.machine.mapped import Guard
from recmap.native import _core
from recmap.recognise.file_kinds import HEAD, Content, FileKind, recognise

# A damaged TFRecord file is recognised by a sound record within its first bytes.
_SEARCH = 16 << 20
_TFRECORD_NAME = re.compile(r"\.(tfrecords?|tfr)(?![a-z])", re.IGNORECASE)
# Options that describe a file without a header, as an example for messages.
RAW_EXAMPLE = (Option("dtype", "float32"), ", ", Option("shape", (-1, 10)))


def sniff(path: str) -> FileKind | None:
    """Return what the content of a file looks like; None if it is unknown."""
    if not located(path).is_file() and located(path).exists():
        # Reading a pipe or a device could block forever.
        return FileKind("a pipe or a device, not a file", advice="Write it to a file first")
    with located(path).open() as file:
        return recognise(Content(path, file.pread(HEAD, 0), file.size, file))


def unknown_format(path: str, found: FileKind | None, records: bool = False) -> UnknownFormatError:
    """Make the error for a file that recmap does not read.

    With ``records``, the caller has already searched the file for TFRecord records.
    """
    unknown = f"{path}: neither its name nor its first bytes say what format it is"
    if found is not None:
        advice = (". ", found.advice) if found.advice else ()
        told = Message(f"{path}: not a format recmap reads (looks like {found.what})", *advice)
    elif records:
        told = Message(
            f"{unknown}, and no TFRecord records were found in it; if it is a damaged TFRecord "
            "file, end its name with .tfrecord"
        )
    else:
        told = Message(
            f"{unknown}; for numbers without a header give ",
            *RAW_EXAMPLE,
            f", for example: {size_hint(located(path).stat().size)}; for a damaged TFRecord file, ",
            Option("format", "tfrecord", of_input=True),
        )
    return UnknownFormatError(told, file=path)


def size_hint(size: int) -> str:
    """Describe how many numbers of common types a file of this size would hold."""
    widths = {"float32": 4, "float64": 8, "int16": 2}
    fits = [
        f"{size // width:,} of {name}"
        for name, width in widths.items()
        if size and not size % width
    ]
    return f"its {size:,} bytes would be {', '.join(fits)}" if fits else f"it has {size:,} bytes"


def holds_records(path: str) -> bool:
    """Return whether the first megabytes of a file contain a sound record.

    The file need not begin with one.
    """
    file = located(path).map()
    stop = min(file.size, _SEARCH)
    with Guard(path), file.hold(0, stop):
        return _core.find_record(file.bytes, 0, stop) < stop


def named_tfrecord(path: str) -> bool:
    """Return whether a name says TFRecord: ``x.tfrecord``, ``x.tfrecord-00000-of-00010``."""
    return _TFRECORD_NAME.search(os.path.basename(path)) is not None
