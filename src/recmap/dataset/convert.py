"""rm.convert: any files, or a dataset, into files of any format."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.conversion.engine import OutputOptions, Runner, WorkOptions, convert_source
from recmap.conversion.manifest import load_manifest, manifest_path
from recmap.conversion.plan import Sharding
from recmap.conversion.progress import Report
from recmap.conversion.shard_writer import Verify
from recmap.conversion.transform import Casting, transformed
from recmap.dataset.dataset import Dataset, open
from recmap.errors import OptionError
from recmap.files.paths import MOST_SHARDS, PathLike, PathsLike, as_path
from recmap.formats.registry import FORMATS
from recmap.model.arguments import (
    as_mapping,
    as_names,
    as_slice,
    as_whole,
    check_choice,
    check_column_name,
    check_flag,
    unknown_option,
)
from recmap.model.byte_size import parse_size
from recmap.model.progress import ProgressOption, check_progress
from recmap.model.source import Source

__all__ = ["convert"]

Engine: TypeAlias = Literal["local", "ray"]


def convert(
    src: PathsLike | Mapping[str, Any] | Dataset,
    dst: PathLike,
    *,
    to: str | None = None,
    memory: int | str = "512MB",
    workers: int | None = None,
    shards: int | None = None,
    rows_per_shard: int | None = None,
    shard_size: int | str | None = None,
    resume: bool = True,
    overwrite: bool = False,
    verify: Verify = True,
    durable: bool = True,
    progress: ProgressOption = None,
    rows: slice | None = None,
    columns: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    cast: Mapping[str, npt.DTypeLike] | None = None,
    casting: Casting = "same_value",
    shuffle: bool = False,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
    engine: Engine = "local",
    address: str | None = None,
    **source: Any,
) -> Report:
    """Writes the rows of any files, or of a dataset, into files of any format.

    Paths are ``str``, ``bytes`` or ``pathlib.Path``, and may begin with ``~``. The format is
    that of the end of ``dst``, or ``to``; a folder (``"out/"``) gets TFRecord files.
    ``shards``, ``rows_per_shard`` or ``shard_size`` make several files.
    No more than ``memory`` is held, whatever the size of the input.

    A file has its name only when it is whole and has been checked: its rows and CRCs
    with ``verify=True``, every value against the source with ``"full"``. A conversion
    that was stopped goes on from its finished files when it is called again.

    ``rows``, ``columns``, ``rename`` and ``cast`` choose and change on the way;
    ``shuffle=True`` writes all rows in a random order, that of ``seed`` if one is given;
    a conversion that continues keeps the order it began with. ``options`` are those of the
    format that is written (``{"compression": "gzip"}``), everything else is passed to
    ``rm.open``.

    With ``engine="ray"`` a Ray cluster does the work, each file in a task of its own:
    the one this program is connected to, or that at ``address``. The result is the same.

    >>> import numpy as np, recmap as rm
    >>> np.arange(40, dtype="float32").tofile("x.dat")
    >>> report = rm.convert("x.dat", "out/", dtype="float32", shape=(-1, 10), shards=2)
    >>> report.rows, len(report.files)
    (4, 2)
    >>> rm.open("out/").schema
    Schema(data: float32[10])
    """
    # All of it before anything is opened.
    target = as_path(dst, "dst")
    _seed(shuffle, seed, None)
    _check_known(source)
    _check_work(memory, shard_size, progress)
    check_choice("to", to, (*FORMATS, None))
    check_choice("casting", casting, ("same_value", "unsafe"))
    if not isinstance(verify, str) or verify != "full":
        check_flag("verify", verify, 'True, False or "full"')
    workers = None if workers is None else as_whole("workers", workers, 1)
    shards = None if shards is None else as_whole("shards", shards, 1, MOST_SHARDS)
    if rows_per_shard is not None:
        rows_per_shard = as_whole("rows_per_shard", rows_per_shard, 1)
    flags = {"resume": resume, "overwrite": overwrite, "durable": durable}
    for name, flag in flags.items():
        check_flag(name, flag)
    rows = None if rows is None else as_slice("rows", rows)
    columns = None if columns is None else as_names("columns", columns)
    rename = None if rename is None else as_mapping("rename", rename, '{"old": "new"}')
    for name in (rename or {}).values():
        check_column_name(name)
    cast = None if cast is None else as_mapping("cast", cast, '{"x": "float32"}')
    options = None if options is None else as_mapping("options", options, '{"level": 3}')
    dataset = src if isinstance(src, Dataset) else open(src, **source)
    if isinstance(src, Dataset) and source:
        packed = source.get("compression")
        hint = f'; to compress the output: options={{"compression": "{packed}"}}' if packed else ""
        raise OptionError(
            f"the dataset is already open, so give {', '.join(source)} to rm.open instead{hint}"
        )
    output = OutputOptions(
        target,
        to,
        Sharding(shards, rows_per_shard, shard_size),
        durable,
        options or {},
    )
    with _runner(engine, address, dataset.source, target, workers) as runner:
        chosen = transformed(
            dataset.source,
            rows=rows,
            columns=columns,
            rename=rename,
            cast=cast,
            casting=casting,
        )
        work = WorkOptions(
            memory=memory,
            # On a cluster the memory is for a task, which writes one file.
            workers=workers if runner is None else 1,
            verify=verify,
            # Rows from memory cannot be told from others, so there is nothing to go on with.
            resume=resume and dataset.lasting,
            overwrite=overwrite,
            progress=progress,
            runner=runner,
        )
        return convert_source(
            chosen,
            output,
            work,
            seed=_seed(shuffle, seed, target),
            description={
                "rows": None if rows is None else str(rows),
                "columns": None if columns is None else list(columns),
                "rename": dict(rename or {}),
                "opened": dataset.opened,
            },
        )


def _seed(shuffle: Any, seed: Any, dst: str | None) -> int | None:
    """The seed of a shuffle; None for rows in order. One that nobody gave is drawn, or is
    that of the conversion to ``dst`` that was begun.
    """
    if not isinstance(shuffle, bool | np.bool_):
        raise OptionError(f"shuffle={shuffle!r}: write shuffle=True, seed={shuffle!r}")
    if not shuffle:
        if seed is not None:
            raise OptionError(f"seed={seed!r} is that of a shuffle: give shuffle=True, too")
        return None
    if seed is None:
        known = load_manifest(manifest_path(dst)).get("options") if dst is not None else None
        begun = known.get("shuffle") if isinstance(known, dict) else None
        drawn = int.from_bytes(os.urandom(4), "little")
        return begun if type(begun) is int and begun >= 0 else drawn
    return as_whole("seed", seed)


def _check_known(options: Mapping[str, Any]) -> None:
    known = {*inspect.signature(convert).parameters, *inspect.signature(open).parameters}
    for name in options:
        if name not in known:
            raise unknown_option(name, known - {"src", "dst", "path", "source", "unknown"})


def _check_work(memory: Any, shard_size: Any, progress: Any) -> None:
    for name, size in {"memory": memory, "shard_size": shard_size}.items():
        if (name == "memory" or size is not None) and parse_size(size) < 1:
            raise OptionError(f"{name}={size!r}: give a number of bytes, such as '512MB'")
    check_progress(progress)


def _runner(
    engine: Engine, address: str | None, source: Source, dst: str, workers: int | None
) -> AbstractContextManager[Runner | None]:
    """Who writes the files; None for this process."""
    check_choice("engine", engine, ("local", "ray"))
    if engine == "local":
        if address is not None:
            raise OptionError(f'address={address!r} is that of a cluster: give engine="ray", too')
        return nullcontext()
    from recmap.ray.runner import on_cluster

    return on_cluster(address, source, dst, workers)
