"""The engine: rows from any source into files of any format, in bounded memory."""

from __future__ import annotations

import errno
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Protocol

from recmap.conversion.budget import Budget, choose_budget, least_budget
from recmap.conversion.external_shuffle import shuffled
from recmap.conversion.manifest import Manifest
from recmap.conversion.manifest_file import manifest_path
from recmap.conversion.plan import Shard, output_format, plan_shards
from recmap.conversion.progress import Report
from recmap.conversion.sample import take_sample
from recmap.conversion.shard_writer import Job, Verify
from recmap.conversion.thread_runner import Threads
from recmap.conversion.transform import transformed
from recmap.errors import OptionError, OutputError
from recmap.files.cpus import within
from recmap.files.paths import size_on_disk
from recmap.formats.registry import check_output, column_bytes, read_copies
from recmap.model.progress import Counter, ProgressOption
from recmap.model.source import Source
from recmap.tfrecord.encoder import little_endian

__all__ = ["Runner", "convert_source"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Runner(Protocol):
    """Who writes the files of a plan."""

    def run(self, job: Job, shards: list[Shard], counter: Counter) -> None:
        """Writes these files; the first error is raised, and the others are stopped."""
        ...

    def explain(self, files: int) -> str:
        """What there is to say of that, for people, behind what the budget says."""
        ...


def convert_source(
    source: Source,
    dst: str,
    *,
    to: str | None,
    memory: int | str,
    workers: int | None,
    shards: int | None,
    rows_per_shard: int | None,
    shard_size: int | str | None,
    resume: bool,
    overwrite: bool,
    verify: Verify,
    durable: bool,
    progress: ProgressOption,
    shuffle: int | None,
    described: Mapping[str, Any] | None,
    options: Mapping[str, Any] | None,
    runner: Runner | None,
) -> Report:
    """Writes all rows of a source. ``described`` says how the source was changed, so
    that another conversion is not taken for this one; ``options`` are the sink's.
    """
    if verify == "full" and source.known_rows() is None and not source.files:
        raise OptionError('verify="full" reads the rows twice, which come only once here')
    given, runner = runner, runner or Threads()
    begun = time.monotonic()
    format = output_format(dst, to)
    check_output(dst, format, source.schema, options or {})
    if format == "tfrecord":
        swapped = {name: field.dtype for name, field in little_endian(source.schema).items()}
        known = source.schema
        source = transformed(source, cast={n: d for n, d in swapped.items() if d != known[n].dtype})
    more = read_copies(format, source.schema) if verify == "full" else 0
    least = least_budget(
        source, memory, more, column_bytes(format, source.schema, _files_open(source, verify))
    )
    with within(least.share):
        rows = _rows(source, least)
        sample = take_sample(source, rows, least)
    shard_list = plan_shards(
        dst, format, rows, sample.row_bytes, shards, rows_per_shard, shard_size
    )
    budget = choose_budget(least, source, memory, workers, len(shard_list), sample.row_bytes)
    manifest = Manifest(
        manifest_path(dst),
        shard_list,
        source.schema,
        format,
        source.files,
        {**(described or {}), "shuffle": shuffle, **(options or {})},
    )
    todo: list[Shard] = []
    try:
        with manifest.running(), ExitStack() as stack:
            todo = manifest.begin(resume, overwrite)
            counter = stack.enter_context(Counter(None if rows is None else _count(todo), progress))
            ordered = source
            whole = source.in_order and len(todo) == len(shard_list)
            if shuffle is not None or not whole or given is not None:
                source.check_sums()  # not every row is read here, or not in order
            if shuffle is not None and todo:
                stack.enter_context(within(budget.share))
                place = shuffled(source, shuffle, manifest.path, budget)
                ordered = stack.enter_context(place)
            job = Job(
                source=ordered,
                format=format,
                budget=budget,
                verify=verify,
                durable=durable,
                options=dict(options or {}),
                notes=manifest.notes,
                mark=manifest.mark,
            )
            runner.run(job, todo, counter)
            counter.finish()
            if manifest.mark.lost:
                raise manifest.mark.taken_over(dst)
            sizes = {shard.path: size_on_disk(shard.path) for shard in shard_list}
            rows = len(source) if rows is None else rows
            manifest.finish({"rows": rows, "bytes": list(sizes.values())}, manifest.worth_keeping)
    except BaseException as e:
        done = manifest.done if manifest.begun else 0
        if manifest.begun and done == 0:
            manifest.discard()
        explained = _explained(e, done, len(shard_list))
        if manifest.mark.lost:
            # Its files were removed, or its tasks stopped: what failed first says nothing.
            explained = manifest.mark.taken_over(dst) if isinstance(e, Exception) else e
        if explained is e:
            raise
        raise explained from e
    return Report(
        files=list(sizes),
        rows=rows,
        written=sum(sizes.values()),
        skipped=len(source.skipped),
        seconds=time.monotonic() - begun,
        resumed=len(shard_list) - len(todo),
        explanation=f"{budget}{sample}{runner.explain(len(shard_list))}",
    )


def _count(shards: list[Shard]) -> int:
    return sum((shard.stop or 0) - shard.start for shard in shards)


def _files_open(source: Source, verify: Verify) -> int:
    """How often files with all columns are open at once, beside the one that is written. To be
    compared, both are opened again, through the libraries of their formats.
    """
    if not source.files:
        return 0
    return 3 if verify == "full" else 1


def _rows(source: Source, least: Budget) -> int | None:
    if source.known_rows() is None and source.files:
        # They are counted on the way, and what does not fit is not held for it.
        large = source.largest_row(least.limit)
        if large is not None:
            raise least.too_little(*large)
        return len(source)
    return source.known_rows()


def _explained(error: BaseException, done: int, total: int) -> BaseException:
    """The error, with what has been done and how to go on."""
    left = (
        f"{done:,} of {total:,} files are finished, and the same call goes on from there"
        if done
        else "nothing was left behind; the same call begins anew"
    )
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt(f"interrupted: {left}")
    if isinstance(error, OSError) and error.errno in _FULL:
        return OutputError(f"the disk is full ({error.strerror}): {left}")
    return error
