"""``rm.ray.read``: open files as a Ray dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from recmap.errors import FieldNotFoundError, OptionError
from recmap.formats.open_spec import Opening, OpenOptions
from recmap.formats.tfrecord_partitions import Partition
from recmap.local.local_path import located
from recmap.model.arguments import checked, no_column, unknown_option
from recmap.model.nulls import with_masks
from recmap.model.schema import FieldsLike, Schema
from recmap.model.source import Source
from recmap.ray.cluster import Driver, check_visible, connect, cpu_count, load_ray
from recmap.ray.file_partitions import file_partitions, good_count
from recmap.ray.parallel_index import find_records
from recmap.store.paths import PathsLike, absolute, as_paths, expand, given_paths
from recmap.store.storage import Storage


class Reopenable(Protocol):
    """The opened rows of a dataset: the source, and how to open it again."""

    @property
    def source(self) -> Source: ...

    @property
    def lasting(self) -> bool: ...

    @property
    def reopen(self) -> Callable[[], Source] | None: ...


@runtime_checkable
class OpenedDataset(Protocol):
    """A dataset from ``rm.open``. A protocol, because this package cannot import its class."""

    @property
    def _opened(self) -> Reopenable: ...


def read(
    src: PathsLike | OpenedDataset,
    fields: FieldsLike | None = None,
    *,
    columns: FieldsLike | None = None,
    override_num_blocks: int | None = None,
    concurrency: int | None = None,
    **options: Any,
) -> Any:
    """Open files as a ``ray.data.Dataset``. Each worker reads the rows it needs.

    ``src``, ``columns`` and the other options are those of ``rm.open``; ``src`` can also be a
    dataset that ``rm.open`` returned. ``fields`` is an earlier name of ``columns``.
    ``override_num_blocks`` (the number of tasks) and ``concurrency`` (how many run at a time)
    are passed to Ray. By default, blocks are 16 to 64 MB, or smaller so that every CPU gets one.

    Rows of one shape become tensors of the same dtype, ragged rows become lists, and byte
    strings become binary.

    All workers must see the files under the same path. That is not needed for URLs of a store:
    ``storage`` has its options, as in ``rm.open``, and is sent to the workers. They do not get
    credentials from the environment of this process.
    """
    if isinstance(columns, Mapping) and fields is None:
        fields, columns = columns, None
    load_ray()
    from recmap.ray.ray_data import RecmapDatasource, read_datasource

    source, reopen, skip = _opened(src, fields, options)
    # The connection stays open, because the dataset is read later.
    ray, driver = connect(None), Driver.here()
    check_visible(ray, driver, source.facts.files)
    find_records(ray, driver, source)
    schema = _select(source.schema, None if columns is None else list(columns))
    partitions = file_partitions(source, reopen, skip)
    row_bytes = _row_bytes(schema, source)
    size = _size(partitions, row_bytes)
    if override_num_blocks is None:
        override_num_blocks = good_count(size, cpu_count(ray))
    datasource = RecmapDatasource(schema, partitions, row_bytes, size)
    return read_datasource(
        datasource, override_num_blocks=override_num_blocks, concurrency=concurrency
    )


def _opened(
    src: PathsLike | OpenedDataset, fields: FieldsLike | None, options: Mapping[str, Any]
) -> tuple[Source, Callable[[], Source], bool]:
    """Return the source, a function that opens it again, and whether to skip bad records."""
    if isinstance(src, OpenedDataset):
        rows = src._opened  # noqa: SLF001  # users do not see it
        late = [*(["fields"] if fields is not None else []), *options]
        if late:
            raise OptionError(
                f"the dataset is already open, so give {', '.join(late)} to rm.open instead"
            )
        if rows.reopen is None or not rows.lasting:
            raise OptionError(
                "rows in memory are not sent to Ray's workers; save them to a file that all of "
                "them can see, or use ray.data.from_numpy()"
            )
        skip = isinstance(rows.reopen, Opening) and rows.reopen.options.errors == "skip"
        return _in_original_folder(rows.source, rows.reopen), rows.reopen, skip
    if isinstance(src, Mapping) or not isinstance(src, str | os.PathLike | Sequence):
        raise OptionError(
            f"rm.ray.read takes a path, a list of paths or what rm.open returns, not "
            f"{type(src).__name__}; open it first: rm.ray.read(rm.open(x)) reads a memmap, an "
            'HDF5 dataset, or columns from several files, {"x": "x.npy", ...}'
        )
    known = [*OpenOptions.__dataclass_fields__, "storage"]
    for name in options:
        if name not in known:
            raise unknown_option(name, known, "rm.ray.read: ")
    chosen = checked(OpenOptions, options)
    opening = Opening(absolute(given_paths(src, Storage(options.get("storage")))), fields, chosen)
    source = opening()
    # Tasks open the files that were found now, not what their names stand for by then.
    reopen = replace(opening, paths=absolute(source.facts.files))
    return source, reopen, chosen.errors == "skip"


def _in_original_folder(source: Source, reopen: Callable[[], Source]) -> Source:
    """Return the source, reopened if the working directory may have changed since.

    A source with absolute paths is returned unchanged.
    """
    now = [located(file).absolute() for file in source.facts.files]
    if now == source.facts.files:
        return source
    if isinstance(reopen, Opening):
        opened = as_paths(reopen.paths)
        # A folder of files stands for itself.
        if now in ([opened], opened) or now == expand(reopen.paths):
            return source
    return reopen()


def _select(schema: Schema, columns: Sequence[str] | None) -> Schema:
    if columns is None:
        return schema
    if not columns:
        raise OptionError(
            "columns=[] leaves nothing to read; name some columns, or omit it to read all"
        )
    for name in columns:
        if name not in schema:
            raise FieldNotFoundError(no_column(name, schema))
    return Schema({name: schema[name] for name in with_masks(columns, schema)})


def _row_bytes(schema: Schema, source: Source) -> int:
    """Estimate the memory that a row takes."""
    sizes = [field.row_bytes for field in schema.values()]
    known = sum(size for size in sizes if size is not None)
    return max(1, known) if None not in sizes else max(1, known, source.row_bytes())


def _size(partitions: Sequence[Partition], row_bytes: int) -> int:
    """Estimate the memory that all rows take. Uncounted rows take as much as their files."""
    return sum(
        sum(located(file).size_below() for file in each.files)
        if each.rows is None
        else each.rows * row_bytes
        for each in partitions
    )
