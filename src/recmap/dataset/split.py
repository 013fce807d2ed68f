"""ds.split: divide rows at random into several sources."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.dataset.column_scan import from_rows
from recmap.errors import OptionError
from recmap.machine.mapped import guarded
from recmap.model.batch import Positions, RowArray
from recmap.model.order import Chained, Late, Order, Span, is_counted
from recmap.model.permutation import Permutation
from recmap.model.ragged import Column, Ragged, has_mask
from recmap.model.remembered import Remembered
from recmap.model.source import Source

Bits: TypeAlias = npt.NDArray[np.bool_]

# Makes a split independent of a shuffle with the same seed.
_SALT = 0x5917
_MOST_PARTS = 100
_NONE = 255
_BLOCK = 64
_AT_ONCE = 1 << 13
_READ_SIZE = 4 << 20
_MOST_SWAPS = 1000


class _Marked(Order):
    """Marked rows in file order: a bit for each row, and a running count every 64 rows."""

    def __init__(self, mine: npt.NDArray[np.bool_]) -> None:
        padded = np.zeros(-(-len(mine) // _BLOCK) * _BLOCK, bool)
        padded[: len(mine)] = mine
        counts = padded.reshape(-1, _BLOCK).sum(axis=1, dtype=np.int64)
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self._bits = np.packbits(padded).reshape(-1, _BLOCK // 8)

    @property
    def count(self) -> int:
        return int(self._starts[-1])

    @property
    def gap(self) -> int:
        return 1

    def numbers(self, positions: Positions, epoch: int = 0) -> RowArray:
        del epoch
        found = np.empty(len(positions), np.int64)
        for begin in range(0, len(positions), _AT_ONCE):
            wanted = positions[begin : begin + _AT_ONCE]
            block = np.searchsorted(self._starts, wanted, side="right") - 1
            bits = np.unpackbits(self._bits[block], axis=1)
            nth = (wanted - self._starts[block] + 1)[:, None]
            within = np.argmax(np.cumsum(bits, axis=1, dtype=np.uint8) == nth, axis=1)
            found[begin : begin + len(wanted)] = block * _BLOCK + within
        return found


def split(
    source: Source,
    parts: Mapping[str, float],
    seed: int,
    by: str | None,
    stratify: str | None,
    reopen: Callable[[], Source] | None,
) -> dict[str, Order]:
    """Return the rows of each part. They are found when they are first needed."""
    _check(source, parts, seed, by, stratify)
    compute = partial(_parts, parts=dict(parts), seed=seed, by=by, stratify=stratify)
    found = from_rows(source, compute, reopen)
    known = partial(_is_known, found) if by or stratify else partial(is_counted, source)
    return {name: Late(partial(_part, found, name), known) for name in parts}


def _part(found: Remembered[int, dict[str, Order]], name: str) -> Order:
    return found.at(0)[name]


def _is_known(found: Remembered[int, dict[str, Order]]) -> bool:
    return found.known(0) is not None


@guarded
def _parts(
    source: Source, parts: Mapping[str, float], seed: int, by: str | None, stratify: str | None
) -> dict[str, Order]:
    shares, total = list(parts.values()), len(source)
    _check_total(parts, total)
    if by is None and stratify is None:
        counts = _counts(total, shares)
        ends = np.cumsum([0, *counts]).tolist()
        if source.facts.chunk_rows() == 1:
            spans = [Span(range(begin, end)) for begin, end in pairwise(ends)]
            mixed = Permutation(total, [seed, _SALT])
            return {n: Chained(mixed, span) for n, span in zip(parts, spans, strict=True)}
        # Rows in chunks are fast to read only in file order, so keep it.
        labels = np.full(total, _NONE, np.uint8)
        for part, (begin, end) in enumerate(pairwise(ends)):
            for start in range(begin, end, 1 << 20):
                some = np.arange(start, min(end, start + (1 << 20)), dtype=np.int64)
                labels[Permutation(total, [seed, _SALT])[some]] = part
    elif by is not None and stratify is not None:
        labels = _by_value_and_class(source, by, stratify, shares, seed)
    elif by is not None:
        labels = _by_value(source, by, shares, seed)
    else:
        assert stratify is not None
        labels = _by_class(source, stratify, shares, seed)
    return {name: _Marked(labels == part) for part, name in enumerate(parts)}


def _check(source: Source, parts: Any, seed: Any, by: str | None, stratify: str | None) -> None:
    if not isinstance(parts, Mapping) or not parts or len(parts) > _MOST_PARTS:
        raise OptionError('split: give the shares of the parts: split({"train": 0.8, "val": 0.2})')
    if not _is_whole(seed):
        raise OptionError(f"split: seed={seed!r}: give a whole number of 0 or more")
    for name, share in parts.items():
        real = isinstance(share, float | np.floating) and math.isfinite(share)
        if not isinstance(name, str) or not (_is_whole(share) or (real and 0 <= share <= 1)):
            raise OptionError(
                f"split: {name!r}: {share!r} is neither a share of 0.0 to 1.0 nor a number of rows"
            )
    whole = [_is_whole(share) for share in parts.values()]
    if any(whole) and not all(whole):
        raise OptionError("split: give shares (0.8) for all parts, or numbers of rows for all")
    if any(whole) and (by is not None or stratify is not None):
        raise OptionError("split: by and stratify take shares (0.8), not numbers of rows")
    if source.facts.once:
        raise OptionError("split: rows that come only once cannot be split; save them first")
    _check_total(parts, source.known_rows())
    for column in (by, stratify):
        if column is not None:
            source.schema[column]  # raises an error that lists the columns


def _check_total(parts: Mapping[str, float], rows: int | None) -> None:
    whole = any(map(_is_whole, parts.values()))
    if whole and rows is None:
        return  # checked when they are counted
    most = rows if whole else 1.0
    assert most is not None
    if sum(parts.values()) > most + (0 if whole else 1e-9):
        raise OptionError(f"split: the parts come to {sum(parts.values())} of {most:,}")


def _is_whole(value: Any) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_)
    return bool(whole and value >= 0)


def _counts(total: int, shares: Sequence[float]) -> list[int]:
    """Return the number of rows in each part, as close to the shares as possible."""
    if all(_is_whole(share) for share in shares):
        return [int(share) for share in shares]
    exact = [total * share for share in shares]
    counts = [math.floor(rows + 1e-9) for rows in exact]
    left = round(total * sum(shares)) - sum(counts)
    largest = sorted(range(len(shares)), key=lambda part: counts[part] - exact[part])
    for part in largest[: max(0, left)]:
        counts[part] += 1
    return counts


def _values(source: Source, name: str) -> Iterator[tuple[int, list[bytes], npt.NDArray[np.int64]]]:
    """Yield blocks of a column: first row, distinct values, and the value index of each row."""
    column = source.select([name])
    rows, start = max(1, _READ_SIZE // max(8, column.row_bytes())), 0
    while start < len(column):
        read = column.read(start, start + rows)[name]
        yield start, *_distinct(read)
        start += len(read)


def _distinct(column: Column) -> tuple[list[bytes], npt.NDArray[np.int64]]:
    countable = not isinstance(column, Ragged) and column.dtype.kind in "iufb"
    if isinstance(column, np.ndarray) and countable and column.ndim == 1 and not has_mask(column):
        values, which = np.unique(column, return_inverse=True)
        return [_spelled(value) for value in values.tolist()], which.reshape(-1)
    numbers: dict[bytes, int] = {}
    which = np.empty(len(column), np.int64)
    for i in range(len(column)):
        which[i] = numbers.setdefault(_spelled(column[i]), len(numbers))
    return list(numbers), which


def _spelled(value: Any) -> bytes:
    """Return a value as bytes. Equal values give the same bytes on every machine."""
    if value is None:
        return b"\0null"
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, np.ndarray) and value.ndim:
        return _joined(value.reshape(-1).tolist())
    if isinstance(value, Ragged):
        return _joined(value[i] for i in range(len(value)))
    if isinstance(value, np.ndarray | np.generic):
        value = value.item()
    if isinstance(value, complex | np.complexfloating):
        return _joined([value.real, value.imag])
    if isinstance(value, float | np.floating):  # -0.0 equals 0.0, and all NaNs count as equal
        return b"nan" if math.isnan(value) else str(value + 0).encode()
    return str(value).encode()


def _joined(values: Iterable[Any]) -> bytes:
    """Return several values as bytes, different for different lists of values."""
    parts = [_spelled(value) for value in values]
    return b"".join(b"%d:%b" % (len(part), part) for part in parts)


def _by_value(
    source: Source, column: str, shares: Sequence[float], seed: int
) -> npt.NDArray[np.uint8]:
    edges = np.cumsum([float(share) for share in shares])
    if abs(edges[-1] - 1) < 1e-9:
        edges[edges >= edges[-1]] = 1.0
    labels = np.empty(len(source), np.uint8)
    for start, values, which in _values(source, column):
        chances = [_chance(value, seed) for value in values]
        part = np.searchsorted(edges, chances, side="right")
        part = np.where(part < len(shares), part, _NONE)
        labels[start : start + len(which)] = part[which]
    return labels


def _chance(value: bytes, seed: int) -> float:
    """Return a number from 0 to 1 that depends only on the value and the seed."""
    key = hashlib.blake2b(f"{seed}\0".encode() + value, digest_size=8).digest()
    return (int.from_bytes(key, "little") >> 11) / (1 << 53)


def _codes(source: Source, column: str) -> tuple[npt.NDArray[np.int32], list[bytes]]:
    """Return a number for the value of each row, and the values by number."""
    numbers: dict[bytes, int] = {}
    codes = np.empty(len(source), np.int32)
    for start, values, which in _values(source, column):
        known = np.array([numbers.setdefault(v, len(numbers)) for v in values], np.int32)
        codes[start : start + len(which)] = known[which]
    return codes, list(numbers)


def _by_value_and_class(
    source: Source, by: str, stratify: str, shares: Sequence[float], seed: int
) -> npt.NDArray[np.uint8]:
    """Keep rows of one value together, and give each part its share of every class.

    Values with the same numbers of rows in the same classes are interchangeable, and dealt out in
    proportion. The rest, the largest first, go where they bring the classes closest to the shares.
    """
    groups, values = _codes(source, by)
    classes, names = _codes(source, stratify)
    # Number the classes by name, so that the order of rows does not matter.
    places = {name: number for number, name in enumerate(sorted(names))}
    classes = np.array([places[name] for name in names], np.int32)[classes]
    chances = [_chance(value, seed) for value in values]
    pairs, counts = np.unique(groups.astype(np.int64) * len(names) + classes, return_counts=True)
    ends = np.searchsorted(pairs, np.arange(len(values) + 1) * len(names))
    held = [(pairs[a:b] % len(names), counts[a:b]) for a, b in pairwise(ends.tolist())]
    total = np.bincount(classes, minlength=len(names))
    every = np.array([*shares, max(0.0, 1.0 - sum(shares))])  # the last is for rows in no part
    every[every < 1e-9] = 0
    lacks = np.outer(every, total)
    parts = np.full(len(values), len(shares), np.uint8)

    alike: dict[bytes, list[int]] = {}
    for group in sorted(range(len(values)), key=chances.__getitem__):
        alike.setdefault(b"%b:%b" % tuple(map(bytes, held[group])), []).append(group)
    rest: list[int] = []
    for members in alike.values():
        those, rows = held[members[0]]
        each = np.floor(len(members) * every + 1e-9).astype(np.int64)
        dealt = int(each.sum())
        parts[members[:dealt]] = np.repeat(np.arange(len(every)), each)
        lacks[:, those] -= np.outer(each, rows)
        rest += members[dealt:]
    for group in sorted(rest, key=lambda group: (-int(held[group][1].sum()), chances[group])):
        those, rows = held[group]
        # How much closer to the shares each part would come, in squares.
        closer = (rows * (2 * lacks[:, those] - rows) / total[those]).sum(axis=1)
        part = int(np.argmax(np.where(every > 0, closer, -np.inf)))
        parts[group] = part
        lacks[part, those] -= rows
    return np.where(parts < len(shares), parts, _NONE).astype(np.uint8)[groups]


def _by_class(
    source: Source, column: str, shares: Sequence[float], seed: int
) -> npt.NDArray[np.uint8]:
    codes, values = _codes(source, column)
    sizes = np.bincount(codes, minlength=len(values))
    order = np.argsort(codes, kind="stable")
    labels = np.full(len(source), _NONE, np.uint8)
    ends = np.cumsum([0, *sizes])
    for number, counts in enumerate(_table(sizes.tolist(), shares)):
        members = order[ends[number] : ends[number + 1]]
        mixed = members[Permutation(len(members), [seed, _SALT, number])[np.arange(len(members))]]
        parts = np.repeat(np.arange(len(shares), dtype=np.uint8), counts)
        labels[mixed[: len(parts)]] = parts
    return labels


def _table(sizes: Sequence[int], shares: Sequence[float]) -> list[list[int]]:
    """Return the number of rows of each class in each part.

    Each is the part's share of the class, rounded so that every part also gets its share of
    all rows.
    """
    rest = max(0.0, 1.0 - sum(shares))
    all_shares = [*shares, rest if rest > 1e-9 else 0.0]  # the last is for rows in no part
    wanted = _counts(sum(sizes), shares)
    wanted.append(sum(sizes) - sum(wanted))
    exact = np.outer(sizes, all_shares)
    table = np.floor(exact + 1e-9).astype(np.int64)
    may = exact - table > 1e-9
    up = np.zeros_like(may)
    need = np.array(wanted) - table.sum(axis=0)
    for number, size in enumerate(sizes):
        # Round up the parts that lack the most rows, among those that may be rounded up.
        over = exact[number] - table[number]
        ranked = np.lexsort((-over, -need, ~may[number]))
        chosen = ranked[: size - int(table[number].sum())]
        up[number, chosen] = True
        need[chosen] -= 1
    for _ in range(_MOST_SWAPS):
        path = _path(up, may, need)
        if not path:
            break
        for give, get in pairwise(path):
            number = int(np.argmax(up[:, give] & may[:, get] & ~up[:, get]))
            up[number, [give, get]] = False, True
        need[[path[0], path[-1]]] += 1, -1
    return [[int(n) for n in row[:-1]] for row in table + up]


def _path(up: Bits, may: Bits, need: npt.NDArray[np.int64]) -> list[int]:
    """Return a path from a part with too many rows to one with too few.

    Each part on the path can give a row of some class to the next.
    """
    edges = up.T.astype(np.int64) @ (may & ~up).astype(np.int64) > 0
    before = {int(part): -1 for part in np.flatnonzero(need < 0)}
    waiting = list(before)
    while waiting:
        part = waiting.pop(0)
        if need[part] > 0:
            path = [part]
            while before[path[0]] >= 0:
                path.insert(0, before[path[0]])
            return path
        for following in np.flatnonzero(edges[part]).tolist():
            if following not in before:
                before[following] = part
                waiting.append(following)
    return []
