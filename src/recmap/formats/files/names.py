"""Which files labels are about: labels name files, and each file has the labels of one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recmap.errors import DataError, Message, Option, SkippedRecordsWarning
from recmap.model.batch import RowArray
from recmap.model.preview import quantity
from recmap.warn import warn

_SKIP = Option("errors", "skip", of_input=True)


def stem(name: str) -> str:
    """Return a name without its extension.

    >>> stem("a.b/c.jpg"), stem("a.b/c")
    ('a.b/c', 'a.b/c')
    """
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}{base.rpartition('.')[0] or base}"


class FileNames:
    """The files of a folder, to be found by their names."""

    def __init__(self, folder: str, names: Sequence[str], *, extensions: bool = True) -> None:
        """Without ``extensions``, labels name files without theirs."""
        self.folder, self.names = folder, names
        self._keys = list(names) if extensions else list(map(stem, names))
        # Few names are those of several files, in different folders.
        self._first: dict[str, int] = {}
        self._others: dict[str, list[int]] = {}
        for number, key in enumerate(self._keys):
            base = key.rpartition("/")[2]
            if self._first.setdefault(base, number) != number:
                self._others.setdefault(base, []).append(number)

    def find(self, text: str) -> list[int]:
        """Return the numbers of the files that a text may name.

        It is the path of a file in the folder, or the end of one, or it ends with one.
        """
        path = text.replace("\\", "/").removeprefix("./")
        base = path.rpartition("/")[2]
        if base not in self._first:
            return []
        every = [self._first[base], *self._others.get(base, ())]
        same = [number for number in every if self._keys[number] == path]
        return same or [
            number
            for number in every
            if path.endswith(f"/{self._keys[number]}") or self._keys[number].endswith(f"/{path}")
        ]


@dataclass(frozen=True)
class LabelRows:
    """The rows of a labels file, as an error calls them, and the files that they name."""

    path: str
    word: str
    texts: Sequence[str]

    def fail(self, row: int, *why: str | Option) -> DataError:
        """Make the error for a row."""
        return DataError(
            Message(f"{self.path}: {self.word} {row:,}: ", *why), file=self.path, record=row
        )


def join_labels(files: FileNames, rows: LabelRows, *, skip: bool) -> tuple[RowArray, RowArray]:
    """Return the files that have labels, in their order, and the rows that they have.

    With ``skip``, leave out files without labels, and labels without a file; else raise.
    """
    row_of = np.full(len(files.names), -1, np.int64)
    gone = []
    for row, text in enumerate(rows.texts):
        found = files.find(text)
        if len(found) > 1:
            both = " and ".join(repr(files.names[file]) for file in found[:2])
            raise rows.fail(row, f"{text!r} may be {both}; write the path of the file")
        if not found:
            gone.append(row)
        elif row_of[found[0]] >= 0:
            raise rows.fail(
                row,
                f"{files.names[found[0]]!r} is already in {rows.word} {row_of[found[0]]:,}; name "
                "each file once",
            )
        else:
            row_of[found[0]] = row
    if gone and not skip:
        raise rows.fail(
            gone[0],
            f"no file {rows.texts[gone[0]]!r} in {files.folder}{_more(len(gone))}; open the folder "
            "that has it, or leave out labels without a file, ",
            _SKIP,
        )
    keep = np.flatnonzero(row_of >= 0)
    bare = np.flatnonzero(row_of < 0)
    if len(bare) and not skip:
        raise DataError(
            Message(
                f"{rows.path}: no labels for {files.names[int(bare[0])]!r}{_more(len(bare))} of "
                f"{files.folder}; add them, or leave out files without labels, ",
                _SKIP,
            ),
            file=rows.path,
        )
    if gone or len(bare):
        warn_of_skipped(rows.path, files.folder, len(bare), len(gone))
    return keep, row_of[keep]


def warn_of_skipped(labels: str, folder: str, bare: int, gone: int) -> None:
    """Warn of files without labels, and of labels without files."""
    warn(
        f"{labels}: left out {quantity(bare, 'file')} of {folder} without labels, and the labels "
        f"of {quantity(gone, 'file')} that are not there",
        SkippedRecordsWarning,
    )


def _more(count: int) -> str:
    return f" (and {count - 1:,} more)" if count > 1 else ""
