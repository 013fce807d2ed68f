"""Labels in the JSON of COCO: images, their annotations, and the categories of these.

The file is read once, item by item. What is kept of it are arrays: some 60 bytes for each box.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.formats.files.columns import BOXES, CLASSES, labels_source
from recmap.formats.files.json_stream import JsonStream
from recmap.formats.files.names import FileNames, LabelRows, join_labels
from recmap.local.location import Location
from recmap.model.batch import RowArray
from recmap.model.ragged import Column, Ragged, offsets_of
from recmap.model.source import Source
from recmap.recognise.sniff import sniff

# What is read of images besides their ids and names.
_SIZES = ("width", "height")
# The numbers of a box, and of a point of a body.
_BOX, _POINT = 4, 3
# Larger numbers do not fit into float32, and larger integers not into int64.
_MOST, _MOST_WHOLE = 1e37, 1 << 63
_HEAD = 1 << 12
_SHOWN = 100
_EXPECTED = (
    "labels in JSON are those of COCO: an object with 'images', 'annotations' and 'categories'; a "
    "table may be .csv, .jsonl or .parquet"
)


def is_coco(labels: Location) -> bool:
    """Return whether a file is one JSON object, as that of COCO is."""
    with labels.open() as file:
        head = file.pread(_HEAD, 0).removeprefix(b"\xef\xbb\xbf").lstrip()
    found = sniff(labels)
    if head[:1] not in (b"{", b"[") or (found is not None and found.format == "jsonl"):
        return False
    if head[:1] == b"[":
        raise DataError(f"{labels}: a list, as predictions are; {_EXPECTED}", file=labels)
    return True


def open_coco(files: FileNames, labels: Location, *, skip: bool) -> tuple[RowArray, Source]:
    """Return the numbers of the files that have labels, and their annotations."""
    with labels.open(in_order=True) as file:
        found = _Coco(labels, JsonStream(labels, file))
        found.read()
    keep, rows = join_labels(files, LabelRows(labels, "image", found.file_names), skip=skip)
    columns = {name: column[rows] for name, column in found.columns().items()}
    return keep, labels_source("coco", labels, columns, found.names)


def _is_text(value: Any) -> bool:
    """Return whether a value is text that UTF-8 can hold."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _is_whole(value: Any) -> bool:
    return type(value) is int and -_MOST_WHOLE <= value < _MOST_WHOLE


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -_MOST < value < _MOST


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _is_id(value: Any) -> bool:
    return _is_whole(value) or _is_text(value)


class _Kind(NamedTuple):
    """What an annotation may have: what that must be, and the type of the array that keeps it."""

    wanted: str
    fits: Callable[[Any], bool]
    code: str


_KINDS = {
    "bbox": _Kind(
        "x, y, width and height",
        lambda value: _are_numbers(value) and len(value) == _BOX and min(value[2:]) >= 0,
        "d",
    ),
    "category_id": _Kind("a whole number", _is_whole, "q"),
    "area": _Kind("a number", _is_number, "d"),
    "iscrowd": _Kind("0 or 1", lambda value: type(value) in (int, bool) and value in (0, 1), "b"),
    "keypoints": _Kind(
        "x, y and visibility of as many points as the first annotation has", _are_numbers, "d"
    ),
    "caption": _Kind("text", _is_text, ""),
}
_DTYPES = {"d": np.float64, "q": np.int64, "b": np.int8}


