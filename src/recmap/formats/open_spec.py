"""Opening files of any format as one source, in this process or another."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from glob import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    DataError,
    FieldMismatchError,
    FieldNotFoundError,
    OptionError,
    OptionTypeError,
    PathNotFoundError,
)
from recmap.formats.column_source import with_string_types
from recmap.formats.combined import ConcatenatedSource
from recmap.formats.detect import check_raw, detect_all, has_header, refuse_packed
from recmap.formats.lazy_files import LazySource, OpenFiles, max_open_files
from recmap.formats.registry import FORMATS, HEADERLESS, LISTED, Format, parameters
from recmap.formats.shard_types import agreed_types
from recmap.local.file_state import is_indexed
from recmap.local.inflate import CompressionOption
from recmap.local.location import Location
from recmap.machine.mapped import guarded
from recmap.model.arguments import (
    as_dtype,
    as_list,
    as_whole,
    check_choice,
    check_flag,
    choice,
    is_pattern,
    no_column,
    option,
    with_matches,
)
from recmap.model.facts import check_meanings
from recmap.model.field import Field, FieldLike, as_field
from recmap.model.fill_null import decided, filled, with_other_nulls, with_the_same_masks
from recmap.model.nulls import NULL_SUFFIX, NULLS, Nulls, with_masks
from recmap.model.schema import FieldsLike, Schema
from recmap.model.source import Errors, Source, renamed
from recmap.model.text import is_string_type
from recmap.recognise.sniff import sniff
from recmap.store.paths import (
    PathsLike,
    as_location,
    as_path,
    as_paths,
    expand,
    for_each,
    for_each_file,
)


def _format(name: str, value: Any) -> Any:
    return check_choice(name, value, (*FORMATS, None))


def _split(name: str, split: Any) -> str:
    if not isinstance(split, str):
        raise OptionTypeError(f"{name}={split!r}: give text, such as 'train' or 'train[:80%]'")
    return str(split)


def _group(name: str, group: Any) -> str:
    if not isinstance(group, str) or not group.strip("/"):
        raise OptionTypeError(f"{name}={group!r}: give the name of a group, such as 'train'")
    return group.strip("/")


def _shape(name: str, shape: Any) -> tuple[int, ...]:
    if isinstance(shape, int | np.integer):
        raise OptionError(f"{name}={shape}: give all axes, rows first, such as (-1, {shape})")
    axes = as_list(name, shape, "(-1, 10), all axes, rows first")
    return tuple(as_whole(f"an axis of {name}", axis, least=-1) for axis in axes)


def _delimiter(name: str, delimiter: Any) -> str:
    ascii = isinstance(delimiter, str) and len(delimiter) == 1 and delimiter.isascii()
    if not ascii or delimiter in '"\r\n\0':
        raise OptionError(f"{name}={delimiter!r}: give one ASCII character, such as ';'")
    return str(delimiter)


def _index_file(name: str, index: Any) -> str:
    file = os.path.abspath(as_path(index, name))
    if not os.path.isfile(file):
        raise PathNotFoundError(
            f"{name}={index!r}: no such file; rm.index(path, text=True) makes it"
        )
    return file


def _labels(name: str, labels: Any) -> Location:
    return as_location(labels, name)


@dataclass(frozen=True, kw_only=True)
class OpenOptions:
    """The options of ``rm.open`` besides the path, its storage, and the fields."""

    format: str | None = option(
        None, _format, f"{', '.join(FORMATS)} (default: detected)", metavar="NAME"
    )
    split: str | None = option(
        None, _split, "split of a TFDS folder: train, train[10:20], train+test, all", metavar="NAME"
    )
    unit: str | None = choice(
        None,
        ("episodes", "steps", None),
        "of a TFDS folder of episodes (RLDS): a row for each episode, or for each step",
    )
    group: str | None = option(
        None, _group, "read only the columns of this group of an HDF5 or Zarr file", metavar="NAME"
    )
    dtype: npt.DTypeLike | None = option(
        None, as_dtype, "type of the numbers in a file without a header: float32", metavar="DTYPE"
    )
    shape: tuple[int, ...] | None = option(
        None, _shape, "shape of a file without a header; -1,10: rows of 10", metavar="ROWS,..."
    )
    offset: int = option(0, as_whole, "bytes before the first number", metavar="BYTES")
    errors: Errors = choice(
        "raise", ("raise", "skip"), "stop at a bad record (raise), or leave it out and warn (skip)"
    )
    nulls: Nulls = choice(
        "keep",
        NULLS,
        "show missing values as nulls (keep), stop at one (error), fill it (fill), or also add a "
        "column NAME/is_null (mask)",
    )
    verify: bool = option(True, check_flag, "do not check the CRCs of the data while it is read")
    compression: CompressionOption = choice(
        "auto", ("auto", "gzip", "zlib", None), "how TFRecord files are compressed (auto)"
    )
    delimiter: str | None = option(
        None,
        _delimiter,
        "what separates values of CSV files (default: detected)",
        metavar="CHAR",
    )
    header: bool = option(True, check_flag, "the first line of CSV files is a row, not names")
    labels: Location | None = option(
        None,
        _labels,
        "labels of a folder of files: a COCO .json, a folder of YOLO .txt, a .csv or other table",
        metavar="PATH",
    )
    index: str | None = option(None, _index_file)

    @property
    def describe_raw(self) -> bool:
        """Whether the options describe a file without a header."""
        return self.dtype is not None or self.shape is not None or self.offset != 0

    def for_column(self, paths: PathsLike) -> OpenOptions:
        """Return the options for one of several columns.

        ``dtype`` applies only to the files without a header.
        """
        if self.dtype is None or self.format is not None or not has_header(expand(paths)[0]):
            return self
        return replace(self, dtype=None, shape=None, offset=0)


@dataclass(frozen=True)
class Opening:
    """The paths and options of ``rm.open``. Calling it opens the files, in any process."""

    paths: PathsLike
    fields: FieldsLike | None
    options: OpenOptions

    def __post_init__(self) -> None:
        if self.options.labels is not None:
            options = replace(self.options, labels=self.options.labels.absolute())
            object.__setattr__(self, "options", options)

    def __call__(self) -> Source:
        return open_source(self.paths, self.fields, self.options)

    def only(
        self, files: Sequence[str], columns: Sequence[str], agreed: Mapping[str, Field]
    ) -> Opening:
        """Return an opening of some of the files and columns.

        Columns are given by name, so that the warning about columns left out is not repeated.
        ``agreed`` are types that they have only together with others.
        """
        given = self.fields if isinstance(self.fields, Mapping) else {}
        chosen = {name: given.get(name) or agreed.get(name) for name in columns}
        return replace(self, paths=list(files), fields=chosen)


@guarded
def open_source(paths: PathsLike, fields: FieldsLike | None, options: OpenOptions) -> Source:
    """Open files as one source."""
    if options.group is not None:
        return _open_group(paths, fields, options)
    if options.format is None and options.labels is not None:
        options = replace(options, format=LISTED)
    if options.format is not None and FORMATS[options.format].lists:
        return _open_listed(paths, FORMATS[options.format], fields, options)
    files = _expand(paths)
    format = FORMATS[_choose_format(files, options)]
    accepted = parameters(format.opener())
    _check_options(files[0], format, accepted, options)
    if "nulls" in accepted:
        return _opened(files, format, fields, options)
    # All files together: one may have nulls where another has none.
    return decided(_opened(files, format, _without_masks(fields), options), options.nulls)


def _open_listed(
    paths: PathsLike, format: Format, fields: FieldsLike | None, options: OpenOptions
) -> Source:
    """Open what a format lists itself."""
    given = as_paths(paths)
    folder, *others = [given] if isinstance(given, Location) else given
    if others and others == [options.labels]:  # found before, so they must not have changed
        options = replace(options, labels=others.pop())
    if others:
        raise OptionError(f"format={format.name!r} takes one folder; join several with rm.concat")
    _check_options(folder, format, parameters(format.opener()), options)
    return decided(_open_one(folder, format, _without_masks(fields), options), options.nulls)


def _without_masks(fields: FieldsLike | None) -> FieldsLike | None:
    """Leave out masks, which come with their columns."""
    if fields is None or not any(str(name).endswith(NULL_SUFFIX) for name in fields):
        return fields
    names = set(fields)
    types = fields if isinstance(fields, Mapping) else dict.fromkeys(fields)
    return {
        name: type_
        for name, type_ in types.items()
        if name is ... or name.removesuffix(NULL_SUFFIX) not in names - {name}
    }


def _opened(
    files: list[str], format: Format, fields: FieldsLike | None, options: OpenOptions
) -> Source:
    if len(files) > 1 and format.meaning:
        meaning = partial(format.load(format.meaning), names=_names(fields))
        check_meanings(files, for_each_file(meaning, files), "open the files separately")
    if "files" in parameters(format.opener()):
        return _call_opener(format, files, fields, options)
    if len(files) == 1:
        return _open_one(files[0], format, fields, options)
    open_files = OpenFiles() if len(files) > max_open_files(format.descriptors) else None

    def open_as(file: str, fields: FieldsLike | None) -> Source:
        source = _open_one(file, format, fields, options)
        if open_files is None:
            return source
        # It is only looked at now, and opened again when it is read.
        return LazySource(source, partial(_reopen, file, format, fields, options), open_files)

    opened = for_each_file(lambda file: open_as(file, fields), files)
    agreed = agreed_types(opened)

    def open_agreed(number: int) -> Source:
        # Columns by name, so that the warning about columns left out is not repeated.
        schema, types = opened[number].schema, agreed[number]
        asked = with_matches([...] if fields is None else fields, schema)
        given: dict[Any, FieldLike | None] = dict.fromkeys(asked)
        given |= asked if isinstance(asked, Mapping) else {}
        if given.pop(..., ...) is None:
            given = dict.fromkeys(schema) | given
        if options.nulls == "mask":  # masks come with their columns, if they have any
            masks = {name + NULL_SUFFIX for name in types} - set(fields or ())
            given = {name: field for name, field in given.items() if name not in masks}
        return open_as(files[number], {**given, **types})

    for number, source in zip(agreed, for_each(open_agreed, list(agreed), files), strict=True):
        opened[number] = source
    masked = options.nulls == "mask" and "nulls" in parameters(format.opener())
    return ConcatenatedSource(with_the_same_masks(opened) if masked else opened)


def _open_group(paths: PathsLike, fields: FieldsLike | None, options: OpenOptions) -> Source:
    """Open the columns whose names begin with a group, under the rest of their names."""
    prefix = f"{options.group}/"
    asked = [...] if fields is None else fields
    given: Mapping[Any, Any] = asked if isinstance(asked, Mapping) else dict.fromkeys(asked)
    every = f"{escape(prefix)}*"
    inside = {every if n is ... else f"{prefix}{n}": kind for n, kind in given.items()}
    source = open_source(paths, inside, replace(options, group=None))
    return renamed(source, {name.removeprefix(prefix): name for name in source.schema})


def _expand(paths: PathsLike) -> list[str]:
    try:
        files = [*expand(paths)]
        names = set(files)
        return [file for file in files if not is_indexed(file, names)]
    except PathNotFoundError as e:
        from recmap.formats.tfds.metadata import describe_versions

        given = as_paths(paths)
        located = [given] if isinstance(given, str) else given
        versions = describe_versions(located[0]) if len(located) == 1 else ""
        if not versions:
            raise
        raise PathNotFoundError(versions) from e


def _choose_format(files: list[str], options: OpenOptions) -> str:
    """Return the format that all files share."""
    given = options.format or (HEADERLESS if options.dtype is not None else None)
    if given == HEADERLESS:
        packed = options.compression is None
        for_each_file(
            lambda file: check_raw(file, options.format, options.dtype, packed=packed), files
        )
    if given is not None:
        return given
    formats = detect_all(files)
    if len(set(formats)) > 1:
        other = next(i for i, format in enumerate(formats) if format != formats[0])
        raise DataError(
            f"{files[0]} is {formats[0]}, but {files[other]} is {formats[other]}: only files of "
            "one format can be opened together; open them separately",
            file=files[other],
        )
    if formats[0] == HEADERLESS:
        for_each_file(lambda file: refuse_packed(file, sniff(file)), files)
    return formats[0]


def _check_options(
    file: str, format: Format, accepted: frozenset[str], options: OpenOptions
) -> None:
    if "dtype" not in accepted and options.describe_raw:
        raise OptionError(
            f"dtype, shape and offset are for files without a header; {file} is {format.name}"
        )
    for name in ("split", "unit"):
        value = getattr(options, name)
        if value is not None and name not in accepted:
            raise OptionError(
                f"{name}={value!r} is for TFDS folders, which have a dataset_info.json; {file} is "
                f"{format.name}"
            )
    if "labels" not in accepted and options.labels is not None:
        raise OptionError(
            f"labels is for a folder of files, format={LISTED!r}; {file} is {format.name}"
        )
    if "delimiter" not in accepted and (options.delimiter is not None or not options.header):
        raise OptionError(f"delimiter and header are for CSV files; {file} is {format.name}")
    if "compression" not in accepted and options.compression in ("gzip", "zlib"):
        raise OptionError(
            f"compression={options.compression!r} tells how TFRecord files that are read were "
            f"compressed, but {file} is {format.name}"
            + (", which is mapped: decompress it first" if format.header == "never" else "")
        )


def _open_one(path: str, format: Format, fields: FieldsLike | None, options: OpenOptions) -> Source:
    source = _call_opener(format, path, fields, options)
    return source if fields is None else select(source, fields, path)


def _call_opener(
    format: Format, target: str | list[str], fields: FieldsLike | None, options: OpenOptions
) -> Source:
    """Call an opener with the fields and options that it has parameters for."""
    opener = format.opener()
    accepted = parameters(opener)
    arguments = {
        name: getattr(options, name)
        for name in OpenOptions.__dataclass_fields__
        if name in accepted
    }
    if "fields" in accepted:
        if any(map(is_pattern, fields or ())):
            fields = with_matches(fields, _call_opener(format, target, None, options).schema)
        arguments["fields"] = fields
    if "names" in accepted:
        arguments["names"] = _names(fields)
    return opener(target, **arguments)


def _names(fields: FieldsLike | None) -> list[Any] | None:
    """Return the names of the columns that are asked for; None for all."""
    # An ellipsis stands for all other columns.
    names = None if fields is None else list(fields)
    return None if names is None or ... in names else names


def _reopen(
    file: str, format: Format, fields: FieldsLike | None, options: OpenOptions, schema: Schema
) -> Source:
    # Open columns by name, so that the warning about columns left out is not repeated.
    return _open_one(file, format, list(schema) if fields is None else fields, options)


def select(source: Source, fields: FieldsLike, path: str) -> Source:
    """Return the requested columns; raise if one does not have the requested type."""
    fields = with_matches(fields, source.schema)
    given: dict[Any, Any] = dict(fields) if isinstance(fields, Mapping) else dict.fromkeys(fields)
    others = source.schema if ... in given else ()
    given.pop(..., None)
    # The mask of a column comes with it.
    masked = dict.fromkeys(with_masks(given, source.schema))
    asked: dict[str, FieldLike | None] = {**dict.fromkeys(others), **masked, **given}
    strings: dict[str, Field] = {}
    fills: dict[str, Any] = {}
    nulls: dict[str, Field] = {}
    for name, field in asked.items():
        if name not in source.schema:
            raise FieldNotFoundError(f"{path}: {no_column(name, source.schema)}")
        wanted = source.schema[name] if field is None else as_field(field)
        if wanted.ragged and not source.schema[name].has_nulls:
            wanted = replace(wanted, fill=None)  # null items were filled by the source
        if wanted.fill is not None and wanted == _filled_with(source.schema[name], wanted.fill):
            fills[name] = wanted.fill
        elif is_string_type(source.schema[name], wanted):
            strings[name] = replace(source.schema[name], dtype=wanted.dtype)
        elif wanted.without_nulls() == source.schema[name].without_nulls():
            nulls[name] = wanted
        else:
            raise FieldMismatchError(
                f"{path}: column {name!r} is {source.schema[name]}, not {wanted}",
                file=path,
                field=name,
            )
    chosen = source if list(asked) == list(source.schema) else source.select(list(asked))
    chosen = with_string_types(chosen, strings) if strings else chosen
    chosen = with_other_nulls(chosen, nulls)
    return filled(chosen, fills) if fills else chosen


def _filled_with(field: Field, fill: Any) -> Field | None:
    """Return a field with nulls as one that has a fill value instead."""
    return replace(field.without_nulls(), fill=fill) if field.has_nulls else None
