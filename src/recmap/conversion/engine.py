"""Convert a source to files of any format, in bounded memory.

How a row gets from the source to a finished file:

1. The verbs before ``save`` have made a source that shows only the selected rows and columns, with
   their new names and types.
2. ``budget.py`` samples the first rows and decides how large a slab may be; ``plan.py`` divides
   the rows among shards.
3. ``cleanup.py`` removes the leftovers of a killed run. ``manifest.py`` takes the run lock
   (``local/run_lock.py``), records the plan, and drops the shards that an earlier run with the same
   plan finished.
4. ``external_shuffle.py`` puts the rows in random order, if they were shuffled last.
5. A runner (``runners.py``, or ``ray/runner.py`` on a cluster) passes each shard to
   ``shard_writer.py``. This reads slabs within the budget, writes them to the sink of the
   format, checks the result with ``verify.py``, records the shard as finished, and commits its
   ``Output`` (``local/output.py``), which had a temporary name until then.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from recmap.conversion.budget import (
    Budget,
    choose_budget,
    least_budget,
    take_sample,
    threads_within,
)
from recmap.conversion.cast import cast_columns
from recmap.conversion.external_shuffle import shuffled
from recmap.conversion.manifest import Manifest, file_names, load_manifest, manifest_path
from recmap.conversion.options import SaveOptions, Verify
from recmap.conversion.plan import (
    Shard,
    Sharding,
    output_format,
    plan_shards,
    uncompressed_name,
)
from recmap.conversion.runners import Runner
from recmap.conversion.shard_writer import ShardWriter
from recmap.errors import Message, OptionError, OutputError
from recmap.formats.registry import FORMATS, check_output, known_to_sink, parameters
from recmap.formats.sink import SinkKind, StatsOf, Written
from recmap.local.atomic_write import writing
from recmap.local.local_path import located
from recmap.local.run_lock import RunLock
from recmap.machine.cpus import within
from recmap.model.arguments import size_text
from recmap.model.order import Order
from recmap.model.ordered_rows import unshuffled
from recmap.model.preview import quantity
from recmap.model.progress import Counter
from recmap.model.source import Source
from recmap.model.table import html_table
from recmap.store.object_writer import choose_parts
from recmap.store.staging import check_space

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Options of older versions, as they stand in the manifests of conversions that had none of them.
_OLD_OPTIONS: dict[str, Any] = {"rows": None, "columns": None, "rename": {}, "shuffle": None}


# Files that a report in a notebook lists.
_LISTED = 10


@dataclass(frozen=True, repr=False)
class Report:
    """The result of a conversion."""

    files: list[str]
    rows: int
    written: int
    skipped: int
    seconds: float
    resumed: int
    explanation: str

    def __str__(self) -> str:
        files = self.files[0] if len(self.files) == 1 else quantity(len(self.files), "file")
        text = f"{quantity(self.rows, 'row')} in {files}, {size_text(self.written)}"
        if self.resumed == len(self.files):
            return f"{text}: everything was already finished"
        text += f", in {self.seconds:.2f} s ({self._speed})"
        if self.resumed:
            text += f"; {self.resumed:,} of the files were already finished"
        if self.skipped:
            left_out = "was left out" if self.skipped == 1 else "were left out"
            text += f"; {quantity(self.skipped, 'bad record')} {left_out}"
        return text

    def __repr__(self) -> str:
        return f"Report({self})"

    def _repr_html_(self) -> str:
        files = self.files[:_LISTED]
        if len(self.files) > _LISTED:
            files = [*files, f"and {len(self.files) - _LISTED:,} more"]
        facts = [
            ("rows", f"{self.rows:,}"),
            ("size", size_text(self.written)),
            ("time", f"{self.seconds:.2f} s ({self._speed})"),
            ("files finished before", f"{self.resumed:,}" if self.resumed else ""),
            ("bad records left out", f"{self.skipped:,}" if self.skipped else ""),
            *(("file", name) for name in files),
        ]
        return html_table("Conversion", ["", ""], [fact for fact in facts if fact[1]])

    @property
    def _speed(self) -> str:
        return f"{size_text(self.written / max(self.seconds, 1e-9))}/s"


@dataclass(frozen=True)
class _ConversionPlan:
    """The plan derived from the options: the shards, and the budget to write them.

    ``speed`` says how fast rows are read, if that was measured.
    """

    source: Source
    options: SaveOptions
    format: str
    stored: Mapping[str, Any]
    rows: int | None
    shards: list[Shard]
    budget: Budget
    speed: str


def convert_source(
    source: Source,
    dst: str,
    options: SaveOptions,
    runner: Runner,
    opened: Mapping[str, str],
    lock: RunLock | None = None,
    *,
    stats: StatsOf | None = None,
) -> Report:
    """Write all rows of a source.

    ``opened`` says how the source was opened, and the verbs since. The manifest stores it, so
    that a different conversion of the same files is not resumed by mistake. ``lock`` is that
    of the folder which files are added to, if the caller holds it. ``stats`` is for formats that
    keep statistics of their rows.
    """
    begun = time.monotonic()
    if options.verify == "full" and source.facts.once:
        raise OptionError('verify="full" reads the rows twice, but these can be read only once')
    located(dst).refuse_unwritable()
    format = output_format(dst, options.format)
    kind = FORMATS[format].sink_kind()
    # To see the columns may take counting rows, or reading some.
    with within(threads_within(options.memory, runner.processes)):
        given = options.for_sink()
        check_output(dst, format, source.schema, given)
        arranged = source if kind.arrange is None else kind.arrange(source, given)
        # Rows that were arranged are put in order first.
        unordered = unshuffled(source) if arranged is source else None
        source, order = unordered or (arranged, None)
        stored = {**known_to_sink(format, source), **given}
        check_output(dst, format, source.schema, stored)
        source = as_stored(source, kind)
        plan = _make_plan(source, dst, options, format, stored, runner)
    paths = [shard.path for shard in plan.shards]
    if kind.begin is not None:
        kind.begin(dst, source.schema, paths, options.overwrite)
    manifest = Manifest(
        manifest_path(dst),
        plan.shards,
        source.schema,
        format,
        source.facts.files,
        described(opened, options, stored),
        lock,
    )
    unfinished: list[Shard] = []
    try:
        with manifest.running():
            with writing(dst):
                unfinished = manifest.begin(
                    options.resume, options.overwrite, append=options.append
                )
            _write_shards(plan, manifest, unfinished, runner, order)
            if manifest.lock.lost:
                raise manifest.lock.taken_over(dst)
            manifest.inputs.check()
            sizes = [_size(shard.path, kind) for shard in plan.shards]
            rows = len(source) if plan.rows is None else plan.rows
            counts = [rows if s.stop is None else s.stop - s.start for s in plan.shards]
            with writing(dst):
                if kind.complete is not None:
                    kind.complete(Written(dst, source, paths, counts, sizes, stored, stats))
                manifest.finish({"rows": rows, "bytes": sizes})
    except BaseException as e:
        explained = _explained(e, manifest, dst)
        if explained is e:
            raise
        raise explained from e
    return Report(
        files=[located(shard.path).anew().public() for shard in plan.shards],
        rows=rows,
        written=sum(sizes),
        skipped=len(source.facts.skipped),
        seconds=time.monotonic() - begun,
        resumed=len(plan.shards) - len(unfinished),
        explanation=Message(f"{plan.budget}{plan.speed}", runner.explain(len(plan.shards))),
    )


def _size(path: str, kind: SinkKind) -> int:
    second = kind.beside(path) if kind.beside else None
    return located(path).size_below() + (located(second).size_below() if second else 0)


def as_stored(source: Source, kind: SinkKind) -> Source:
    """Return the source with the dtypes that the files store."""
    if kind.stored is None:
        return source
    stored = {name: field.dtype for name, field in kind.stored(source.schema).items()}
    others = {n: dtype for n, dtype in stored.items() if dtype != source.schema[n].dtype}
    return cast_columns(source, others)


def described(
    opened: Mapping[str, str], options: SaveOptions, stored: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the manifest notes: how rows were opened, and how they are stored."""
    appended = {"append": True} if options.append else {}
    return {**_OLD_OPTIONS, "opened": dict(opened), **appended, **stored}


