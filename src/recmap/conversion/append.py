"""``append=True``: add files to those in a folder.

What is added is a conversion of its own, with names and a manifest of its own:
``data_append00001.tfrecord``. Whoever reads the folder leaves its files out until that manifest
says that they are complete, so all rows appear at once. Names sort after those of the files that
are there, and no old file is touched. The lock of the folder keeps others from writing there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from recmap.conversion.engine import Report, as_stored, convert_source, described
from recmap.conversion.manifest import Manifest, appended_to, load_manifest, manifest_path
from recmap.conversion.options import SaveOptions
from recmap.conversion.plan import is_output_folder, output_format, stem_of
from recmap.conversion.runners import Runner
from recmap.errors import (
    FieldMismatchError,
    Message,
    Option,
    OptionError,
    PathNotFoundError,
    UnfinishedOutputError,
)
from recmap.formats.detect import detect_all
from recmap.formats.open_spec import OpenOptions, open_source
from recmap.formats.registry import FORMATS, known_to_sink
from recmap.formats.sink import StatsOf
from recmap.local.local_path import located
from recmap.model.fill_null import as_nullable
from recmap.model.schema import Schema
from recmap.model.source import Source

_APPEND = Option("append", True)


def append_source(
    source: Source,
    dst: str,
    options: SaveOptions,
    runner: Runner,
    opened: Mapping[str, str],
    *,
    stats: StatsOf | None = None,
) -> Report:
    """Add all rows of a source to a folder, or write the first ones.

    The same rows are not added twice: the same call resumes, or finds that all is finished.
    """
    _check_folder(dst, options)
    there = _opened(dst)
    if there is None or _wrote(source, dst, dst, options, opened):
        return convert_source(source, dst, options, runner, opened, stats=stats)
    format = _common_format(dst, there, options)
    folder = Manifest(manifest_path(dst), [], Schema({}), format, [], {})
    with folder.running():
        there = _opened(dst) or there  # as it is now that nobody else writes
        options = replace(options, format=format)
        stored = as_stored(source, FORMATS[format].sink_kind())
        source = _fitting(stored, there.schema, dst)
        last = os.path.basename(max(there.facts.files).rstrip("/"))
        target = _target(source, dst, last, options, opened)
        return convert_source(source, target, options, runner, opened, folder.lock, stats=stats)


def _check_folder(dst: str, options: SaveOptions) -> None:
    if options.format is not None and FORMATS[options.format].sink_kind().starts is not None:
        raise OptionError(
            Message(
                f"{dst}: ",
                _APPEND,
                f" does not add to a {options.format} dataset, whose episodes are numbered; write "
                "a new one",
            )
        )
    if not is_output_folder(dst):
        raise OptionError(
            Message(
                f"{dst}: ",
                _APPEND,
                " adds files to a folder, because rows cannot be added to a file all at once; give "
                "a folder, ending with /",
            )
        )
    if options.format is not None and FORMATS[options.format].sink_kind().begin is not None:
        raise OptionError(
            Message(
                f"{dst}: ",
                _APPEND,
                f" does not add to a {options.format} folder, which lists its shards; write "
                "another split",
            )
        )


def _opened(dst: str) -> Source | None:
    """Return what is in a folder; None if there is nothing, or only the beginning of it."""
    try:
        return open_source(located(dst).anew(), None, OpenOptions())
    except PathNotFoundError:
        return None
    except UnfinishedOutputError:
        if _may_be_first(dst):
            return None
        raise


def _may_be_first(dst: str) -> bool:
    """Return whether an unfinished output was begun by ``append=True``, which may resume."""
    made = load_manifest(manifest_path(dst)).get("options")
    return isinstance(made, dict) and made.get("append") is True


def _wrote(
    source: Source, dst: str, target: str, options: SaveOptions, opened: Mapping[str, str]
) -> bool:
    """Return whether this conversion wrote, or began to write, an output of the folder."""
    known = load_manifest(manifest_path(target))
    if not known or not options.resume:
        return False
    format = output_format(dst, options.format)
    stored = {**known_to_sink(format, source), **options.for_sink()}
    source = as_stored(source, FORMATS[format].sink_kind())
    made = described(opened, options, stored)
    manifest = Manifest(manifest_path(target), [], source.schema, format, source.facts.files, made)
    return manifest.is_of(known)


def _common_format(dst: str, there: Source, options: SaveOptions) -> str:
    (found,) = set(detect_all(there.facts.files))
    if options.format not in (None, found):
        raise OptionError(
            Message(
                f"{dst}: has {found} files, so ",
                Option("format", options.format),
                " cannot be appended; leave it out, or write elsewhere",
            )
        )
    if not FORMATS[found].writes or FORMATS[found].sink_kind().begin is not None:
        raise OptionError(
            Message(f"{dst}: ", _APPEND, f" does not add to {found} data; write elsewhere")
        )
    return found


def _fitting(source: Source, there: Schema, dst: str) -> Source:
    """Return the source with its columns in the order of those in the folder.

    Raise if they are not the same. Columns that may hold nulls in the folder may do so in the
    new files.
    """
    for name in there:
        if name not in source.schema:
            raise _mismatch(dst, f"has a column {name!r}, which the new rows do not have", name)
    for name in source.schema:
        if name not in there:
            raise _mismatch(dst, f"has no column {name!r}; leave it out with select", name)
    if list(source.schema) != list(there):
        source = source.select(list(there))
    source = as_nullable(source, there)
    for name, field in source.schema.items():
        if field != there[name]:
            raise _mismatch(
                dst,
                f"has {there[name]} in column {name!r}, and the new rows {field}; cast "
                "them, or write elsewhere",
                name,
            )
    return source


def _mismatch(dst: str, what: str, name: str) -> FieldMismatchError:
    return FieldMismatchError(f"{dst} {what}", file=str(dst), field=name)


def _target(
    source: Source, dst: str, last: str, options: SaveOptions, opened: Mapping[str, str]
) -> str:
    """Return the path of what is added: that of this call if it began before, or a new one.

    A new name comes after ``last``, the name of the last file in the folder.
    """
    begun = appended_to(manifest_path(dst))
    for target in begun:
        if _wrote(source, dst, target, options, opened):
            return target
    unfinished = [
        target for target in begun if not load_manifest(manifest_path(target)).get("complete")
    ]
    if unfinished:
        return unfinished[-1]
    suffix = FORMATS[options.format or "tfrecord"].suffixes[0]
    return located(dst).child(f"{stem_of(last)}_append{_last_number(begun) + 1:05d}{suffix}")


def _last_number(targets: list[str]) -> int:
    names = [os.path.basename(target).partition("_append")[2] for target in targets]
    return max((int(name.partition(".")[0]) for name in names), default=0)
