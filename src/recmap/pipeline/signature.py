"""What a state was saved from: the data and the verbs of the pipeline.

A state holds enough of both to refuse a pipeline with other data or other verbs, and to say
what differs: short texts for people, digests for the rest. Files are identified by their
names, sizes and some of their bytes, not by their folder, and objects in a store by their
ETags. Functions are identified by their qualified names; lambdas, which have none, also by
their code.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from inspect import signature
from types import CodeType
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.local.file_state import STORE_FILES
from recmap.local.local_path import located
from recmap.local.location import Location
from recmap.model.preview import quantity
from recmap.model.ragged import Column, Ragged
from recmap.model.source import Source

# Names and characters that a state spells out; a digest covers the rest.
_NAMES, _LETTERS = 6, 120
# How many files to sample, the bytes to read in each place, and the places in each file.
_LOOKED_AT, _BYTES, _PLACES = 64, 4096, 3
# Rows in memory to sample: this many, or more up to this many bytes.
_ROWS, _ROWS_SIZE = 16, 1 << 20
# Entries of a folder to include.
_ENTRIES = 256
# Addresses differ from one process to the next.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
# Bytecode cannot be compared between Python versions.
_PYTHON = str(sys.implementation.cache_tag)


class Seed:
    """The seed of a shuffle, shared by all pipelines built on one ``shuffle()``.

    If the user gives no seed, one is drawn. Restoring a state replaces a drawn seed.
    """

    def __init__(self, value: int, drawn: bool = False) -> None:
        self.value, self.drawn = value, drawn

    def __repr__(self) -> str:
        return f"{self.value} (drawn)" if self.drawn else str(self.value)


def drawn_seed() -> Seed:
    """Draw a seed."""
    return Seed(int.from_bytes(os.urandom(4), "little"), drawn=True)


@dataclass(frozen=True)
class VerbRecord:
    """A verb with its arguments, as written in states: ``batch(4)``.

    ``{seed}`` in the template stands for the value of the seed, which may change when a
    state is restored. ``code`` is a digest of the code of a lambda. ``written`` is the verb as
    the user writes it, where states have other words for it. ``function`` is what it calls.
    """

    template: str
    seed: Seed | None = None
    code: str | None = None
    written: str | None = None
    function: Any = field(default=None, compare=False)
    #: What tells it from others where a state does not: a state resumes under another schedule.
    detail: str = ""

    @property
    def name(self) -> str:
        """The name of the verb."""
        return self.template.partition("(")[0].rpartition(" ")[2]  # without "1: "

    @property
    def draws(self) -> bool:
        """Whether the verb draws a new order, or new rows, in every epoch."""
        return self.name == "mix" or (
            self.seed is not None and "reshuffle=False" not in self.template
        )

    def text(self, seed: int | None = None) -> str:
        """Return the verb as text, with its own seed or another one."""
        if self.seed is None:
            return self.template
        return self.template.replace("{seed}", str(self.seed.value if seed is None else seed))

    def identity(self) -> str:
        """Return the verb as text that tells it from all others, also by what its function does."""
        from recmap.pipeline.function_digest import function_digest

        digest = "" if self.function is None else f" {function_digest(self.function)}"
        return self.text() + self.detail + digest

    def fingerprint(self) -> str | None:
        """Return text that tells the verb from all others for good, or None if nothing does."""
        from recmap.pipeline.function_digest import function_fingerprint

        if self.function is None:
            return self.text()
        digest = function_fingerprint(self.function)
        return None if digest is None else f"{self.text()} {digest}"

    def pattern(self) -> str:
        """Return a regular expression of the identity, with a group for a drawn seed."""
        if self.seed is None or not self.seed.drawn:
            return re.escape(self.identity())
        return re.escape(self.template).replace(re.escape("{seed}"), "([0-9]+)", 1)

    def shown(self) -> str:
        """Return the verb for people."""
        return self.written or self.text()


def record(verb: Callable[..., Any], *arguments: Any, function: Any = None) -> VerbRecord:
    """Record a verb and its arguments, in the order of its signature.

    ``function`` is the argument that may be a lambda.
    """
    name, written = verb.__name__, _as_written(verb, arguments)
    # Trailing arguments with their default value are left out.
    shown = [_shown(argument) for argument in arguments]
    while len(shown) > 1 and shown[-1] in ("False", "None"):
        shown.pop()
    return VerbRecord(
        _short(f"{name}({', '.join(shown)})"),
        code=_code(function),
        written=_short(f"{name}({', '.join(written)})"),
        function=function,
    )


def _as_written(verb: Callable[..., Any], arguments: Sequence[Any]) -> list[str]:
    """Return the arguments that are not defaults, as a user writes them."""
    written: list[str] = []
    skipped = False
    for value, each in zip(arguments, signature(verb).parameters.values(), strict=False):
        text = _shown(value)
        if each.default is not each.empty and text == _shown(each.default):
            skipped = True
        elif skipped or each.kind is each.KEYWORD_ONLY:
            written.append(f"{each.name}={text}")
        else:
            written.append(text)
    return written


def record_function(verb: str, fn: Any, batched: bool, fields: Any, seed: int) -> VerbRecord:
    """Record ``map`` or ``filter``: the function by name, the rest as keywords."""
    before = f"{verb}({_name(fn)}{', batched=True' if batched else ''}"
    after = f"{f', seed={_shown(seed)}' if seed else ''})"
    # States call columns "fields".
    text, written = (
        _short(before + ("" if fields is None else f", {word}={_shown(fields)}") + after)
        for word in ("fields", "columns")
    )
    return VerbRecord(text, code=_code(fn), written=written, function=fn)


def record_select(names: Sequence[str] | None, rows: Any) -> VerbRecord:
    """Record ``select`` of columns by name or of rows by number."""
    if names is not None:
        return VerbRecord(_short(f"select({', '.join(map(repr, names))})"))
    if isinstance(rows, slice | range):
        return VerbRecord(f"select({rows!r})")
    numbers = np.asarray(rows)
    numbers = numbers.astype("<i8") if numbers.dtype.kind in "iu" else numbers
    chosen = np.count_nonzero(numbers) if numbers.dtype == bool else numbers.size
    return VerbRecord(
        f"select({numbers.size:,} rows, {_digest(numbers.tobytes())})",
        written=f"select({quantity(int(chosen), 'row')})",
    )


def record_joined(
    branches: Sequence[Sequence[VerbRecord]], verb: VerbRecord
) -> tuple[VerbRecord, ...]:
    """Record the verbs of several pipelines, and the one that joins them."""
    records = [
        replace(
            each,
            template=f"{number}: {each.template}",
            written=each.written and f"{number}: {each.written}",
        )
        for number, branch in enumerate(branches, 1)
        for each in branch
    ]
    return (*records, verb)


def _name(fn: Any) -> str:
    if isinstance(fn, partial):
        values = [_shown(value) for value in fn.args]
        values += [f"{key}={_shown(value)}" for key, value in fn.keywords.items()]
        return f"partial({', '.join([_name(fn.func), *values])})"
    return str(getattr(fn, "__qualname__", type(fn).__qualname__))


def _code(fn: Any) -> str | None:
    """Digest the code of a lambda, or of the lambdas in a partial; None if there is none."""
    parts = [_parts_of(code) for code in _lambdas(fn)]
    return _digest(repr(parts[0] if len(parts) == 1 else parts))[:8] if parts else None


def _lambdas(fn: Any) -> Iterator[CodeType]:
    if isinstance(fn, partial):
        for each in (fn.func, *fn.args, *fn.keywords.values()):
            yield from _lambdas(each)
    code = getattr(fn, "__code__", None)
    if getattr(fn, "__name__", "") == "<lambda>" and isinstance(code, CodeType):
        yield code


def _parts_of(code: CodeType) -> list[Any]:
    constants = [
        _parts_of(each) if isinstance(each, CodeType) else _shown(each) for each in code.co_consts
    ]
    return [code.co_code, code.co_names, constants]


def _shown(value: Any) -> str:
    """Write an argument as text that is the same in every run and with every NumPy."""
    if isinstance(value, np.generic):
        return _shown(value.item())
    if isinstance(value, np.dtype):
        return repr(value.name)
    if isinstance(value, slice | range):
        return repr(value)
    if isinstance(value, np.ndarray):
        return _shown(value.tolist())
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, set | frozenset):  # their order differs from run to run
        return f"{{{', '.join(sorted(map(_shown, value)))}}}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_shown(each)}' for key, each in value.items())}}}"
    if is_dataclass(value) and not isinstance(value, type):
        given = [f"{each.name}={_shown(getattr(value, each.name))}" for each in fields(value)]
        return f"{type(value).__name__}({', '.join(given)})"
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    return _name(value) if callable(value) else _ADDRESS.sub("", str(value))


def _short(text: str) -> str:
    """Shorten a long text, and add a digest of all of it."""
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS]}... {_digest(text)}"


def _digest(data: str | bytes) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:12]


def data_of(source: Source, rows: int) -> dict[str, Any]:
    """Return what identifies a source with ``rows`` rows."""
    files = list(source.facts.files)
    names = [os.path.basename(os.path.normpath(file)) for file in files]
    step = max(1, -(-len(files) // _LOOKED_AT))
    looked_at = {*range(0, len(files), step), len(files) - 1}
    contents = [
        f"{name}\0{_content(file, i in looked_at)}"
        for i, (name, file) in enumerate(zip(names, files, strict=True))
    ]
    if not files:
        contents = [_sampled(source)]
    if source.facts.digest:
        contents.append(source.facts.digest)
    return {
        "files": names[:_NAMES],
        "count": len(files),
        "rows": rows,
        "schema": _short(", ".join(f"{name}: {kind}" for name, kind in source.schema.items())),
        "names": _digest("\0".join(names)),
        "set": _digest("\0".join(sorted(contents))),
        "content": _digest("\0".join(contents)),
    }


def _content(path: str, look: bool) -> str:
    """Return the size of a file and, if ``look``, a digest of some of its bytes.

    An object of a store is known by its size and version.
    """
    there = located(path)
    if there.remote:
        # The metadata of a folder stands for all of it.
        inside = map(there.child, STORE_FILES)
        those = filter(Location.is_file, inside) if there.is_folder() else [there]
        told = [each.stat() for each in those]
        return (
            f"{sum(each.size for each in told)} {_digest(' '.join(str(v.version) for v in told))}"
        )
    try:
        if os.path.isdir(path):
            return _folder(path)
        with open(path, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            located(path).check_unchanged(status)
            size = status.st_size
            if not look:
                return str(size)
            parts = []
            for place in range(_PLACES):
                file.seek(max(0, size - _BYTES) * place // (_PLACES - 1))
                parts.append(file.read(_BYTES))
            return f"{size} {_digest(b''.join(parts))}"
    except OSError:  # a mapped file may have been deleted
        return "unknown"


def _folder(path: str) -> str:
    """Return a digest of the names and sizes of the files in a folder, up to a limit."""
    entries: list[str] = []
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            size = os.path.getsize(os.path.join(folder, name))
            entries.append(f"{os.path.relpath(folder, path)}/{name} {size}")
        if len(entries) >= _ENTRIES:
            break
    return _digest("\0".join(entries[:_ENTRIES]))


def _sampled(source: Source) -> str:
    """Return a digest of some rows in memory."""
    count, most = len(source), max(_ROWS, _ROWS_SIZE // max(1, source.row_bytes()))
    rows = np.unique(np.linspace(0, max(0, count - 1), min(count, most)).astype(np.int64))
    batch = source.gather(rows) if count else {}
    return _digest("\0".join(f"{name} {_bytes_of(column)}" for name, column in batch.items()))


def _bytes_of(column: Column) -> str:
    if isinstance(column, Ragged):
        offsets = np.asarray(column.offsets - column.offsets[0], "<i8")
        return f"{_digest(offsets.tobytes())} {_bytes_of(column.flat)}"
    array: npt.NDArray[Any] = np.ascontiguousarray(column)
    if array.dtype.kind == "O":
        return _digest(repr(array.tolist()))
    return _digest(array.tobytes())


def compare(
    state: Mapping[str, Any], data: Sequence[Mapping[str, Any]], records: Sequence[VerbRecord]
) -> tuple[str | None, list[tuple[Seed, int]]]:
    """Say how this pipeline differs from the one a state was saved from, or None.

    Also return the seeds to take from the state, for those that the user did not give.
    """
    difference = _other_data(state["data"], data)
    if difference is not None:
        return difference, []
    return _other_verbs(state["verbs"], state.get("code"), records)


def _other_data(then: Sequence[Any], now: Sequence[Mapping[str, Any]]) -> str | None:
    if len(then) != len(now):
        return f"it was saved with {len(then)} datasets, and this pipeline reads {len(now)}"
    for saved, here in zip(then, now, strict=True):
        if saved == here:
            continue
        files = f"it was saved with {_files(saved)}; this pipeline reads {_files(here)}"
        if saved["names"] != here["names"]:
            same = saved["set"] == here["set"] and saved["count"] > 1
            return f"{files}{', the same in another order' if same else ''}"
        if saved["rows"] != here["rows"]:
            of = f" of {_files(here)}" if here["count"] else ""
            return f"{saved['rows']:,} rows{of} then, {here['rows']:,} now"
        if saved["schema"] != here["schema"]:
            return f"the columns were {saved['schema']}; they are {here['schema']} now"
        if saved["content"] != here["content"]:
            if saved["set"] == here["set"]:
                return f"{files}, the same in another order"
            what = f"the contents of {_files(here)}" if here["count"] else "the rows in memory"
            return f"{what} are not those it was saved with"
        return files
    return None


def _files(data: Mapping[str, Any]) -> str:
    count, names = data["count"], list(data["files"])
    if count == 0:
        return "rows in memory"
    if count == 1:
        return str(names[0])
    more = ", ..." if count > len(names) else ""
    return f"{count:,} files ({', '.join(map(str, names))}{more})"


def _other_verbs(
    then: Sequence[str], code: Any, now: Sequence[VerbRecord]
) -> tuple[str | None, list[tuple[Seed, int]]]:
    seeds: list[tuple[Seed, int]] = []
    for number in range(max(len(then), len(now))):
        saved = then[number] if number < len(then) else None
        here = now[number] if number < len(now) else None
        if saved is None or here is None:
            return f"{saved or 'nothing'} then, {here.text() if here else 'nothing'} now", []
        if here.seed is not None and here.seed.drawn:
            found = re.search(r"seed=(\d+)", saved)
            if found is not None and here.text(int(found[1])) == saved:
                seeds.append((here.seed, int(found[1])))
                continue
        if here.text() != saved:
            return f"{saved} then, {here.text()} now", []
    if isinstance(code, Mapping) and str(code.get("python")) == _PYTHON:
        for number, each in enumerate(now):
            known = code.get(str(number))
            if isinstance(known, str) and each.code is not None and known != each.code:
                return f"{each.text()} is a different function now", []
    return None, seeds


def signed(data: Sequence[Mapping[str, Any]], records: Sequence[VerbRecord]) -> dict[str, Any]:
    """Return the entries of a state that identify the pipeline."""
    codes = {str(number): each.code for number, each in enumerate(records) if each.code is not None}
    signature: dict[str, Any] = {
        "data": [dict(each) for each in data],
        "verbs": [each.text() for each in records],
    }
    return {**signature, "code": {"python": _PYTHON, **codes}} if codes else signature
