"""The rows of a dataset: how they were opened, and how they are read and saved.

Rows are read by number, slice, list or mask, or all of them in bounded memory.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, MemoryLimitError, OptionError, RecmapError, RowNotFoundError
from recmap.local.local_path import any_remote
from recmap.model.arguments import Workers, as_slice
from recmap.model.batch import chosen_rows, join
from recmap.model.iteration import BlockIteration
from recmap.model.preview import preview
from recmap.model.row_key import condition_hint, row_key
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch
from recmap.model.source import Source, uncopied
from recmap.store.files_ahead import FilesAhead

if TYPE_CHECKING:
    # Needed at run time only to save.
    from recmap.conversion.engine import Report
    from recmap.conversion.options import SaveOptions
    from recmap.conversion.runners import Runner
    from recmap.formats.sink import StatsOf
    from recmap.pipeline.plan import Plan

# The key of the verbs of a dataset in manifests. split() was the first verb.
_VERBS = "split"
# Bytes read at a time by a pass over all rows; small batches are slices of one read. The first
# read is smaller and shows how much memory rows take.
_READ_SIZE = 16 << 20
_FIRST_READ_SIZE = 1 << 20
# The limit for reads of rows that turn out larger than those before. Their size is often not
# known exactly before they are read, and a read that is cut short costs more than it saves.
_MOST_READ_SIZE = 2 * _READ_SIZE
# Byte strings, text and arrays longer than this are printed in short.
_LONG = 100


@dataclass(frozen=True)
class RowBlocks:
    """All rows of a source, in blocks of a few megabytes."""

    source: Source

    def __iter__(self) -> Iterator[Batch]:
        return read_blocks(self.source, 1)


@dataclass(frozen=True)
class OpenedRows:
    """A source, and how it was opened.

    ``how`` has the options as text. Conversions and pipeline states compare it, because two
    datasets of the same files may have been opened with different options. ``lasting`` is
    False for rows in memory, which cannot be read again later. ``reopen`` opens the same rows
    in another process; it is None if there are no files. ``workers`` are those that ``map``
    was given.
    """

    source: Source
    how: Mapping[str, str] = field(default_factory=dict)
    lasting: bool = True
    reopen: Callable[[], Source] | None = None
    workers: Workers | None = None
    #: The verbs one by one, for people. Files and states have them as one text, in ``how``.
    steps: tuple[str, ...] = ()

    @property
    def shown_steps(self) -> tuple[str, ...]:
        """The verbs that derived these rows from the files, one by one."""
        return self.steps or (() if self.verbs is None else (self.verbs,))

    @property
    def verbs(self) -> str | None:
        """The verbs that derived these rows from the files; None if there were none."""
        return self.how.get(_VERBS)

    @property
    def again(self) -> Callable[[], Source]:
        """What opens these rows in another process. Rows in memory are sent to it."""
        return self.reopen or partial(_same, self.source)

    def derive(self, verb: str, change: Callable[[Source], Source]) -> OpenedRows:
        """Apply ``change`` to the source; ``verb`` is the call, as text."""
        before = "" if self.verbs is None else f"{self.verbs}."
        made = self.changed(change, **{_VERBS: before + verb})
        return replace(made, steps=(*self.shown_steps, verb))

    def changed(self, change: Callable[[Source], Source], **how: str) -> OpenedRows:
        """Apply ``change`` to the source, and note how it was opened."""
        reopen = None if self.reopen is None else partial(_change_again, self.reopen, change)
        how = {**self.how, **how}
        return OpenedRows(change(self.source), how, self.lasting, reopen, steps=self.steps)

    def save(self, dst: str, options: SaveOptions, stats: StatsOf | None = None) -> Report:
        """Write the rows to ``dst``: in threads, in processes or on a cluster.

        ``stats`` computes the statistics that some formats keep.
        """
        from recmap.conversion.append import append_source
        from recmap.conversion.engine import convert_source

        if options.workers is None and self.source.facts.calls_user_code:
            # Without workers, the user's functions are called by one thread at a time.
            options = replace(options, workers=self.workers or Workers("threads", 1))
        source = uncopied(self.source)
        # Rows in memory cannot be recognized later, so there is nothing to resume.
        options = replace(options, resume=options.resume and self.lasting)
        save = append_source if options.append else convert_source
        with _runner(source, dst, options) as runner:
            return save(source, dst, options, runner, self.how, stats=stats)

    def __reduce__(self) -> tuple[Any, ...]:
        # The receiving process opens the files itself; they are not sent to it.
        return _open_again, (self.again, dict(self.how), self.lasting, self.steps)


def verbs_of(columns: Mapping[str, OpenedRows]) -> dict[str, str]:
    """Return the verbs of columns that are put side by side, as ``how`` has them."""
    found = [f"{name}: {each.verbs}" for name, each in columns.items() if each.verbs is not None]
    return {_VERBS: f"columns({', '.join(found)})"} if found else {}


def numbered_rows(plan: Plan) -> OpenedRows:
    """Return the rows of a plan by number; the verbs say how they were made."""
    source = plan.numbered()
    lasting = all(rows.lasting for rows in plan.sources)
    # What reads files opens them again in another process by itself.
    reopen = partial(_same, source) if lasting else None
    return OpenedRows(source, how_made(plan), lasting, reopen, plan.workers)


def how_made(plan: Plan) -> dict[str, str]:
    """Return how the rows of a plan were opened, and the verbs since."""
    opened = [rows.how for rows in plan.sources]
    how = {
        f"{number}: {name}" if len(opened) > 1 else name: value
        for number, each in enumerate(opened, 1)
        for name, value in each.items()
    }
    return {**how, _VERBS: " > ".join(each.identity() for each in plan.records)}


def take_seeds(plan: Plan, dst: str) -> None:
    """Take the seeds that a plan has drawn from an interrupted conversion to ``dst``.

    Otherwise the same call, made again, would be another conversion.
    """
    from recmap.conversion.manifest import load_manifest, manifest_path

    drawn = [each.seed for each in plan.records if each.seed is not None and each.seed.drawn]
    if not drawn:
        return
    options = load_manifest(manifest_path(dst)).get("options")
    opened = options.get("opened") if isinstance(options, dict) else None
    begun = opened.get(_VERBS) if isinstance(opened, dict) else None
    pattern = " > ".join(each.pattern() for each in plan.records)
    found = re.fullmatch(pattern, begun) if isinstance(begun, str) else None
    for seed, value in zip(drawn, found.groups() if found else (), strict=False):
        seed.value = int(value)


def _runner(source: Source, dst: str, options: SaveOptions) -> AbstractContextManager[Runner]:
    from recmap.conversion.runners import ProcessRunner, ThreadRunner

    workers = options.workers
    count = None if workers is None else workers.count
    if options.engine != "local":
        from recmap.ray.runner import on_cluster

        return on_cluster(options.engine.partition(":")[2] or None, source, dst, count)
    if workers is None or workers.kind != "processes":
        return nullcontext(ThreadRunner(count))
    workers = workers.reading(remote=any_remote([dst, *source.facts.files]))
    return nullcontext(ProcessRunner(source, workers.count, workers.start_method))


def _change_again(reopen: Callable[[], Source], change: Callable[[Source], Source]) -> Source:
    """Open a source, and change it; a function that can be pickled."""
    return change(reopen())


def _open_again(
    reopen: Callable[[], Source], how: dict[str, str], lasting: bool, steps: tuple[str, ...]
) -> OpenedRows:
    return OpenedRows(reopen(), how, lasting, reopen, steps=steps)


def _same(source: Source) -> Source:
    return source


class Row(dict[str, Any]):
    """A row: a dict of values by name. Long strings and arrays are shortened when printed.

    >>> Row({"label": 3, "image": b"GIF89a" + bytes(5000)})
    {'label': 3, 'image': <GIF, 5,006 bytes>}
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{name!r}: {_brief(value)}' for name, value in self.items())}}}"


