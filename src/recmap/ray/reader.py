"""Files as a dataset of Ray's."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from recmap.errors import FieldNotFoundError, OptionError
from recmap.files.paths import PathsLike, absolute, expand, size_on_disk
from recmap.formats.open_spec import Opening, OpenOptions
from recmap.model.schema import FieldsLike, Schema
from recmap.model.source import Partition, Source
from recmap.ray.cluster import check_visible, cpu_count
from recmap.ray.file_partitions import pieces_of
from recmap.ray.library import connect
from recmap.ray.parallel_index import find_records
from recmap.ray.partition import good_blocks
from recmap.ray.working_folder import Home

__all__ = ["read"]


@runtime_checkable
class Opened(Protocol):
    """A dataset of recmap's, as ``rm.open`` gives it."""

    @property
    def source(self) -> Source: ...

    @property
    def lasting(self) -> bool: ...

    @property
    def reopen(self) -> Callable[[], Source] | None: ...


def read(
    src: PathsLike | Opened,
    fields: FieldsLike | None = None,
    *,
    columns: Sequence[str] | None = None,
    override_num_blocks: int | None = None,
    concurrency: int | None = None,
    **options: Any,
) -> Any:
    """A ``ray.data.Dataset`` of the rows of any files, read where they are used.

    ``src`` is what ``rm.open`` takes, or a dataset it gave; ``fields`` and the other options
    are its own. ``columns`` are those that are read. ``override_num_blocks`` and
    ``concurrency`` are Ray's: how many tasks there are, and how many at a time. If nobody
    says, blocks have 16 to 64 MB, or fewer if some processors would get none.

    Rows of one shape are tensors, with their dtype; ragged rows are lists, byte strings
    binary. All workers must see the files under the same path.
    """
    # It stays: the dataset is read later.
    ray, home = connect(None).ray, Home.here()
    from recmap.ray.base_classes import read_datasource
    from recmap.ray.datasource import RecmapDatasource

    source, reopen, skip = _opened(src, fields, options)
    check_visible(ray, home, source.files)
    find_records(ray, home, source)
    schema = _chosen(source.schema, columns)
    pieces = pieces_of(source, reopen, skip)
    row_bytes = _row_bytes(schema, source)
    size = _size(pieces, row_bytes)
    if override_num_blocks is None:
        override_num_blocks = good_blocks(size, cpu_count(ray))
    datasource = RecmapDatasource(schema, pieces, row_bytes, size)
    return read_datasource(
        datasource, override_num_blocks=override_num_blocks, concurrency=concurrency
    )


def _opened(
    src: PathsLike | Opened, fields: FieldsLike | None, options: Mapping[str, Any]
) -> tuple[Source, Callable[[], Source], bool]:
    """The source, what opens it in another process, and whether bad records are left out."""
    if isinstance(src, Opened):
        late = [*(["fields"] if fields is not None else []), *options]
        if late:
            raise OptionError(
                f"the dataset is already open, so give {', '.join(late)} to rm.open instead"
            )
        if src.reopen is None or not src.lasting:
            raise OptionError(
                "rows in memory are not sent to Ray's workers; save them to a file that all of "
                "them see, or use ray.data.from_numpy()"
            )
        skip = isinstance(src.reopen, Opening) and src.reopen.options.errors == "skip"
        return _where_it_was(src.source, src.reopen), src.reopen, skip
    if isinstance(src, Mapping) or not isinstance(src, str | os.PathLike | Sequence):
        raise OptionError(
            f"rm.ray.read takes a path, a list of paths or what rm.open gives, not "
            f"{type(src).__name__}: columns from several files are opened first, "
            'rm.ray.read(rm.open({"x": "x.npy", ...}))'
        )
    try:
        chosen = OpenOptions(**options)
    except TypeError as e:
        raise OptionError(f"rm.ray.read: no such option: {e}") from None
    opening = Opening(absolute(src), fields, chosen)
    return opening(), opening, chosen.errors == "skip"


def _where_it_was(source: Source, reopen: Callable[[], Source]) -> Source:
    """The source, or the same opened again, if its files have relative names and this
    program may have gone to another folder since.
    """
    if all(map(os.path.isabs, source.files)):
        return source
    if isinstance(reopen, Opening):
        now = [os.path.abspath(file) for file in source.files]
        if now == expand(reopen.paths):
            return source
    return reopen()


def _chosen(schema: Schema, columns: Sequence[str] | None) -> Schema:
    if columns is None:
        return schema
    if not columns:
        raise OptionError("columns=[] leaves nothing to read; name some, or leave it out for all")
    for name in columns:
        if name not in schema:
            raise FieldNotFoundError(f"no column {name!r}; there are: {', '.join(schema)}")
    return Schema({name: schema[name] for name in columns})


def _row_bytes(schema: Schema, source: Source) -> int:
    """About what a row takes in memory."""
    sizes = [field.row_bytes for field in schema.values()]
    known = sum(size for size in sizes if size is not None)
    return max(1, known) if None not in sizes else max(1, known, source.row_bytes())


def _size(pieces: Sequence[Partition], row_bytes: int) -> int:
    """About what all rows take in memory; of those nobody has counted, what the file does."""
    return sum(
        sum(map(size_on_disk, piece.files)) if piece.rows is None else piece.rows * row_bytes
        for piece in pieces
    )
