"""Labels in the text files of YOLO: one for each image, with a line for each box."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from recmap.errors import DataError, Message, Option
from recmap.formats.files.columns import BOXES, CLASSES, labels_source
from recmap.formats.files.names import stem, warn_of_skipped
from recmap.local.local_path import located
from recmap.local.location import Location
from recmap.machine.threads import Threads
from recmap.model.batch import RowArray
from recmap.model.preview import quantity
from recmap.model.ragged import Column, Ragged, offsets_of
from recmap.model.source import Source

# Files with the names of classes, and how far above the labels they may be.
_TABLES, _LIST = ("data.yaml", "data.yml"), "classes.txt"
_ABOVE = 2
_END = ".txt"
_AT_ONCE = 32
# Bytes of a file of labels or names, and how far rounding may carry a box out of its image.
_MOST, _ROUNDING = 16 << 20, 0.01
_SCALAR = r"""(?:'(?P<single>(?:[^']|'')*)'|"(?P<double>[^"\\]*)"|(?P<plain>\w[^,\[\]{}:#"\n]*))"""
_ITEM = re.compile(rf"\s*(?:(?P<number>[0-9]{{1,6}})\s*:\s*)?{_SCALAR}\s*(?:,|\Z)")
_LINE = re.compile(rf"\s*(?:-|(?P<number>[0-9]{{1,6}})\s*:)\s+{_SCALAR}\s*(?:#.*)?\Z")


class _Boxes(NamedTuple):
    """The boxes of one image: classes, and center, width and height one after the other."""

    classes: array[int]
    places: array[float]


def is_beside(name: str, labels: str) -> bool:
    """Return whether a file belongs to the labels, not to the samples that they are about.

    ``labels`` is where they are in the same folder: "" if they lie among the samples.
    """
    base = name.rpartition("/")[2].lower()
    if labels and not name.startswith(f"{labels}/"):
        return base in (*_TABLES, _LIST)
    return bool(labels) or base.endswith(_END) or base in _TABLES


def open_yolo(
    folder: str, names: Sequence[str], labels: Location, *, skip: bool
) -> tuple[RowArray, Source]:
    """Return the numbers of the files, which are all of them, and their boxes.

    A file without labels has no boxes.
    """
    found = {name: stat for name, stat in labels.below() if name.lower().endswith(_END)}
    texts = {stem(name): name for name in found if name.rpartition("/")[2].lower() != _LIST}
    if not texts:
        raise DataError(f"{labels}: no .txt files in this folder, as YOLO labels are", file=labels)
    owners: dict[str, int] = {}
    for number, name in enumerate(names):
        mine = list(dict.fromkeys(key for key in _keys(stem(name)) if key in texts))
        if len(mine) > 1:
            both = " and ".join(texts[key] for key in mine)
            raise DataError(f"{labels}: both {both} may be the labels of {name!r}", file=labels)
        for key in mine:
            if owners.setdefault(key, number) != number:
                other = names[owners[key]]
                raise DataError(
                    f"{labels}: {texts[key]} may be the labels of {other!r} or of {name!r}",
                    file=labels,
                )
    gone = [name for key, name in texts.items() if key not in owners]
    if gone and not skip:
        more = f" (and {len(gone) - 1:,} more)" if len(gone) > 1 else ""
        raise DataError(
            Message(
                f"{labels}: {gone[0]}{more}: no image of this name in {folder}; open the "
                "folder that has it, or leave out labels without a file, ",
                Option("errors", "skip", of_input=True),
            ),
            file=labels,
        )
    if gone:
        warn_of_skipped(labels, folder, 0, len(gone))
    classes, place = class_names(labels)
    read = _BoxReader(classes, place)
    paths = [labels.child_found(texts[key], found[texts[key]]) for key in owners]
    with Threads(_AT_ONCE, "recmap-labels") as threads:
        boxes = list(threads.map(read, paths))
    rows = dict(zip(owners.values(), boxes, strict=True))
    columns = _columns([rows.get(number) for number in range(len(names))])
    return np.arange(len(names)), labels_source("yolo", labels, columns, classes)


def _keys(name: str) -> Iterator[str]:
    """Yield where the labels of an image may be: as it is, or in labels/ for images/.

    >>> list(_keys("images/train/7")), list(_keys("7"))
    (['images/train/7', 'labels/train/7', 'train/7'], ['7'])
    """
    yield name
    parts = name.split("/")
    if "images" in parts[:-1]:
        at = len(parts) - 2 - parts[-2::-1].index("images")
        yield "/".join([*parts[:at], "labels", *parts[at + 1 :]])
        yield "/".join([*parts[:at], *parts[at + 1 :]])


