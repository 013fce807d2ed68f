"""The options of ``rm.convert``, ``ds.save`` and ``rm.ray.write``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from recmap.conversion.plan import Sharding, parse_shards
from recmap.errors import Message, Option, OptionError, OptionTypeError
from recmap.formats.registry import FORMATS, written_formats
from recmap.model.arguments import (
    Workers,
    as_mapping,
    as_workers,
    check_choice,
    check_flag,
    option,
    parse_size,
)
from recmap.model.progress import ProgressOption, check_progress
from recmap.store.paths import PathLike, as_output
from recmap.store.storage import Storage

Verify: TypeAlias = bool | Literal["full"]

# Options of formats that have a parameter of their own.
_SHARED = ("compression", "encoding", "align")


def _format(name: str, value: Any) -> Any:
    return check_choice(name, value, (*written_formats(), None))


def _own_options(name: str, value: Any) -> dict[str, Any]:
    given = as_mapping(name, value, '{"level": 3}')
    for each in _SHARED:
        if each in given:
            told = f"{each}={given[each]!r}"
            raise OptionTypeError(f"{name}={{{each!r}: {given[each]!r}}}: write {told} instead")
    if "durable" in given:
        check_flag("durable", given["durable"])
    return given


def _as_given(name: str, value: Any) -> Any:
    """Leave an option to be checked by the format that has it."""
    del name
    return value


def _memory(name: str, value: Any) -> int | str:
    if parse_size(value) < 1:
        raise OptionError(f"{name}={value!r}: give a number of bytes, such as '512MB'")
    size: int | str = value
    return size


def _verify(name: str, value: Any) -> Verify:
    if isinstance(value, str) and value == "full":
        return "full"
    return check_flag(name, value, 'True, False or "full"')


def _progress(name: str, value: Any) -> ProgressOption:
    del name
    check_progress(value)
    watcher: ProgressOption = value
    return watcher


def _engine(name: str, value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"local|ray(:.+)?", value):
        raise OptionError(f'{name}={value!r}: use "local", "ray" or "ray:ADDRESS"')
    return value


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """The options of whatever writes files of any format."""

    format: str | None = option(
        None, _format, f"{', '.join(written_formats())} (default: by suffix)", metavar="NAME"
    )
    compression: str | None = option(
        None, _as_given, "gzip, zlib, zstd, ... or none", metavar="NAME"
    )
    encoding: dict[str, str] | None = option(
        None,
        partial(as_mapping, example='{"x": "raw"}'),
        "store a column as float_list, int64_list, bytes_list, raw or feature_list",
        metavar="NAME=HOW",
    )
    align: int | None = option(
        None, _as_given, "pad TFRecord records to N bytes, to map columns", metavar="N"
    )
    options: dict[str, Any] | None = option(
        None,
        _own_options,
        "a less common option, most of them of one format: level=9, chunk_rows=1000",
        metavar="NAME=VALUE",
    )
    overwrite: bool = option(False, check_flag, "replace existing files")

    @property
    def durable(self) -> bool:
        """Whether to wait until the disk has the data."""
        return bool((self.options or {}).get("durable", True))

    def for_sink(self) -> dict[str, Any]:
        """Return the options that the sink of the format takes, except ``durable``."""
        made = {name: value for name, value in (self.options or {}).items() if name != "durable"}
        for name in _SHARED:
            value = getattr(self, name)
            if value is not None:
                made[name] = value
        if made.get("compression") == "none":
            made["compression"] = None  # for a format that compresses by default
        return made

    def located(self, dst: PathLike, storage: Mapping[str, Any] | None) -> str:
        """Return where to write, given the path of the user and the options of its store."""
        path = as_output(dst, self.format, "dst", Storage(storage))
        place = None if self.format is None else FORMATS[self.format].sink_kind().place
        return path if place is None else place(path, self.for_sink())


@dataclass(frozen=True, kw_only=True)
class SaveOptions(OutputOptions):
    """The options of ``ds.save``, and those of ``rm.convert`` that are not for the input."""

    shards: Sharding | None = option(
        None,
        parse_shards,
        "write several files: 16 of them, 256MB each, or '10000 rows' each",
        metavar="N",
    )
    memory: int | str = option("512MB", _memory, "memory to use at most (512MB)", metavar="SIZE")
    workers: Workers | None = option(
        None, as_workers, "files to write at a time: 4, threads:4 or processes:4", metavar="N"
    )
    append: bool = option(False, check_flag, "add files to those in a folder")
    resume: bool = option(True, check_flag, "do not resume an interrupted conversion")
    verify: Verify = option(
        True,
        _verify,
        "check rows and CRCs of what was written (counts), or every value (full)",
        words={"none": False, "counts": True, "full": "full"},
    )
    progress: ProgressOption = option(None, _progress)
    engine: str = option("local", _engine)

    def __post_init__(self) -> None:
        if self.append and self.overwrite:
            raise OptionError(
                Message(
                    Option("append", True),
                    " adds files, and ",
                    Option("overwrite", True),
                    " replaces those that are there: give one of them",
                )
            )
