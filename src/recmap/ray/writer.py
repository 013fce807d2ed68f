"""A dataset of Ray's into files."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Never

from recmap.conversion.plan import output_format
from recmap.conversion.progress import Report
from recmap.errors import OptionError, RecmapError
from recmap.files.paths import PathLike, as_path
from recmap.files.temporary import size_on_disk
from recmap.formats.registry import check_output, sink_options
from recmap.model.arguments import as_whole, unknown_option
from recmap.model.schema import FieldLike, Schema, as_field
from recmap.ray.errors import plain
from recmap.ray.library import load_ray
from recmap.ray.staging import Output

__all__ = ["write"]


def write(
    dataset: Any,
    path: PathLike,
    *,
    format: str | None = None,
    compression: str | None = None,
    encoding: Mapping[str, str] | None = None,
    align: int | None = None,
    durable: bool = True,
    options: Mapping[str, Any] | None = None,
    fields: Mapping[str, FieldLike] | None = None,
    shards: int | None = None,
    min_rows_per_file: int | None = None,
    overwrite: bool = False,
    verify: bool = True,
    concurrency: int | None = None,
    **unknown: Never,
) -> Report:
    """Writes the rows of a ``ray.data.Dataset`` into files of any format, a file for each
    task; all of them, or none.

    The format is that of the end of ``path``, or ``format``; a folder (``"out/"``) gets TFRecord
    files. ``shards`` is their number, ``min_rows_per_file`` joins blocks until they have so
    many rows. ``fields`` says what columns are, where Arrow's types do not: rows of
    different shapes are ``"uint8[*,*,3]"``. ``compression``, ``encoding``, ``align`` and
    ``options`` are those of ``rm.convert``.

    The order of the rows is that of the dataset if it keeps one
    (``DataContext.execution_options.preserve_order``). All workers must see the path.
    """
    for name, value in unknown.items():
        raise unknown_option(name, write.__kwdefaults__, "rm.ray.write: ", value)
    load_ray()
    from recmap.ray.datasink import RecmapDatasink
    from recmap.ray.from_arrow import known_schema

    if shards is not None and min_rows_per_file is not None:
        raise OptionError("give one of shards and min_rows_per_file")
    for option, count in (("shards", shards), ("min_rows_per_file", min_rows_per_file)):
        if count is not None:
            as_whole(option, count, 1)
    stored = sink_options(options, compression, encoding, align)
    begun = time.monotonic()
    given = as_path(path)
    dst = os.path.abspath(given) + (os.sep if given.endswith(os.sep) else "")
    output = Output(dst, output_format(dst, format), overwrite, durable)
    told = {name: as_field(field) for name, field in (fields or {}).items()}
    schema = known_schema(dataset, told)
    check_output(dst, output.format, schema or Schema({}), stored)
    with output.staged() as stage:
        for_sink = {**stored, "durable": durable}
        sink = RecmapDatasink(output, stage, schema, told, verify, for_sink, min_rows_per_file)
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