class _Coco:
    """What is kept of a JSON file of COCO while it is read."""

    def __init__(self, path: str, stream: JsonStream) -> None:
        self._path, self._stream = path, stream
        #: The files of the images, in the order of the JSON.
        self.file_names: list[str] = []
        # The widths and the heights of the images, if the first one has them.
        self._sizes: dict[str, array[int]] = {}
        #: The names of the categories, in the order of their ids.
        self.names: list[str] | None = None
        self._categories: npt.NDArray[np.int64] = np.empty(0, np.int64)
        # The row of each image by its id, and a number for each id that annotations mention.
        self._rows: dict[Any, int] = {}
        self._numbers: dict[Any, int] = {}
        # Of each annotation: the number of its image, and its values.
        self._images = array("q")
        self._values: dict[str, Any] = {}
        self._points = 0

    def read(self) -> None:
        """Read the whole file, and check what annotations refer to."""
        readers = {
            "images": self._read_images,
            "annotations": self._read_annotations,
            "categories": self._read_categories,
        }
        missing = {"images", "annotations"}
        for name in self._stream.members():
            readers.get(name, self._stream.skip)()
            missing.discard(name)
        if missing:
            raise DataError(
                f"{self._path}: it has no {' and no '.join(sorted(missing))}; {_EXPECTED}",
                file=self._path,
            )
        if not self._images and self.names:
            self._begin(dict.fromkeys(("bbox", "category_id", "area")))
        self._owners = self._found_images()
        if "category_id" in self._values:
            self._check_categories(_array(self._values["category_id"]))

    def _fail(self, what: str, number: int, item: Any, name: str, why: str) -> DataError:
        """Make the error for an image, a category or an annotation that has a wrong value."""
        has: Mapping[str, Any] = item if isinstance(item, dict) else {}
        known = f" (id {has['id']!r:.{_SHOWN}})" if "id" in has and name != "id" else ""
        shown = f"is {has[name]!r:.{_SHOWN}}" if name in has else "is missing"
        return DataError(
            f"{self._path}: {what} {number:,}{known}: {name!r} {shown}, {why}",
            file=self._path,
            record=number,
            field=name,
        )

    def _read_images(self) -> None:
        for number, image in enumerate(self._stream.items()):
            name, known = _member(image, "file_name"), _member(image, "id")
            if not isinstance(name, str) or not name:
                raise self._fail("image", number, image, "file_name", "not the name of a file")
            if not _is_id(known):
                raise self._fail("image", number, image, "id", "not a whole number or text")
            if self._rows.setdefault(known, number) != number:
                why = f"which is that of image {self._rows[known]:,}"
                raise self._fail("image", number, image, "id", why)
            self.file_names.append(name)
            if not number:
                self._sizes = {name: array("q") for name in _SIZES if name in image}
            for name, values in self._sizes.items():
                if not _is_whole(size := image.get(name)) or size < 0:
                    raise self._fail("image", number, image, name, "not a number of pixels")
                values.append(size)

    def _read_categories(self) -> None:
        names: dict[int, str] = {}
        for number, category in enumerate(self._stream.items()):
            name, known = _member(category, "name"), _member(category, "id")
            if not _is_whole(known):
                raise self._fail("category", number, category, "id", "not a whole number")
            if known in names:
                raise self._fail("category", number, category, "id", "which another category has")
            if not _is_text(name):
                raise self._fail("category", number, category, "name", "not text")
            names[known] = name
        self._categories = np.array(sorted(names), np.int64)
        self.names = [names[known] for known in sorted(names)]

    def _read_annotations(self) -> None:
        for number, each in enumerate(self._stream.items()):
            known = _member(each, "image_id")
            if not _is_id(known):
                raise self._fail("annotation", number, each, "image_id", "not the id of an image")
            if not number:
                self._begin(each)
            self._images.append(self._numbers.setdefault(known, len(self._numbers)))
            for name, values in self._values.items():
                value = each.get(name, 0 if name == "iscrowd" else None)
                kind = _KINDS[name]
                if not kind.fits(value) or (name == "keypoints" and len(value) != self._points):
                    raise self._fail("annotation", number, each, name, f"not {kind.wanted}")
                (values.extend if kind.code and type(value) is list else values.append)(value)
            for name in _KINDS:
                if name in each and name not in self._values:
                    why = "but the first annotation has none"
                    raise self._fail("annotation", number, each, name, why)

    def _begin(self, first: Mapping[str, Any]) -> None:
        """Choose what to keep, by the first annotation."""
        there = [
            name for name in _KINDS if name in first or (name == "iscrowd" and "bbox" in first)
        ]
        if not there:
            raise DataError(
                f"{self._path}: its annotations have none of {', '.join(_KINDS)}; other kinds, "
                "such as panoptic segmentation, are not read",
                file=self._path,
            )
        codes = {name: _KINDS[name].code for name in there}
        self._values = {name: array(code) if code else [] for name, code in codes.items()}
        points = first.get("keypoints")
        self._points = len(points) if isinstance(points, list) else 0
        if "keypoints" in there and (not self._points or self._points % _POINT):
            why = "not x, y and visibility of points"
            raise self._fail("annotation", 0, first, "keypoints", why)

    def _found_images(self) -> RowArray:
        """Return the row of the image of each annotation."""
        rows = np.array([self._rows.get(known, -1) for known in self._numbers], np.int64)
        owners: RowArray = rows[_array(self._images)]
        if len(gone := np.flatnonzero(owners < 0)):
            number = int(gone[0])
            item = {"image_id": list(self._numbers)[self._images[number]]}
            raise self._fail("annotation", number, item, "image_id", "which is not among 'images'")
        return owners

    def _check_categories(self, found: npt.NDArray[np.int64]) -> None:
        if len(gone := np.flatnonzero(~np.isin(found, self._categories))):
            number = int(gone[0])
            item = {"category_id": int(found[number])}
            why = "which is not among 'categories'"
            raise self._fail("annotation", number, item, "category_id", why)

    def columns(self) -> dict[str, Column]:
        """Return the columns, with a row for each image."""
        order = np.argsort(self._owners, kind="stable")
        offsets = offsets_of(np.bincount(self._owners, minlength=len(self._rows)))
        made: dict[str, Column] = {"image_id": self._image_ids()}
        made |= {name: _array(values).astype(np.int64) for name, values in self._sizes.items()}
        for name, values in self._values.items():
            if name == "caption":
                made["captions"] = Ragged(Ragged.from_text(values)[order], offsets)
                continue
            plain = _array(values)
            if name == "bbox":
                corners = plain.reshape(-1, _BOX).copy()
                corners[:, 2:] += corners[:, :2]
                made[BOXES] = Ragged(corners.astype(np.float32)[order], offsets)
            elif name == "category_id":
                classes = np.searchsorted(self._categories, plain).astype(np.int64)
                made[CLASSES] = Ragged(classes[order], offsets)
                made[name] = Ragged(plain[order], offsets)
            elif name == "keypoints":
                points = plain.reshape(-1, self._points // _POINT, _POINT).astype(np.float32)
                made[name] = Ragged(points[order], offsets)
            else:
                dtype = np.float32 if name == "area" else np.bool_
                made[name] = Ragged(plain.astype(dtype)[order], offsets)
        return made

    def _image_ids(self) -> Column:
        ids = list(self._rows)
        if all(isinstance(known, str) for known in ids):
            return Ragged.from_text(ids)
        if any(isinstance(known, str) for known in ids):
            raise DataError(f"{self._path}: some ids of images are text", file=self._path)
        return np.array(ids, np.int64)


def _array(values: array[Any]) -> npt.NDArray[Any]:
    dtype = _DTYPES[values.typecode]
    return np.frombuffer(values, dtype) if len(values) else np.empty(0, dtype)


def _member(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, dict) else None
