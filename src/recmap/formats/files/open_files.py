"""Open the files below a folder as rows, with the labels that lie beside them."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence

from recmap.errors import DataError, FieldMismatchError, OptionError, PathNotFoundError
from recmap.formats.combined import SideBySideSource
from recmap.formats.files.coco import is_coco, open_coco
from recmap.formats.files.names import FileNames
from recmap.formats.files.source import FilesSource
from recmap.formats.files.table import open_table
from recmap.formats.files.yolo import is_beside, open_yolo
from recmap.local.local_path import located
from recmap.local.location import Location, Stat
from recmap.model.field import Field, as_field
from recmap.model.schema import FieldsLike
from recmap.model.source import Errors, Source


def open_files(
    path: str,
    fields: FieldsLike | None = None,
    *,
    labels: Location | None = None,
    errors: Errors = "raise",
) -> Source:
    """List the files below a folder, and open them as rows, with ``labels`` if there are any.

    Text is checked to be UTF-8, unless ``fields`` ask for bytes.
    """
    folder = located(path)
    if glob.has_magic(path) and not folder.exists():
        raise OptionError(f'{path}: format="files" takes a folder, not a pattern')
    found = folder.below()
    if labels is not None:
        labels = labels.found()
        labels.check_unchanged()
        found = _without(folder, labels, found)
    if not found:
        raise PathNotFoundError(f"{path}: no files in this folder or below it")
    for name, _ in found:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise DataError(
                f"{path}: the name {name!r} is not UTF-8; rename the file", file=path
            ) from None
    asked = fields.get("text") if isinstance(fields, Mapping) else None
    as_bytes = asked is not None and as_field(asked) == Field("bytes")
    text = Field("bytes" if as_bytes else "text")
    if labels is None:
        return FilesSource(folder, found, text)
    return _labelled(folder, found, text, labels, fields, skip=errors == "skip")


def _labelled(
    folder: Location,
    found: Sequence[tuple[str, Stat]],
    text: Field,
    labels: Location,
    fields: FieldsLike | None,
    *,
    skip: bool,
) -> Source:
    """Return the files that have labels, side by side with these."""
    names = [name for name, _ in found]
    if labels.is_folder():
        keep, beside = open_yolo(folder, names, labels, skip=skip)
    elif is_coco(labels):
        keep, beside = open_coco(FileNames(folder, names), labels, skip=skip)
    else:
        keep, beside = open_table(folder, names, labels, fields, skip=skip)
    if not len(keep):
        raise DataError(f"{labels}: none of these labels is for a file in {folder}", file=labels)
    files = FilesSource(folder, [found[file] for file in keep.tolist()], text, classes=False)
    both = [name for name in beside.schema if name in files.schema]
    if both:
        raise FieldMismatchError(
            f"{labels}: the files have a column {both[0]!r}, too; rename the one in the table",
            file=labels,
            field=both[0],
        )
    return SideBySideSource({"files": files, "labels": beside})


def _without(
    folder: Location, labels: Location, found: Sequence[tuple[str, Stat]]
) -> list[tuple[str, Stat]]:
    """Leave out the labels, if they are in the same folder as the files."""
    inside = _inside(folder, labels)
    if inside is None:
        return list(found)
    if not labels.is_folder():
        return [each for each in found if each[0] != inside]
    return [each for each in found if not is_beside(each[0], inside)]


def _inside(folder: Location, labels: Location) -> str | None:
    """Return the path of labels in a folder; None if they are elsewhere.

    >>> _inside(located("a"), located("a/b/c")), _inside(located("a/"), located("a"))
    ('b/c', '')
    """
    outer = folder.absolute().rstrip("/")
    inner = labels.absolute().rstrip("/")
    if inner == outer:
        return ""
    return inner.removeprefix(f"{outer}/") if inner.startswith(f"{outer}/") else None