def _make_plan(
    source: Source,
    dst: str,
    options: SaveOptions,
    format: str,
    stored: Mapping[str, Any],
    runner: Runner,
) -> _ConversionPlan:
    """Sample the source, divide its rows among shards, and choose the budget."""
    kind = FORMATS[format].sink_kind()
    copies = kind.read_copies(source.schema) if options.verify == "full" else 0
    columns = kind.column_memory(source.schema, _open_files(source, options.verify))
    parts = choose_parts(0, 1) if located(dst).remote else None
    least = least_budget(
        source,
        options.memory,
        copies,
        columns,
        runner.processes,
        parts,
        collects="room" in parameters(kind.create),
    )
    with within(least.thread_limit):
        rows = _count_rows(source, least)
        with least.fetching():
            row_bytes, speed = take_sample(source, rows, least)
    named = None if _has_plain_names(dst, options, stored) else stored.get("compression")
    sharding = options.shards or Sharding()
    starts = None if kind.starts is None else kind.starts(source)
    shards = plan_shards(dst, format, rows, row_bytes, sharding, named, starts)
    largest = None if rows is None else max(map(_rows_of, shards), default=0) * row_bytes
    budget = choose_budget(
        least, source, options.memory, runner.threads, len(shards), row_bytes, largest
    )
    staged = parts is not None and not kind.sends(dst, source.schema, {**stored, "expected": rows})
    if staged and largest is not None:
        check_space(largest * min(budget.workers, len(shards)), dst)
    return _ConversionPlan(source, options, format, stored, rows, shards, budget, speed)


