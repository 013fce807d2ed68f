"""A dataset of Ray's into files."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from recmap.conversion.plan import output_format
from recmap.conversion.progress import Report
from recmap.errors import OptionError, RecmapError
from recmap.files.paths import PathLike, as_path, size_on_disk
from recmap.formats.registry import check_output
from recmap.model.arguments import as_mapping, as_whole
from recmap.model.schema import FieldLike, Schema, as_field
from recmap.ray.errors import plain
from recmap.ray.library import load_ray
from recmap.ray.staging import Output

__all__ = ["write"]


def write(
    dataset: Any,
    path: PathLike,
    *,
    to: str | None = None,
    fields: Mapping[str, FieldLike] | None = None,
    shards: int | None = None,
    min_rows_per_file: int | None = None,
    overwrite: bool = False,
    verify: bool = True,
    durable: bool = True,
    concurrency: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> Report:
    """Writes the rows of a ``ray.data.Dataset`` into files of any format, a file for each
    task; all of them, or none.

    The format is that of the end of ``path``, or ``to``; a folder (``"out/"``) gets TFRecord
    files. ``shards`` is their number, ``min_rows_per_file`` joins blocks until they have so
    many rows. ``fields`` says what columns are, where Arrow's types do not: rows of
    different shapes are ``"uint8[*,*,3]"``. ``options`` are those of the format.

    The order of the rows is that of the dataset if it keeps one
    (``DataContext.execution_options.preserve_order``). All workers must see the path.
    """
    load_ray()
    from recmap.ray.datasink import RecmapDatasink
    from recmap.ray.from_arrow import known_schema

    if shards is not None and min_rows_per_file is not None:
        raise OptionError("give one of shards and min_rows_per_file")
    for option, count in (("shards", shards), ("min_rows_per_file", min_rows_per_file)):
        if count is not None:
            as_whole(option, count, 1)
    begun = time.monotonic()
    given = as_path(path)
    dst = os.path.abspath(given) + (os.sep if given.endswith(os.sep) else "")
    output = Output(dst, output_format(dst, to), overwrite, durable)
    options = as_mapping("options", options or {}, '{"level": 3}')
    told = {name: as_field(field) for name, field in (fields or {}).items()}
    schema = known_schema(dataset, told)
    check_output(dst, output.format, schema or Schema({}), options)
    with output.staged() as stage:
        sink_options = {**options, "durable": durable}
        sink = RecmapDatasink(output, stage, schema, told, verify, sink_options, min_rows_per_file)
        rows = dataset if shards is None else dataset.repartition(shards)
        try:
            sink.check()
            rows.write_datasink(sink, concurrency=concurrency)
        except RecmapError as e:
            error = plain(e, stage, dst)
            if error is e:
                raise
            # Ray puts the whole traceback of the task into the message.
            raise error from e
    return Report(
        files=sink.files,
        rows=sink.rows,
        written=sum(map(size_on_disk, sink.files)),
        skipped=0,
        seconds=time.monotonic() - begun,
        resumed=0,
        explanation="",
    )
