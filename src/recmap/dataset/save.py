"""Write the rows of a dataset: the code shared by ``ds.save`` and ``rm.convert``."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from recmap.conversion.engine import Report, convert_source
from recmap.conversion.options import SaveOptions
from recmap.conversion.runners import ProcessRunner, Runner, ThreadRunner
from recmap.conversion.transform import transformed
from recmap.dataset.rows import OpenedRows
from recmap.files.local_path import any_remote
from recmap.model.source import Source


def save(opened: OpenedRows, dst: str, options: SaveOptions) -> Report:
    """Write rows to ``dst``."""
    with _runner(opened.source, dst, options) as runner:
        source = transformed(
            opened.source,
            rows=options.rows,
            columns=options.columns,
            rename=options.rename,
            cast=options.cast,
            casting=options.casting,
        )
        description = {
            "rows": None if options.rows is None else str(options.rows),
            "columns": options.columns,
            "rename": options.rename or {},
            "opened": dict(opened.how),
        }
        # Rows in memory cannot be recognized later, so there is nothing to resume.
        options = replace(options, resume=options.resume and opened.lasting)
        return convert_source(source, dst, options, runner, description)


def _runner(source: Source, dst: str, options: SaveOptions) -> AbstractContextManager[Runner]:
    """Return the runner that writes the files: in threads, in processes or on a cluster."""
    workers = options.workers
    count = None if workers is None else workers.count
    if options.engine != "local":
        from recmap.ray.runner import on_cluster

        return on_cluster(options.engine.partition(":")[2] or None, source, dst, count)
    if workers is None or workers.kind != "processes":
        return nullcontext(ThreadRunner(count))
    workers = workers.reading(remote=any_remote([dst, *source.facts.files]))
    return nullcontext(ProcessRunner(source, workers.count, workers.start_method))