def _brief(value: Any) -> str:
    if isinstance(value, bytes | str) and len(value) > _LONG:
        return f"<{preview(value)}>"
    if isinstance(value, np.ndarray) and value.size > _LONG:
        with np.printoptions(threshold=_LONG, edgeitems=2):
            return repr(value)
    return repr(value)


_jax_knows = False


def _tell_jax() -> None:
    """Make ``jax.tree.map`` look into rows, as it does for dicts but not for other classes."""
    global _jax_knows  # noqa: PLW0603  # jax takes a class once
    if _jax_knows or "jax" not in sys.modules:
        return
    register = getattr(sys.modules["jax"], "tree_util", None)
    if register is None:
        return  # it is being imported
    _jax_knows = True
    register.register_pytree_with_keys(
        Row,
        lambda row: (
            [(register.DictKey(name), row[name]) for name in sorted(row)],
            tuple(sorted(row)),
        ),
        lambda names, values: dict(zip(names, values, strict=True)),
    )


def get_row(source: Source, number: int) -> dict[str, Any]:
    """Return one row; a negative number counts from the end."""
    batch = source.gather(np.array([_row_number(source, number)], dtype=np.int64))
    _tell_jax()
    return Row({name: column[0] for name, column in batch.items()})


def get_rows(source: Source, key: Any) -> Batch:
    """Return the rows of a slice, a list of numbers, or a mask."""
    if isinstance(key, slice):
        key = as_slice("rows", key)
        step = 1 if key.step is None else key.step
        plain = all(bound is None or bound >= 0 for bound in (key.start, key.stop))
        if step == 1 and plain and key.stop is not None:
            return source.read(key.start or 0, max(key.start or 0, key.stop))
        rows = range(*key.indices(len(source)))
        if rows.step == 1:
            return source.read(rows.start, max(rows.start, rows.stop))
        key = rows
    numbers = _row_array(key)
    empty = not len(numbers) and numbers.dtype.kind != "b"  # rows need not be counted
    return source.gather(chosen_rows(numbers, 0 if empty else len(source)))


