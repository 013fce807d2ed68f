"""``rm.ray.write``: write a Ray dataset to files."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Any, Never

from recmap.conversion.engine import Report
from recmap.conversion.options import OutputOptions
from recmap.conversion.plan import output_format
from recmap.errors import OptionError, RecmapError
from recmap.formats.registry import check_output
from recmap.local.local_path import located
from recmap.model.arguments import as_whole, checked, given_types, unknown_option
from recmap.model.field import FieldLike, as_field
from recmap.model.schema import Schema
from recmap.ray.cluster import Driver, check_visible, connect, load_ray
from recmap.ray.staging import staged_output
from recmap.store.paths import PathLike, as_output
from recmap.store.storage import Storage

# Ray appends this to the message of an error that a task raised.
_RAY_SUFFIX = "\nFailed to apply "


def write(
    dataset: Any,
    path: PathLike,
    *,
    format: str | None = None,
    compression: str | None = None,
    encoding: Mapping[str, str] | None = None,
    align: int | None = None,
    options: Mapping[str, Any] | None = None,
    columns: Mapping[str, FieldLike] | None = None,
    shards: int | None = None,
    min_rows_per_file: int | None = None,
    overwrite: bool = False,
    verify: bool = True,
    concurrency: int | None = None,
    storage: Mapping[str, Any] | None = None,
    fields: Mapping[str, FieldLike] | None = None,
    **unknown: Never,
) -> Report:
    """Write the rows of a ``ray.data.Dataset`` to files of any format, one file per task.

    ``format``, or else the suffix of ``path``, selects the format; a folder (``"out/"``) gets
    TFRecord files. ``shards`` is the number of files; ``min_rows_per_file`` joins blocks until
    they have that many rows. ``columns`` gives types that Arrow does not determine, such as
    ``{"image": "uint8[*,*,3]"}`` for rows of different shapes; ``fields`` is an earlier name of it.
    At most ``concurrency`` tasks write at a time. ``verify=False`` does not check the rows and CRCs
    of what was written. ``compression``, ``encoding``, ``align``, ``options`` and ``overwrite`` are
    those of ``rm.convert``.

    Either all files are written or none. The rows keep the order of the dataset if Ray preserves
    it (``DataContext.execution_options.preserve_order``).

    All workers must see the path. That is not needed for a URL of a store: ``storage`` has its
    options, such as credentials, and is sent to the workers. Objects get their final names when
    all are complete, but in a store not at the same moment.
    """
    for name, value in dict[str, Any](unknown).items():
        raise unknown_option(name, write.__kwdefaults__, "rm.ray.write: ", value)
    chosen = checked(OutputOptions, locals())
    load_ray()
    from recmap.ray.arrow_tables import known_schema
    from recmap.ray.ray_data import RecmapDatasink

    if shards is not None and min_rows_per_file is not None:
        raise OptionError("give either shards or min_rows_per_file")
    for option, count in (("shards", shards), ("min_rows_per_file", min_rows_per_file)):
        if count is not None:
            as_whole(option, count, 1)
    stored = chosen.for_sink()
    begun = time.monotonic()
    dst = _destination(path, format, storage)
    chosen_format = output_format(dst, format)
    output = staged_output(dst, chosen_format, overwrite=overwrite, durable=chosen.durable)
    types = given_types("rm.ray.write", columns, fields) or {}
    given_fields = {name: as_field(field) for name, field in types.items()}
    schema = known_schema(dataset, given_fields)
    check_output(dst, output.format, schema or Schema({}), stored)
    if located(dst).remote:
        check_visible(connect(None), Driver.here(), [], dst)
    with output.staged() as stage:
        for_sink = {**stored, "durable": chosen.durable}
        sink = RecmapDatasink(
            output, stage, schema, given_fields, verify, for_sink, min_rows_per_file
        )
        rows = dataset if shards is None else dataset.repartition(shards)
        try:
            sink.check()
            rows.write_datasink(sink, concurrency=concurrency)
        except RecmapError as e:
            error = _unwrapped(e, stage, dst)
            if error is e:
                raise
            # Ray puts the task's whole traceback into the message.
            raise error from e
    return Report(
        files=sink.files,
        rows=sink.rows,
        written=sum(located(file).size_below() for file in sink.files),
        skipped=0,
        seconds=time.monotonic() - begun,
        resumed=0,
        explanation="",
    )


def _destination(path: PathLike, format: str | None, storage: Mapping[str, Any] | None) -> str:
    """Return the path of the output, which means the same to all nodes."""
    given = as_output(path, format, "path", Storage(storage))
    given.refuse_unwritable()
    found = given.anew().absolute()
    return found.child("") if given.endswith(os.sep) and not found.endswith(os.sep) else found


def _unwrapped(error: RecmapError, stage: str, dst: str) -> RecmapError:
    """Return the error that a task raised, with its original message.

    The message names the path that the user gave, not files in the hidden stage.
    """
    cause = getattr(error, "cause", None)
    found = cause if isinstance(cause, RecmapError) else error
    text = str(found).partition(_RAY_SUFFIX)[0]
    inside = re.escape(stage + os.sep) + r"[^\s:,;()]*"
    found.args = (re.sub(inside, lambda _: dst, text), *found.args[1:])
    return found