def _columns(rows: Sequence[_Boxes | None]) -> dict[str, Column]:
    offsets = offsets_of([0 if row is None else len(row.classes) for row in rows])
    classes, places = array("q"), array("d")
    for row in rows:
        if row is not None:
            classes += row.classes
            places += row.places
    middle, size = np.split(np.array(places, np.float64).reshape(-1, 4), 2, axis=1)
    corners = np.concatenate([middle - size / 2, middle + size / 2], axis=1)
    return {
        BOXES: Ragged(corners.astype(np.float32), offsets),
        CLASSES: Ragged(np.array(classes, np.int64), offsets),
    }


class _BoxReader:
    """Reads the labels of an image."""

    def __init__(self, names: Sequence[str] | None, place: str) -> None:
        """``names`` are those of the classes, and ``place`` is the file that has them."""
        self._names, self._place = names, place

    def __call__(self, path: Location) -> _Boxes:
        boxes = _Boxes(array("q"), array("d"))
        for number, line in enumerate(_text(path).splitlines(), 1):
            values = line.split()
            if not values:
                continue
            why = self._add(boxes, values)
            if why:
                raise DataError(f"{path}: line {number:,}: {why}", file=path, record=number - 1)
        return boxes

    def _add(self, boxes: _Boxes, values: Sequence[str]) -> str:
        """Keep the values of a line; return what is wrong with them, if anything is."""
        if len(values) != 5:
            return (
                f"{quantity(len(values), 'value')}, not 5: class, center x and y, width, height. "
                "Polygons, keypoints and predictions are not read"
            )
        kind, *rest = values
        if not kind.isascii() or not kind.isdigit() or len(kind) > 9:
            return f"class is {kind[:40]!r}, not a whole number"
        if self._names is not None and int(kind) >= len(self._names):
            return (
                f"class is {int(kind)}, but {self._place} has only "
                f"{quantity(len(self._names), 'name')}; the first one is that of class 0"
            )
        try:
            numbers = list(map(float, rest))
            if "_" in "".join(rest):  # Python takes 0_1 for a number
                raise ValueError
        except ValueError:
            return f"{' '.join(rest)[:80]!r} are not four numbers"
        for what, value in zip(("x", "y", "width", "height"), numbers, strict=True):
            least = -_ROUNDING if what in "xy" else 0
            if not least <= value <= 1 + _ROUNDING:
                return f"{what} is {value:g}, not a fraction of the image, from 0 to 1"
        boxes.classes.append(int(kind))
        boxes.places.extend(numbers)
        return ""


def _text(path: Location) -> str:
    try:
        return path.text(_MOST).removeprefix("\ufeff")
    except ValueError as e:
        why = "not UTF-8" if isinstance(e, UnicodeDecodeError) else str(e)
        raise DataError(f"{path}: not labels of YOLO: {why}", file=path) from e


def class_names(labels: Location) -> tuple[list[str] | None, str]:
    """Return the names of the classes, if a file has them, and which one does.

    It is in the folder of the labels, or above it on disk.
    """
    places = [labels]
    if not labels.remote:
        above = os.path.abspath(labels)
        for _ in range(_ABOVE):
            above = os.path.dirname(above)
            places.append(located(above))
    for place in places:
        for name in (*_TABLES, _LIST):
            file = place.child(name)
            names = _names_in(file) if file.is_file() else None
            if names is not None:
                return names, file
    return None, ""


def _names_in(file: Location) -> list[str] | None:
    """Return the names of classes in a file: a line each, or a list or an object of YAML."""
    lines = _text(file).splitlines()
    if file.name == _LIST:
        return [line.strip() for line in "\n".join(lines).rstrip().splitlines()]
    at = next((i for i, line in enumerate(lines) if line.startswith("names:")), None)
    if at is None:
        return None
    rest = lines[at].removeprefix("names:").strip()
    if rest and rest[0] != "#":
        inside = "\n".join([rest, *lines[at + 1 :]])
        end = inside.find("]" if rest[0] == "[" else "}")
        pattern, parts = _ITEM, [inside[1:end]] if rest[0] in "[{" and end > 0 else []
    else:
        block = takewhile(lambda line: line[:1] in " \t-#" or not line.strip(), lines[at + 1 :])
        parts = [line for line in block if line.strip() and line.strip()[0] != "#"]
        pattern = _LINE
    found: list[tuple[str | None, str]] = []
    for part in parts:
        begin = 0
        while match := pattern.match(part, begin):
            text = match["single"], match["double"], match["plain"]
            name = next(each for each in text if each is not None)
            found.append((match["number"], name.replace("''", "'") if text[0] else name.strip()))
            begin = match.end()
        if part[begin:].strip():
            found = []
            break
    numbers = [None if number is None else int(number) for number, _ in found]
    if not found or numbers not in ([None] * len(found), list(range(len(found)))):
        raise DataError(
            f"{file}: cannot read the names of classes; write one to a line into {_LIST}, in the "
            "same folder, and remove them here",
            file=file,
        )
    return [name for _, name in found]
