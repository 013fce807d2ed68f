"""Random chains of verbs, compared with the same chain on plain Python lists."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

import recmap as rm
from hostile.case import Case

__all__ = ["Chain", "case", "numbers_of", "store", "unseen_types"]

Row = dict[str, Any]


def keep(row: Row) -> bool:
    return int(row["row"]) % 3 != 1


def double(row: Row) -> Row:
    return {**row, "twice": row["row"] * 2}


def named(row: Row) -> Row:
    return {**row, "name": f"row {row['row']}", "names": ["é"] * int(row["row"] % 3)}


def halved(row: Row) -> Row:
    """Return float32 for some rows and float64 for others, of which float32 holds every value."""
    half = float(row["row"]) / 2
    return {**row, "half": np.float32(half) if row["row"] % 2 else half}


def again(batch: Row) -> Row:
    """Write every batch into the same array."""
    column = batch["tokens"][:, 0] if "row" not in batch else batch["row"]
    _SAME[: len(column)] = column
    return {**batch, "again": _SAME[: len(column)]}


def of_packed(row: Row) -> Row:
    return {**row, "size": np.count_nonzero(row["segments"])}


def _twice_tokens(lengths: Mapping[str, Any]) -> Any:
    return 2 * lengths["tokens"]


_SAME = np.zeros(100, np.int64)
_MAPS = {"map": double, "text": named, "floats": halved}


@dataclass(frozen=True)
class Chain:
    """A chain that can be built any number of times, as a pipeline and as lists."""

    rows: int
    stored: str
    before: list[tuple[str, Any]] = field(default_factory=list)
    repeat: int = 1
    size: int | None = None
    drop_last: bool = False
    pad: Any = None
    pack: int | None = None
    window: int | None = None
    cost: tuple[str, int] | None = None
    after: list[tuple[str, Any]] = field(default_factory=list)
    repeat_after: int = 1
    workers: Any = None
    prefetch: int | None = None
    shard: tuple[int, int] = (0, 1)

    @staticmethod
    def draw(case: Case, stored: str, rows: int) -> Chain:
        before: list[tuple[str, Any]] = []
        for _ in range(case.between(0, 4)):
            verb = case.pick(
                ["skip", "take", "rows", "shuffle", "filter", *_MAPS, "again", "cache"]
            )
            if verb in ("shuffle", "cache") and any(v == "shuffle" for v, _ in before):
                continue
            before.append((verb, _argument(case, verb, rows)))
        size = case.pick([None, 1, 2, 3, 7, rows + 1])
        after = [
            (case.pick(["skip", "take", "again"]), case.between(0, 5))
            for _ in range(case.between(0, 3))
        ]
        pack = case.pick([None, None, 4, 9]) if size is not None else None
        cost = None
        if pack is None and size is not None and case.chance(0.3):
            cost = case.pick(["tokens", "row", "function"]), case.pick([4, 7, 30])
        return Chain(
            rows,
            stored,
            before,
            case.pick([1, 1, 1, 2, 3]),
            size,
            case.chance(0.3) and size is not None and cost is None,
            case.pick([None, "longest", 3]) if size is not None and pack is None else None,
            pack,
            case.pick([None, 1, 4, 50]) if pack is not None else None,
            cost,
            after if size is not None else [],
            case.pick([1, 1, 1, 2]),
            case.pick([None, None, None, None, "threads:2", 2 if case.chance(0.1) else None]),
            case.pick([None, None, 0, 3]),
        )

    def build(self) -> rm.Stream:
        pipeline: Any = rm.open(self.stored)
        if not self.before:
            pipeline = pipeline.pipeline()  # which has states
        for verb, argument in self.before:
            pipeline = _apply(pipeline, verb, argument, self.workers)
        if self.repeat != 1:
            pipeline = pipeline.repeat(self.repeat)
        if self.pack is not None:
            best = {} if self.window is None else {"fit": "best", "window": self.window}
            packed = pipeline.pack(self.pack, ["tokens"], **best)
            pipeline = packed.map(of_packed, workers=self.workers)
        if self.size is not None:
            pipeline = pipeline.batch(
                self.size, drop_last=self.drop_last, pad=self.pad, **self._cost_options()
            )
        for verb, argument in self.after:
            pipeline = _apply(pipeline, verb, argument, None)
        if self.repeat_after != 1:
            pipeline = pipeline.repeat(self.repeat_after)
        if self.prefetch is not None:
            pipeline = pipeline.prefetch(self.prefetch)
        rank, world = self.shard
        made: rm.Stream = pipeline.shard(rank, world) if world > 1 else pipeline
        return made

    def model(self, iteration: int) -> list[list[Any]]:
        """Return the row numbers of each batch (or of each row) of an iteration.

        For packed rows, return their tokens.
        """
        times = self.repeat * self.repeat_after
        batches: list[list[Any]] = []
        for turn in range(self.repeat_after):
            first = iteration * times + turn * self.repeat
            batches += self._repetition(first)
        return batches

    def _repetition(self, first: int) -> list[list[Any]]:
        epochs = [self._epoch(first + i) for i in range(self.repeat)]
        # What is shuffled, selected or cached after a filter has been counted before.
        last = [verb for verb, _ in self.before if verb in ("filter", "shuffle", "rows", "cache")][
            -1:
        ]
        filtered = last == ["filter"]
        if self.size is None:
            batches = [[row] for epoch in epochs for row in epoch]
        elif filtered and self.cost is None:
            batches = [batch for epoch in epochs for batch in self._batches(epoch)]
        else:
            batches = self._batches([row for epoch in epochs for row in epoch])
        for verb, count in self.after:
            if verb != "again":
                batches = batches[count:] if verb == "skip" else batches[:count]
        return batches

    def _batches(self, numbers: list[int]) -> list[list[Any]]:
        assert self.size is not None
        if self.cost is not None:
            return self._by_cost(numbers)
        rows: list[Any] = numbers
        if self.pack is not None and self.window is None:
            rows = _packed(numbers, self.pack)
        elif self.pack is not None:
            rows = _best_packed(numbers, self.pack, self.window or 1)
        cut = [rows[i : i + self.size] for i in range(0, len(rows), self.size)]
        return [batch for batch in cut if len(batch) == self.size or not self.drop_last]

    def _cost_options(self) -> dict[str, Any]:
        if self.cost is None:
            return {}
        name, limit = self.cost
        return {"cost": _twice_tokens if name == "function" else name, "limit": limit}

    def cost_of(self, numbers: list[int]) -> int:
        """Return what a batch of these rows costs."""
        assert self.cost is not None
        each = {"tokens": lambda row: row % 5, "row": lambda row: row}.get(self.cost[0])
        costs = [each(row) if each else 2 * (row % 5) for row in numbers]
        return sum(costs) if self.pad is None else len(costs) * max(costs)

    def _by_cost(self, numbers: list[int]) -> list[list[Any]]:
        assert self.cost is not None
        made: list[list[Any]] = []
        for number in numbers:
            longer = [*made[-1], number] if made else [number]
            if made and len(longer) <= (self.size or 0) and self.cost_of(longer) <= self.cost[1]:
                made[-1] = longer
            else:
                made.append([number])
        return made

    def _epoch(self, epoch: int) -> list[int]:
        rows = list(range(self.rows))
        for i, (verb, argument) in enumerate(self.before):
            if verb == "skip":
                rows = rows[argument:]
            elif verb == "take":
                rows = rows[:argument]
            elif verb == "rows":
                rows = [rows[j] for j in range(len(rows))[argument]]
            elif verb == "filter":
                rows = [row for row in rows if row % 3 != 1]
            elif verb == "shuffle":
                # recmap chooses the order; check only that it is a permutation.
                alone = replace(
                    _PLAIN, rows=self.rows, stored=self.stored, before=self.before[: i + 1]
                )
                order = alone.build()
                order.epoch = epoch
                shuffled = [int(row["row"]) for row in order]
                if Counter(shuffled) != Counter(rows):
                    raise AssertionError(f"shuffle of {rows} gave {shuffled}")
                rows = shuffled
        return rows


_PLAIN = Chain(0, "")


def _packed(numbers: list[int], length: int) -> list[list[int]]:
    """Join the tokens of rows: each into the fullest row with room, of up to 16 at a time."""
    done, open_rows = list[list[int]](), list[list[int]]()
    for number in numbers:
        tokens = [number] * (number % 5)
        fitting = [row for row in open_rows if len(row) + len(tokens) <= length]
        if not fitting and len(tokens) < length and len(open_rows) == 16:
            done.append(open_rows.pop(open_rows.index(max(open_rows, key=len))))
        if not fitting:
            fitting = [[]]
            open_rows += fitting
        row = max(fitting, key=len)
        row += tokens
        if not row:
            open_rows.remove(row)
        elif len(row) == length:
            open_rows = [each for each in open_rows if each is not row]
            done.append(row)
    return [row + [0] * (length - len(row)) for row in done + open_rows]


def _best_packed(numbers: list[int], length: int, window: int) -> list[list[int]]:
    """Join the tokens of rows, the longest of a window first; 16 rows stay open after each."""
    done, open_rows = list[list[int]](), list[list[int]]()
    there = [number for number in numbers if number % 5]
    for start in range(0, len(there), window):
        for number in sorted(there[start : start + window], key=lambda number: -(number % 5)):
            tokens = [number] * (number % 5)
            fitting = [row for row in open_rows if len(row) + len(tokens) <= length]
            if not fitting:
                fitting = [[]]
                open_rows += fitting
            row = max(fitting, key=len)
            row += tokens
        newest = list(enumerate(row for row in open_rows if len(row) < length))
        newest.sort(key=lambda each: (len(each[1]), -each[0]))
        kept = {id(row) for _, row in newest[:16]}
        done += [row for row in open_rows if id(row) not in kept]
        open_rows = [row for row in open_rows if id(row) in kept]
    return [row + [0] * (length - len(row)) for row in done + open_rows]


def _argument(case: Case, verb: str, rows: int) -> Any:
    if verb in ("skip", "take"):
        return case.between(0, rows + 1)
    if verb == "rows":
        return slice(case.between(0, rows), case.between(0, rows), case.pick([None, 1, 2]))
    return case.between(0, 9)


def _apply(pipeline: Any, verb: str, argument: Any, workers: Any) -> Any:
    if verb == "skip":
        return pipeline.skip(argument)
    if verb == "take":
        return pipeline.take(argument)
    if verb == "rows":
        return pipeline.select(argument)
    if verb == "filter":
        return pipeline.filter(keep)
    if verb == "again":
        return pipeline.map(again, batched=True)
    if verb == "cache":
        return pipeline.cache(memory="1MB" if argument < 3 else None)
    if verb in _MAPS:
        return pipeline.map(_MAPS[verb], workers=workers)
    return pipeline.shuffle(seed=argument)


def case(case: Case) -> None:
    rows = case.pick([1, 2, 5, 13, 30])
    os.environ["RECMAP_CACHE"] = case.path("cache")
    stored = store(case, rows)
    chain = Chain.draw(case, stored, rows)
    case.note(str(chain))
    try:
        pipeline = chain.build()
    except rm.OptionError as e:
        case.note(f"refused: {e}")
        case.outcome = "refused"
        return
    with unseen_types(case, chain), rows_too_expensive(case, chain):
        _iterate(case, chain, pipeline)


@contextmanager
def unseen_types(case: Case, chain: Chain) -> Iterator[None]:
    """Let a function be refused that makes what the first rows of the first epoch do not show.

    They have no batch, or only empty lists of what turns out to be text.
    """
    try:
        yield
    except rm.MapError as e:
        if chain.model(0) and "'names' is text[*], but the first rows show float64" not in str(e):
            raise
        case.note(f"refused: {e}")
        case.outcome = "refused"


@contextmanager
def rows_too_expensive(case: Case, chain: Chain) -> Iterator[None]:
    """Let a row be refused that costs more than a batch may."""
    try:
        yield
    except rm.DataError as e:
        whole = replace(chain, after=[])
        rows = [row for batch in whole.model(0) + whole.model(1) for row in batch]
        if chain.cost is None or all(chain.cost_of([row]) <= chain.cost[1] for row in rows):
            raise
        case.note(f"refused: {e}")
        case.outcome = "refused"


def _iterate(case: Case, chain: Chain, pipeline: rm.Stream) -> None:
    wanted = [chain.model(0), chain.model(1)]
    for iteration in range(2):
        held = list(pipeline)  # no batch may change after it was given out
        _compare([numbers_of(batch) for batch in held], wanted[iteration], f"epoch {iteration}")
    built, verbs = chain.build(), [verb for verb, _ in chain.before]
    # Rows that are filtered after a shuffle have numbers in the first epoch only.
    later = chain.repeat * chain.repeat_after > 1 and "filter" in verbs and "shuffle" in verbs
    if isinstance(built, rm.Dataset) and not later:
        _by_number(case, built, [row for [row] in wanted[0]])
    _resumed(case, chain, wanted)
    if case.chance(0.4):
        _divided_among_ranks(case, chain)


def _by_number(case: Case, rows: rm.Dataset, wanted: list[Any]) -> None:
    """Rows by number, and saved ones, are those of the first epoch."""
    if len(rows) != len(wanted):
        raise AssertionError(f"{len(rows)} rows, but lists give {len(wanted)}")
    _compare([numbers_of(rows[:])] if wanted else [[]], [wanted], "by number")
    some = [case.between(0, len(wanted) - 1) for _ in range(3)] if wanted else []
    _compare([numbers_of(rows[i]) for i in some], [[wanted[i]] for i in some], "one by one")
    if case.chance(0.3):
        path = case.path("saved.npz")
        rows.save(path, progress=False)
        found = [int(row["row"]) for row in rm.open(path)]
        _compare([found], [wanted], "saved")


def store(case: Case, rows: int, zarr: bool = True) -> str:
    endings = [".tfrecord", ".tfrecord.gz", ".npz", ".h5"] + [".zarr"] * zarr
    path = case.path("x" + case.pick(endings))
    tokens = rm.Ragged.from_rows([np.full(i % 5, i) for i in range(rows)], np.int64)
    rm.from_arrays({"row": np.arange(rows), "tokens": tokens}).save(path)
    return path


def numbers_of(batch: Row) -> list[Any]:
    if "segments" in batch:
        return _tokens(batch)
    rows = np.atleast_1d(batch["row"]).tolist()
    made = {
        "twice": [2 * row for row in rows],
        "again": rows,
        "half": [row / 2 for row in rows],
        "name": [f"row {row}" for row in rows],
        "names": [["é"] * (row % 3) for row in rows],
    }
    _check_columns(batch, made, one=not np.ndim(batch["row"]))
    tokens = batch["tokens"] if np.ndim(batch["row"]) else [batch["tokens"]]
    for row, values in zip(rows, tokens, strict=True):
        real = [value for value in np.asarray(values).tolist() if value]
        if real != [row] * min(len(real), row % 5) or (row % 5 and row and not real):
            raise AssertionError(f"row {row} has tokens {values}")
    return [int(row) for row in rows]


def _tokens(batch: Row) -> list[Any]:
    """Return the tokens of packed rows."""
    rows: list[list[int]] = batch["tokens"].tolist()
    sizes = [sum(map(bool, row)) for row in rows]
    _check_columns(batch, {"size": sizes, "again": [row[0] for row in rows]}, one=False)
    for row, segments in zip(rows, batch["segments"].tolist(), strict=True):
        ends = [a != b for a, b in pairwise(segments)]  # the same row may follow itself
        if any(a != b and not end for (a, b), end in zip(pairwise(row), ends, strict=True)):
            raise AssertionError(f"tokens {row} have segments {segments}")
    return rows


def _check_columns(batch: Row, made: Mapping[str, list[Any]], one: bool) -> None:
    for name in made.keys() & batch.keys():
        if name == "names" and not any(made[name]):
            continue  # empty lists do not show that they are of text, and are padded as numbers
        column = batch[name]
        found = column.tolist() if hasattr(column, "tolist") else column
        if ([found] if one else found) != made[name]:
            raise AssertionError(f"{name} is {found}, not {made[name]}")


def _compare(found: list[list[Any]], wanted: list[list[Any]], where: str) -> None:
    if found != wanted:
        raise AssertionError(f"{where}: {found}, but lists give {wanted}")


def _resumed(case: Case, chain: Chain, wanted: list[list[list[Any]]]) -> None:
    """Stop anywhere: the resumed run gives the remaining rows, and then the next epoch."""
    cut = case.between(0, len(wanted[0]))
    stopped = chain.build()
    batches = iter(stopped)
    for _ in range(cut):
        next(batches)
    state = json.loads(json.dumps(stopped.state()))
    batches.close()  # type: ignore[attr-defined]
    case.note(f"resumed after {cut} of {len(wanted[0])}")
    again = chain.build().restore(state)
    rest = [numbers_of(batch) for batch in again]
    after = [numbers_of(batch) for batch in again]
    if cut == len(wanted[0]) and cut:
        # The epoch was complete: the next one begins.
        _compare(rest, wanted[1], "after the last batch")
        return
    _compare(rest, wanted[0][cut:], "the rest")
    _compare(after, wanted[1], "the epoch after the rest")


def _divided_among_ranks(case: Case, chain: Chain) -> None:
    """Check that every row goes to exactly one rank."""
    if chain.drop_last or chain.after or chain.pack or chain.repeat != 1 or chain.repeat_after != 1:
        return
    world = case.between(2, 4)
    case.note(f"{world} ranks")
    received: Counter[int] = Counter()
    steps, divisible = set[int](), False
    for rank in range(world):
        try:
            mine = replace(chain, shard=(rank, world)).build()
        except rm.OptionError as e:
            case.note(f"refused: {e}")
            return
        held = list(mine)
        steps.add(len(held))
        for batch in held:
            received.update(numbers_of(batch))
            divisible |= len(numbers_of(batch)) > 1
    wanted = Counter(row for batch in chain.model(0) for row in batch)
    if received != wanted:
        raise AssertionError(f"{world} ranks got {received}, not {wanted}")
    if chain.cost is not None and len(steps) > 1 and divisible:
        raise AssertionError(f"{world} ranks take {steps} steps")