def _has_plain_names(dst: str, options: SaveOptions, stored: Mapping[str, Any]) -> bool:
    """Return whether the same output was begun by a version that called all files .tfrecord."""
    known = load_manifest(manifest_path(dst))
    begun, names = known.get("options"), file_names(known.get("files"))
    if not isinstance(begun, dict) or (known.get("complete") and options.overwrite):
        return False
    plain = bool(names) and all(name == uncompressed_name(name) for name in names)
    return plain and begun.get("compression") == stored.get("compression")


def _write_shards(
    plan: _ConversionPlan,
    manifest: Manifest,
    unfinished: list[Shard],
    runner: Runner,
    order: Order | None,
) -> None:
    source, options = plan.source, plan.options
    with ExitStack() as stack:
        total = None if plan.rows is None else sum(map(_rows_of, unfinished))
        counter = stack.enter_context(Counter(total, options.progress))
        in_one_pass = source.facts.in_order and len(unfinished) == len(plan.shards)
        if order is not None or not in_one_pass or not runner.in_this_process:
            for checksums in source.facts.checksums:
                checksums.check()  # this process does not read all rows in order
        if order is not None and unfinished:
            stack.enter_context(within(plan.budget.thread_limit))
            source = stack.enter_context(
                shuffled(source, order, manifest.path, plan.budget, runner.on_this_machine)
            )
        writer = ShardWriter(
            source=source,
            format=plan.format,
            budget=plan.budget,
            verify=options.verify,
            durable=options.durable,
            options=plan.stored,
            finished=manifest.finished,
            lock=manifest.lock,
            inputs=manifest.inputs,
        )
        runner.run(writer, unfinished, counter)
        counter.finish()


def _rows_of(shard: Shard) -> int:
    return (shard.stop or 0) - shard.start


def _open_files(source: Source, verify: Verify) -> int:
    """Return how many files with all columns are open at once, besides the one being written.

    To compare values, the input and the output are opened again with the libraries of their
    formats.
    """
    if not source.facts.files:
        return 0
    return 3 if verify == "full" else 1


def _count_rows(source: Source, least: Budget) -> int | None:
    if source.known_rows() is None and not source.facts.once:
        # Counting scans the rows, and must not load one that does not fit.
        largest = source.facts.largest_row(least.limit)
        if largest is not None:
            raise least.too_little(*largest)
        return len(source)
    return source.known_rows()


def _explained(error: BaseException, manifest: Manifest, dst: str) -> BaseException:
    """Add to the error what is finished and how to resume; clean up if nothing is."""
    if manifest.lock.lost:
        # The other conversion removed our files or stopped our tasks, so the original error
        # is misleading.
        return manifest.lock.taken_over(dst) if isinstance(error, Exception) else error
    done = manifest.done if manifest.begun else 0
    if manifest.begun and done == 0:
        with suppress(OSError):  # the first error tells more
            manifest.give_up()
    left = "no file is finished, and the same call starts again"
    if done:
        total = len(manifest.shards)
        left = f"{done:,} of {total:,} files are finished, and the same call resumes from there"
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt(f"interrupted: {left}")
    if isinstance(error, OSError) and error.errno in _DISK_FULL:
        return OutputError(f"the disk is full ({error}): {left}")
    return error
