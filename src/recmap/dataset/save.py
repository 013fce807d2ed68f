"""Write the rows of a dataset: the code shared by ``ds.save`` and ``rm.convert``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from recmap.conversion.engine import OutputOptions, Report, WorkOptions, convert_source
from recmap.conversion.manifest import load_manifest, manifest_path
from recmap.conversion.plan import Sharding
from recmap.conversion.runners import ProcessRunner, Runner
from recmap.conversion.shard_writer import Verify
from recmap.conversion.transform import Casting, transformed
from recmap.dataset.rows import OpenedRows
from recmap.errors import Message, Option, OptionError, OptionTypeError
from recmap.files.local_path import any_remote
from recmap.files.paths import MOST_SHARDS, PathLike, as_location
from recmap.files.storage import Storage
from recmap.formats.registry import FORMATS, sink_options
from recmap.model.arguments import (
    Workers,
    as_mapping,
    as_names,
    as_slice,
    as_whole,
    check_choice,
    check_column_name,
    check_flag,
    parse_size,
    parse_workers,
    unknown_option,
)
from recmap.model.progress import ProgressOption, check_progress
from recmap.model.source import Source

__all__ = ["SaveOptions", "Saving", "save"]


class SaveOptions(TypedDict, total=False):
    """The options of ``ds.save``: those of ``rm.convert`` except ``source`` and ``nulls``."""

    format: str | None
    compression: str | None
    encoding: Mapping[str, str] | None
    align: int | None
    durable: bool
    options: Mapping[str, Any] | None
    shards: int | str | None
    rows: slice | None
    columns: Sequence[str] | None
    rename: Mapping[str, str] | None
    cast: Mapping[str, npt.DTypeLike] | None
    casting: Casting
    shuffle: bool
    seed: int | None
    memory: int | str
    workers: int | str | None
    verify: Verify
    resume: bool
    overwrite: bool
    progress: ProgressOption
    engine: str
    storage: Mapping[str, Any] | None
    name: str | None
    split: str | None


def save(opened: OpenedRows, dst: PathLike, **options: Any) -> Report:
    """Write rows to ``dst``."""
    return Saving(dst, **options).run(opened)


class Saving:
    """A call of ``ds.save`` or ``rm.convert``.

    The constructor checks the options before anything is opened; ``run`` does the work.
    """

    def __init__(
        self,
        dst: PathLike,
        *,
        format: str | None = None,
        compression: str | None = None,
        encoding: Mapping[str, str] | None = None,
        align: int | None = None,
        durable: bool = True,
        options: Mapping[str, Any] | None = None,
        shards: int | str | None = None,
        rows: slice | None = None,
        columns: Sequence[str] | None = None,
        rename: Mapping[str, str] | None = None,
        cast: Mapping[str, npt.DTypeLike] | None = None,
        casting: Casting = "same_value",
        shuffle: bool = False,
        seed: int | None = None,
        memory: int | str = "512MB",
        workers: int | str | None = None,
        verify: Verify = True,
        resume: bool = True,
        overwrite: bool = False,
        progress: ProgressOption = None,
        engine: str = "local",
        storage: Mapping[str, Any] | None = None,
        name: str | None = None,
        split: str | None = None,
        **unknown: Any,
    ) -> None:
        for unknown_name, value in unknown.items():
            raise unknown_option(unknown_name, SaveOptions.__annotations__, value=value)
        target: str = as_location(dst, "dst", Storage(storage))
        _seed(shuffle, seed, None)
        if parse_size(memory) < 1:
            raise OptionError(f"memory={memory!r}: give a number of bytes, such as '512MB'")
        check_progress(progress)
        check_choice("format", format, (*FORMATS, None))
        check_choice("casting", casting, ("same_value", "unsafe"))
        if not isinstance(verify, str) or verify != "full":
            check_flag("verify", verify, 'True, False or "full"')
        for flag_name, flag in {
            "resume": resume,
            "overwrite": overwrite,
            "durable": durable,
        }.items():
            check_flag(flag_name, flag)
        self._workers = None if workers is None else _parse_workers(workers)
        self._engine = _parse_engine(engine)
        self._rows = None if rows is None else as_slice("rows", rows)
        self._columns = None if columns is None else as_names("columns", columns)
        self._rename = as_mapping("rename", rename or {}, '{"old": "new"}')
        for new in self._rename.values():
            check_column_name(new)
        self._cast = as_mapping("cast", cast or {}, '{"x": "float32"}')
        self._casting = casting
        given = sink_options(options, compression, encoding, align)
        given |= {k: v for k, v in {"name": name, "split": split}.items() if v is not None}
        if format == "tfds":
            target, given = _tfds_output(target, given)
        self._output = OutputOptions(target, format, parse_shards(shards), durable, given)
        self._shuffle, self._seed = shuffle, seed
        self._memory, self._verify = memory, verify
        self._resume, self._overwrite, self._progress = resume, overwrite, progress

    def run(self, rows: OpenedRows) -> Report:
        """Write these rows."""
        with self._runner(rows.source) as runner:
            source = transformed(
                rows.source,
                rows=self._rows,
                columns=self._columns,
                rename=self._rename,
                cast=self._cast,
                casting=self._casting,
            )
            work = WorkOptions(
                memory=self._memory,
                # A process or task of a runner writes one file at a time.
                workers=self._count if runner is None else 1,
                verify=self._verify,
                # Rows in memory cannot be recognized later, so there is nothing to resume.
                resume=self._resume and rows.lasting,
                overwrite=self._overwrite,
                progress=self._progress,
                runner=runner,
                processes=self._processes,
            )
            output = self._output
            if output.format == "tfds":
                labels = {column: list(names) for column, names in source.labels.items()}
                kept = {"labels": labels, "descriptions": dict(source.descriptions)}
                output = replace(output, options={**kept, **output.options})
            return convert_source(
                source,
                output,
                work,
                seed=_seed(self._shuffle, self._seed, self._output.dst),
                description={
                    "rows": None if self._rows is None else str(self._rows),
                    "columns": self._columns,
                    "rename": self._rename,
                    "opened": dict(rows.how),
                },
            )

    @property
    def _count(self) -> int | None:
        return None if self._workers is None else self._workers.count

    @property
    def _processes(self) -> int:
        """The number of processes on this machine; 1 if threads or a cluster do the work."""
        if self._engine is not None or self._workers is None or self._workers.kind != "processes":
            return 1
        return self._workers.count

    def _runner(self, source: Source) -> AbstractContextManager[Runner | None]:
        """Return the runner that writes the files; None for threads of this process."""
        if self._engine is None:
            if self._workers is None or self._workers.kind != "processes":
                return nullcontext()
            remote = any_remote([self._output.dst, *source.files])
            workers = self._workers.reading(remote=remote)
            return nullcontext(ProcessRunner(source, workers.count, workers.start_method))
        from recmap.ray.runner import on_cluster

        return on_cluster(self._engine.address, source, self._output.dst, self._count)


def parse_shards(shards: int | str | None) -> Sharding:
    """Parse ``shards=``: the number of files, or the size or rows of each.

    >>> parse_shards(16).files, parse_shards("10_000 rows").rows, parse_shards("256MB").size
    (16, 10000, 256000000)
    """
    if shards is None:
        return Sharding()
    if not isinstance(shards, str):
        return Sharding(files=as_whole("shards", shards, 1, MOST_SHARDS))
    whole = r"\d{1,3}(?:,\d{3}){1,9}|\d[\d_]{0,30}"
    match = re.fullmatch(rf"\s*({whole})\s*(rows?)?\s*", shards)
    if match is not None and match[2]:
        return Sharding(rows=as_whole("shards", _digits(match[1]), 1))
    if match is not None:
        return Sharding(files=as_whole("shards", _digits(match[1]), 1, MOST_SHARDS))
    try:
        # A number without a unit is one of files, which is whole.
        size = parse_size(shards) if shards.strip()[-1:].isalpha() else 0
    except OptionError:
        size = 0
    if size < 1:
        raise OptionError(
            f"shards={shards!r}: give a whole number of files, the size of each with its unit, "
            "'256MB', or the rows of each, '10_000 rows'"
        )
    return Sharding(size=size)


def _digits(text: str) -> int:
    return int(text.replace("_", "").replace(",", ""))


def _tfds_output(folder: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return what the names of the shards of a split begin with, and the options to write them."""
    from recmap.formats.tfds.sink import split_path

    for option in ("name", "split"):
        if not isinstance(options.get(option), str | None):
            raise OptionTypeError(f"{option}={options[option]!r}: give text")
    path = split_path(folder, options.get("name"), options.get("split"))
    split = options["split"]
    name = os.path.basename(path).removesuffix(f"-{split}.tfrecord")
    return path, {**options, "name": name}


