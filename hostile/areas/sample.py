"""Random samples, sorts and selections, compared with plain Python on lists."""

from __future__ import annotations

import json
import math
import warnings
from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import accumulate
from typing import Any

import numpy as np

import recmap as rm
from hostile.case import Case

__all__ = ["case"]

_MASK = (1 << 64) - 1
_SALT = 0x5A3917
_ENDINGS = [".tfrecord", ".npz", ".h5", ".parquet"]


def case(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rm.SlowOrderWarning)
        _case(case)


def _case(case: Case) -> None:
    rows = case.pick([1, 2, 3, 10, 37, 200])
    columns = _columns(case, rows)
    path = case.path("x" + case.pick(_ENDINGS))
    rm.from_arrays({name: column for name, (column, _) in columns.items()}).save(path)
    ds = rm.open(path)
    case.note(f"{rows} rows in {path}")
    [_sample, _sort, _select][case.between(0, 2)](
        case, ds, {name: values for name, (_, values) in columns.items()}
    )


def _columns(case: Case, rows: int) -> dict[str, tuple[Any, list[Any]]]:
    """Return columns, each as recmap takes it and as a list."""
    kinds = case.between(1, min(rows, 5))
    codes = case.rng.integers(0, kinds, rows)
    weights = case.pick(
        [
            case.rng.random(rows),
            case.rng.random(rows) ** 12,
            case.rng.integers(0, 3, rows).astype(np.float64),
            10.0 ** case.rng.uniform(-300, 300, rows),
            np.full(rows, 0.1),
        ]
    )
    numbers = case.pick(
        [
            case.rng.integers(-3, 3, rows),
            case.rng.integers(-(2**63), 2**63 - 1, rows),
            case.rng.choice([0.0, -0.0, 1.5, np.nan, np.inf, -np.inf], rows),
            case.rng.integers(0, 255, rows).astype(np.uint8),
        ]
    )
    texts = ["".join(case.rng.choice(list("aé\0Zz"), case.between(0, 12))) for _ in range(kinds)]
    text = [texts[code] for code in codes]
    return {
        "row": (np.arange(rows), list(range(rows))),
        "weight": (weights, weights.tolist()),
        "number": (numbers, numbers.tolist()),
        "code": (codes, codes.tolist()),
        "text": (rm.Ragged.from_text(text), text),
        "bytes": (rm.Ragged.from_bytes([t.encode() for t in text]), [t.encode() for t in text]),
    }


# The model of a draw: a number of 53 bits is hashed from the seed, the epoch and the position.


def _key(seed: int, epoch: int) -> int:
    return int(np.random.SeedSequence([seed, epoch, _SALT]).generate_state(1, np.uint64)[0])


def _hashed(number: int, key: int) -> int:
    mixed = ((number + 1) * 0x9E3779B97F4A7C15 + key) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)


def _below(count: int, position: int, key: int) -> tuple[int, float]:
    chance = float(_hashed(position, key) >> 11) * (count * 2.0**-53)
    return int(chance), chance - int(chance)


def _uniform(rows: int, position: int, key: int) -> int:
    return _below(rows, position, key)[0]


def _weighted(weights: list[float], positions: range, key: int) -> list[int]:
    """Draw from slots: a light row's is filled up by the heavy row whose turn it is."""
    count, most = len(weights), max(weights)
    scaled = [weight / most for weight in weights]
    unit = count / list(accumulate(scaled))[-1]
    shares = [each * unit for each in scaled]
    best = scaled.index(max(scaled))
    heavy = [row for row in range(count) if shares[row] >= 1 or row == best]
    light = [row for row in range(count) if row not in set(heavy)]
    given = list(accumulate(max(shares[row] - 1, 0) for row in heavy))
    lacking = [1 - shares[row] for row in light]
    taken = list(accumulate(lacking))
    slots = {row: (1.0, row) for row in heavy}
    for i, row in enumerate(light):
        donor = min(bisect_left(given, taken[i] - lacking[i]), len(heavy) - 1)
        slots[row] = (shares[row], heavy[donor])
    for j, row in enumerate(heavy[:-1]):
        past = bisect_right(taken, given[j])
        if past < len(light):
            slots[row] = (min(max(1 + given[j] - taken[past], 0), 1), heavy[j + 1])
    drawn = []
    for position in positions:
        slot, chance = _below(count, position, key)
        keep, other = slots[slot]
        kept = int(chance * 2.0**32) < min(round(keep * 2.0**32), 2**32 - 1)
        drawn.append(slot if kept else other)
    return drawn


def _balanced(classes: list[Any], positions: range, key: int) -> list[int]:
    members: dict[Any, list[int]] = {}
    # Classes are numbered as blocks of rows are read: each block's in sorted order.
    for value in sorted(set(classes)):
        members[value] = [row for row, each in enumerate(classes) if each == value]
    drawn = []
    for position in positions:
        which, chance = _below(len(members), position, key)
        rows = list(members.values())[which]
        drawn.append(rows[int(chance * len(rows))])
    return drawn