class RowIteration(BlockIteration[Row]):
    """Iterates over all rows of a source in order."""

    __slots__ = ()

    def __init__(self, source: Source) -> None:
        super().__init__(_numbered_columns(source))
        self._block = ((), iter(()))

    def __next__(self) -> Row:
        while True:
            block = self._block
            columns, numbers = block
            for i in numbers:
                return Row({name: column[i] for name, column in columns})
            self._advance(block)


def _numbered_columns(source: Source) -> Generator[tuple[Any, Iterator[int]], None, None]:
    for batch in read_batches(source, 1024):
        _tell_jax()
        yield list(batch.items()), iter(range(measure(batch)[0]))


def read_batches(source: Source, size: int, drop_last: bool = False) -> Iterator[dict[str, Any]]:
    """Yield all rows in order, ``size`` at a time."""
    for block in read_blocks(source, size):
        rows, _ = measure(block)
        for start in range(0, rows, size):
            if start + size <= rows or not drop_last:
                yield {name: column[start : start + size] for name, column in block.items()}


def read_blocks(source: Source, multiple: int) -> Iterator[Batch]:
    """Yield all rows in order, in blocks of a few megabytes.

    The number of rows in each block but the last is a multiple of ``multiple``.
    """
    with FilesAhead(source.coming(0), sure=False) as ahead:
        yield from _read_blocks(source, multiple, ahead)


def _read_blocks(source: Source, multiple: int, ahead: FilesAhead) -> Iterator[Batch]:
    row_bytes, facts = source.row_bytes(), source.facts
    size, start = _FIRST_READ_SIZE, 0
    while True:
        wanted = max(1, size // row_bytes // multiple) * multiple
        # Joining the parts of a large batch would take longer than reading it at once.
        most = max(_MOST_READ_SIZE, 2 * multiple * row_bytes)
        read = _read_within(source, start, start + wanted, most, ahead)
        rows, taken = measure(read)
        if not rows:
            return
        if rows % multiple and rows > multiple and facts.files and not facts.remote:
            # Read the rest again: joining it to the next rows would copy both.
            rows -= rows % multiple
            read = {name: column[:rows] for name, column in read.items()}
        failure = None
        whole = rows + -rows % multiple
        parts = [read]
        while rows < whole:
            try:
                more = _read_within(source, start + rows, start + whole, most, ahead)
            except DataError as e:
                failure = e  # the rows before it are intact
                break
            found, size = measure(more)
            if not found:
                break
            parts.append(more)
            rows, taken = rows + found, taken + size
        read = join(parts)
        del parts
        yield read
        if failure is not None:
            raise failure
        start += rows
        size, row_bytes = _READ_SIZE, max(1, taken // rows)


def _read_within(source: Source, start: int, stop: int, most: int, ahead: FilesAhead) -> Batch:
    with ahead.reading():
        try:
            return source.read(start, stop, most)
        except MemoryLimitError:
            return source.read(start, start + 1)


def _row_number(source: Source, key: int) -> int:
    # A row with a non-negative number may be readable without counting all rows.
    rows = source.known_rows()
    if key >= 0 and rows is None:
        if measure(source.read(key, key + 1))[0] == 1:
            return key
    else:
        rows = len(source) if rows is None else rows
        if -rows <= key < rows:
            return key % rows
    raise RowNotFoundError(f"row {key:,} is out of range: there are {len(source):,}")


def _row_array(key: Any) -> npt.NDArray[Any]:
    """Return an index as an array of row numbers or a mask."""
    if isinstance(key, tuple):
        raise OptionError(
            f"rows are not indexed by a tuple, ds[{', '.join(map(repr, key))}]: for rows by number "
            f'use a list, ds[{list(key)!r}]; for values of a column, ds["name"][row, ...]'
        )
    try:
        numbers = row_key(key)
    except RecmapError:  # of the column that was given
        raise
    except (TypeError, ValueError) as e:
        raise OptionError(f"rows cannot be indexed by {type(key).__name__}: {e}") from None
    if numbers is not None:
        return numbers
    found = np.asarray(key) if isinstance(key, list | np.ndarray) else None
    strings = found is not None and found.ndim == 1 and found.dtype.kind == "U"
    hint = "; for some columns, use ds.select(*names)" if strings else condition_hint(key)
    raise OptionError(
        "rows are indexed by a number, a slice, or a one-dimensional array of numbers or "
        f"booleans, not by {type(key).__name__}{hint}"
    )