class _Cluster(NamedTuple):
    address: str | None


def _parse_engine(engine: Any) -> _Cluster | None:
    """Parse ``engine=``; return None for this machine."""
    if isinstance(engine, str) and engine == "local":
        return None
    name, colon, address = engine.partition(":") if isinstance(engine, str) else ("", "", "")
    if name != "ray" or (colon and not address):
        raise OptionError(f'engine={engine!r}: use "local", "ray" or "ray:ADDRESS"')
    return _Cluster(address or None)


def _parse_workers(workers: Any) -> Workers:
    if isinstance(workers, str):
        return parse_workers(workers, "threads")
    return Workers("threads", as_whole("workers", workers, 1))


def _seed(shuffle: Any, seed: Any, dst: str | None) -> int | None:
    """Return the seed of a shuffle, or None for rows in order.

    If no seed is given, use the one in the manifest of ``dst``, or else a random one.
    """
    if not isinstance(shuffle, bool | np.bool_):
        raise OptionError(f"shuffle={shuffle!r}: write shuffle=True, seed={shuffle!r}")
    if not shuffle:
        if seed is not None:
            raise OptionError(
                Message(
                    Option("seed", seed),
                    " is for a shuffle: give ",
                    Option("shuffle", True),
                    ", too",
                )
            )
        return None
    if seed is None:
        known = load_manifest(manifest_path(dst)).get("options") if dst is not None else None
        begun = known.get("shuffle") if isinstance(known, dict) else None
        drawn = int.from_bytes(os.urandom(4), "little")
        return begun if type(begun) is int and begun >= 0 else drawn
    return as_whole("seed", seed)