def _sample(case: Case, ds: rm.Dataset, values: dict[str, list[Any]]) -> None:
    rows, seed = len(values["row"]), case.between(0, 99)
    options: dict[str, Any] = {"seed": seed, "replace": case.chance(0.6)}
    way = case.pick(["uniform", "weights", "array", "balance"])
    weights = values["weight"]
    if way == "weights":
        options["weights"] = "weight"
    elif way == "array":
        options["weights"] = case.pick([weights, np.array(weights)])
    elif way == "balance":
        options["balance"] = case.pick(["code", "text", "bytes"])
    else:
        weights = [1.0] * rows
    options["n"] = case.pick([None, 0, 1, case.between(0, rows), 2 * rows])
    count = rows if options["n"] is None else options["n"]
    case.note(f"sample({options})")
    possible = _possible(options, values, weights, count)
    size = case.pick([1, 3, 50])
    try:
        train = ds.sample(**options).batch(size)
        epochs = [[batch["row"].tolist() for batch in train] for _ in range(2)]
    except (rm.OptionError, rm.DataError) as e:
        if possible:
            raise
        case.note(f"refused: {e}")
        case.outcome = "refused"
        return
    if not possible:
        raise AssertionError(f"{options} should be refused")
    for epoch, batches in enumerate(epochs):
        drawn = [row for batch in batches for row in batch]
        _check_drawn(drawn, options, values, weights, count, epoch)
    _check_resumed(case, ds, options, size, epochs)


def _possible(
    options: dict[str, Any], values: dict[str, list[Any]], weights: list[float], count: int
) -> bool:
    if not options["replace"] and count > len(weights):
        return False
    if count == 0:
        return True
    if "weights" in options:
        drawable = sum(weight > 0 for weight in weights)
        return drawable > 0 and (options["replace"] or count <= drawable)
    if "balance" in options and not options["replace"]:
        sizes = Counter(values[options["balance"]])
        return math.ceil(count / len(sizes)) <= min(sizes.values())
    return True


def _check_drawn(
    drawn: list[int],
    options: dict[str, Any],
    values: dict[str, list[Any]],
    weights: list[float],
    count: int,
    epoch: int,
) -> None:
    if len(drawn) != count:
        raise AssertionError(f"{len(drawn)} rows, not {count}")
    key, positions = _key(options["seed"], epoch), range(count)
    if not options["replace"]:
        if len(set(drawn)) != count:
            raise AssertionError(f"a row comes twice: {drawn}")
        if "weights" in options and any(weights[row] <= 0 for row in drawn):
            raise AssertionError(f"a row without weight is drawn: {drawn}")
        if "balance" in options and count:
            sizes = Counter(values[options["balance"]][row] for row in drawn)
            if max(sizes.values()) - count // len(set(values[options["balance"]])) > 1:
                raise AssertionError(f"classes are not even: {sizes}")
        return
    if not count:
        wanted = []
    elif "weights" in options:
        wanted = _weighted(weights, positions, key)
    elif "balance" in options:
        wanted = _balanced(values[options["balance"]], positions, key)
    else:
        wanted = [_uniform(len(weights), position, key) for position in positions]
    if drawn != wanted:
        raise AssertionError(f"epoch {epoch}: {drawn}, but the model draws {wanted}")


def _check_resumed(
    case: Case, ds: rm.Dataset, options: dict[str, Any], size: int, epochs: list[Any]
) -> None:
    cut = case.between(0, len(epochs[0]))
    stopped = ds.sample(**options).batch(size)
    batches = iter(stopped)
    for _ in range(cut):
        next(batches)
    state = json.loads(json.dumps(stopped.state()))
    again = ds.sample(**options).batch(size).restore(state)
    rest = [batch["row"].tolist() for batch in again]
    wanted = epochs[1] if cut == len(epochs[0]) and cut else epochs[0][cut:]
    if rest != wanted:
        raise AssertionError(f"after {cut} batches: {rest}, not {wanted}")
    world = case.between(2, 3)
    dealt = Counter[int]()
    for rank in range(world):
        share = ds.sample(**options).batch(size).shard(rank, world)
        dealt.update(row for batch in share for row in batch["row"].tolist())
    if dealt != Counter(row for batch in epochs[0] for row in batch):
        raise AssertionError(f"{world} ranks got {dealt}")


def _sort(case: Case, ds: rm.Dataset, values: dict[str, list[Any]]) -> None:
    name, descending = case.pick(["number", "text", "bytes", "weight"]), case.chance(0.5)
    case.note(f"sort({name!r}, descending={descending})")
    keys, rows = values[name], values["row"]
    last = [row for row in rows if keys[row] != keys[row]]
    known = [row for row in rows if keys[row] == keys[row]]
    wanted = sorted(known, key=keys.__getitem__, reverse=descending) + last
    found = ds.sort(name, descending=descending)
    if found[:]["row"].tolist() != wanted:
        raise AssertionError(f"{found[:]['row'].tolist()}, but Python sorts {wanted}")
    again = found.sort("row")[:]["row"].tolist()
    if again != rows:
        raise AssertionError(f"sorted back: {again}")


def _select(case: Case, ds: rm.Dataset, values: dict[str, list[Any]]) -> None:
    rows = len(values["row"])
    mask = case.rng.random(case.pick([rows, rows, rows, rows + 1, max(0, rows - 1)])) < 0.5
    numbers = case.rng.integers(-rows, rows + case.between(0, 1), case.between(0, 2 * rows))
    what: Any = case.pick([mask, mask.tolist(), numbers, numbers.tolist(), numbers.astype("i2")])
    case.note(f"select({what!r})")
    plain = np.asarray(what).tolist()
    is_mask = np.asarray(what).dtype == bool and len(plain) > 0
    try:
        found = [int(row["row"]) for row in ds.select(what)]
    except rm.RowNotFoundError as e:
        case.note(f"refused: {e}")
        fits = len(plain) == rows if is_mask else all(-rows <= n < rows for n in plain)
        if fits and not (isinstance(what, np.ndarray) and what.dtype == bool and not len(what)):
            raise
        case.outcome = "refused"
        return
    wanted = [row for row in range(rows) if plain[row]] if is_mask else [n % rows for n in plain]
    if found != wanted:
        raise AssertionError(f"{found}, but lists give {wanted}")
