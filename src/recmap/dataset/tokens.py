"""ds.tokens: the documents of a column, end to end, cut into rows of one length.

A window is found by computing: where documents begin is all that is kept. If the values of all
documents lie end to end in a mapped file, windows are copied straight from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from recmap.dataset.column_scan import check_reread, from_rows
from recmap.dataset.derived_rows import DerivedRows
from recmap.dataset.megatron_order import MegatronOrder
from recmap.dataset.rows import read_blocks
from recmap.errors import DataError, OptionError
from recmap.machine.cpus import thread_count
from recmap.machine.mapped import guarded
from recmap.machine.memory import empty
from recmap.model.arguments import as_names, as_whole, check_choice
from recmap.model.batch import Positions, RowArray, RowNumbers
from recmap.model.facts import SourceFacts, with_facts
from recmap.model.fetching import Fetching
from recmap.model.field import Field
from recmap.model.ordered_rows import unshuffled
from recmap.model.progress import Counter, ProgressOption
from recmap.model.ragged import Column, Ragged, offsets_of
from recmap.model.remembered import Remembered
from recmap.model.row_sizes import RowSizes, measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source, at_epoch, gather_within, row_name
from recmap.native import _core

Added: TypeAlias = Literal["positions", "segments", "cu_seqlens"]
Tokens: TypeAlias = npt.NDArray[Any]

_TARGET = "/target"
# Longer pieces are copied one by one, and shorter ones token by token, in one call.
_SLICE_FROM = 64


@dataclass(frozen=True)
class Cut:
    """How documents are cut: the user's arguments, checked."""

    column: str
    length: int
    target: bool
    end: int | None
    add: tuple[Added, ...]
    megatron: MegatronOrder | None = None

    @classmethod
    def checked(
        cls,
        schema: Schema,
        column: Any,
        length: Any,
        target: bool,
        end: Any,
        add: Any,
        megatron: Any,
    ) -> Cut:
        [name] = schema.select([column])
        field = schema[name]
        if field.has_nulls or field.dtype.kind not in "iu" or len(field.shape) > 1:
            raise OptionError(
                f"tokens: column {name!r} is {field}; give a column of whole numbers, or of lists "
                "of them, without nulls"
            )
        if end is not None:
            info = np.iinfo(field.dtype)
            end = as_whole("end", end, int(info.min), int(info.max))
        added = tuple(check_choice("add", each, get_args(Added)) for each in as_names("add", add))
        order = None if megatron is None else MegatronOrder.checked(megatron)
        return cls(name, as_whole("length", length, 1, 2**31), target, end, added, order)

    @property
    def size(self) -> int:
        """The tokens that a row is made of: the target ends one later."""
        return self.length + self.target

    def schema(self, schema: Schema) -> Schema:
        field = Field(schema[self.column].dtype, self.length)
        fields = {self.column: field}
        if self.target:
            fields[self.column + _TARGET] = field
        for name in self.add:
            if name in fields:
                raise OptionError(f"tokens adds a column {name!r}; rename yours first")
            fields[name] = Field("int32", (None if name == "cu_seqlens" else self.length,))
        return Schema(fields)

    def __str__(self) -> str:
        options: dict[str, Any] = {"target": self.target, "end": self.end, "add": list(self.add)}
        if self.megatron is not None:
            options["megatron"] = self.megatron._asdict()
        told = "".join(f", {name}={value!r}" for name, value in options.items())
        return f"tokens({self.column!r}, {self.length}{told})"


class DocumentParts(NamedTuple):
    """Parts of documents, one after another: the document of each, where it begins, its length."""

    documents: Positions
    begins: Positions
    lengths: Positions
    #: How many of them make up each row.
    counts: Positions


@dataclass(frozen=True)
class Documents:
    """Documents in the order in which they are joined, and how many rows they are cut into.

    Document ``i`` has tokens ``starts[i]`` to ``starts[i + 1]``, and is row ``rows[i]`` of the
    source, or row ``i`` if ``rows`` is None. ``samples`` is the order of what they are cut into.
    """

    count: int
    starts: RowArray
    rows: RowArray | None
    samples: RowArray | None

    def numbers(self, documents: Positions) -> RowArray:
        """Return the rows of documents."""
        return documents if self.rows is None else self.rows[documents]

    def pieces(self, begins: Positions, size: int) -> DocumentParts:
        """Return the parts of documents that make up ``size`` tokens from each of ``begins``."""
        first = np.searchsorted(self.starts, begins, side="right") - 1
        last = np.searchsorted(self.starts, begins + size - 1, side="right") - 1
        counts = last - first + 1
        total = offsets_of(counts)
        documents = np.arange(total[-1]) + np.repeat(first - total[:-1], counts)
        start = np.maximum(self.starts[documents], np.repeat(begins, counts))
        stop = np.minimum(self.starts[documents + 1], np.repeat(begins + size, counts))
        return DocumentParts(documents, start - self.starts[documents], stop - start, counts)


def joined_documents(
    source: Source, cut: Cut, progress: ProgressOption, reopen: Callable[[], Source] | None
) -> Remembered[int, Documents]:
    """Return the documents of each epoch, which are counted when they are first needed."""
    check_reread("tokens", source)
    varies = source.facts.varies
    if varies and cut.megatron is not None:
        raise OptionError("tokens: megatron= shuffles the documents itself; leave out shuffle")
    if varies and not source.schema[cut.column].shape:
        raise OptionError(
            f"tokens: each row of {cut.column!r} is one token, so shuffle would mix up the text; "
            "put shuffle after tokens"
        )
    found = unshuffled(source) if varies else (source, None)
    if found is None or found[0].facts.varies:
        raise OptionError(
            "tokens: these rows differ from epoch to epoch; only shuffle(seed=...) may come before "
            "tokens, directly before it, and everything else after it"
        )
    lengths = from_rows(found[0], partial(_offsets, cut=cut, progress=progress), reopen)
    return Remembered(partial(_documents, source, lengths, cut), 0, only=not varies)


def _documents(
    source: Source, offsets: Remembered[int, RowArray], cut: Cut, epoch: int
) -> Documents:
    starts = offsets.at(0)
    rows: RowArray | None = None
    samples: RowArray | None = None
    if cut.megatron is not None:
        rows, samples = cut.megatron.of(starts, cut.length, cut.size - cut.length)
    elif source.facts.varies and (found := unshuffled(at_epoch(source, epoch))) is not None:
        rows = found[1].numbers(np.arange(len(starts) - 1))
    if rows is not None:
        starts = offsets_of(np.diff(starts)[rows])
    count = max(0, (int(starts[-1]) - cut.target) // cut.length)
    return Documents(count, starts, rows, samples)


@guarded
def _offsets(source: Source, cut: Cut, progress: ProgressOption) -> RowArray:
    """Return where each document begins, and the number of tokens."""
    shape = source.schema[cut.column].shape
    if shape == ():
        return np.array([0, len(source)])
    more = 0 if cut.end is None else 1
    if shape != (None,):
        return np.arange(len(source) + 1) * ((shape[0] or 0) + more)
    stored = source.column(cut.column)
    if isinstance(stored, Ragged):
        offsets = _checked_offsets(source, cut, stored)
        starts: RowArray = offsets - offsets[0] + np.arange(len(offsets)) * more
        return starts
    lengths, start = np.zeros(len(source), np.int64), 0
    with Counter(len(source), progress) as counter:
        for batch in read_blocks(source.select([cut.column]), 1):
            rows, size = measure(batch)
            lengths[start : start + rows] = batch[cut.column].lengths  # type: ignore[union-attr]  # checked above
            counter.add(rows, size)
            start += rows
        counter.finish()
    return offsets_of(lengths + more)


def _checked_offsets(source: Source, cut: Cut, column: Ragged) -> RowArray:
    offsets = column.offsets
    if offsets[0] < 0 or offsets[-1] > len(column.values) or bool((np.diff(offsets) < 0).any()):
        raise DataError(
            f"{row_name(source, 0)}: {cut.column!r} has offsets that do not fit its values",
            field=cut.column,
        )
    return offsets


class TokenRows(DerivedRows[Documents]):
    """Documents of a source, joined and cut into rows of one length."""

    def __init__(self, source: Source, cut: Cut, documents: Remembered[int, Documents]) -> None:
        super().__init__(source, documents)
        self._cut, self._epoch = cut, 0
        self._schema = cut.schema(source.schema)

    def __getstate__(self) -> dict[str, Any]:
        # Other processes map the file themselves.
        return {name: value for name, value in self.__dict__.items() if name != "_stored"}

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def facts(self) -> SourceFacts:
        return with_facts(super().facts, labels={}, descriptions={}, table_types={})

    def _joined(self) -> Documents:
        return self._found.at(self._epoch)

    def row_bytes(self) -> int:
        return sum(field.row_bytes or 0 for field in self._schema.values())

    def at_epoch(self, epoch: int) -> Source:
        if epoch == self._epoch or not self._source.facts.varies:
            return self
        other = copy(self)
        other._epoch = epoch  # noqa: SLF001  # a copy of this one
        return other

    @guarded
    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        stop = min(stop, len(self))
        return gather_within(self, np.arange(start, max(start, stop), dtype=np.int64), limit)

    @guarded
    def gather(self, rows: RowArray) -> Batch:
        cut, documents = self._cut, self._joined()
        begins = self._begins(documents, rows)
        made: Batch = {}
        flat = self._end_to_end()
        pieces = None if flat is not None else documents.pieces(begins, cut.size)
        if pieces is None:
            assert flat is not None
            made[cut.column], targets = _rows_of(flat, rows, cut)
            if targets is not None:
                made[cut.column + _TARGET] = targets
        else:
            tokens = self._joined_pieces(documents, pieces).reshape(len(begins), cut.size)
            made[cut.column] = np.ascontiguousarray(tokens[:, : cut.length])
            if cut.target:
                made[cut.column + _TARGET] = np.ascontiguousarray(tokens[:, 1:])
        if cut.add:
            made |= self._added(documents, begins, made[cut.column])
        return {name: made[name] for name in self._schema}

    def _begins(self, documents: Documents, rows: RowNumbers) -> Positions:
        """Return the first token of each row."""
        numbers = np.asarray(rows, np.int64)
        if documents.samples is not None:
            numbers = documents.samples[numbers]
        return numbers * self._cut.length

    @cached_property
    def _stored(self) -> Column | None:
        """All documents as views of a mapped file, if that is how they are stored."""
        return self._base().column(self._cut.column)

    def _end_to_end(self) -> Tokens | None:
        """Return all tokens in the order in which they are joined, if they are stored so."""
        if self._cut.end is not None and self._source.schema[self._cut.column].shape:
            return None
        if self._joined().rows is not None:
            return None
        stored = self._stored
        if stored is None:
            return None
        flat = stored.flat if isinstance(stored, Ragged) else stored.reshape(-1)
        return flat if isinstance(flat, np.ndarray) and flat.flags.c_contiguous else None

    def _joined_pieces(self, documents: Documents, pieces: DocumentParts) -> Tokens:
        """Return parts of documents, end to end."""
        cut = self._cut
        if not self._source.schema[cut.column].shape:
            return self._single_tokens(pieces)
        ends: Positions | None = None
        lengths = pieces.lengths
        if cut.end is not None:
            # The last token of a document is not stored.
            after = documents.starts[pieces.documents + 1] - documents.starts[pieces.documents]
            closed = (pieces.begins + lengths == after) & (lengths > 0)
            ends = (np.cumsum(lengths) - 1)[closed]
            lengths = lengths - closed
        values, firsts = self._values(documents.numbers(pieces.documents))
        tokens = _spans(values, firsts + pieces.begins, lengths)
        if ends is None:
            return tokens
        whole = np.empty(len(tokens) + len(ends), tokens.dtype)
        own = np.ones(len(whole), bool)
        own[ends] = False
        whole[own], whole[ends] = tokens, cut.end
        return whole

    def _values(self, rows: RowArray) -> tuple[Tokens, Positions]:
        """Return tokens that hold those of these rows, and where each row begins among them."""
        stored = self._stored
        if isinstance(stored, Ragged) and isinstance(stored.values, np.ndarray):
            return stored.values, stored.offsets[rows]
        needed, places = np.unique(rows, return_inverse=True)
        batch = self._base().gather(needed)[self._cut.column]
        if isinstance(batch, Ragged):
            assert isinstance(batch.values, np.ndarray)
            return batch.values, batch.offsets[places.reshape(-1)]
        return batch.reshape(-1), places.reshape(-1) * batch.shape[1]

    def _base(self) -> Source:
        """Return the documents as they were before they were shuffled."""
        found = unshuffled(self._source) if self._source.facts.varies else None
        return self._source if found is None else found[0]

    def _single_tokens(self, pieces: DocumentParts) -> Tokens:
        """Return tokens of a column that has one in each row."""
        rows = np.arange(pieces.lengths.sum())
        firsts = offsets_of(pieces.lengths)[:-1]
        rows += np.repeat(pieces.begins - firsts, pieces.lengths)
        column = self._base().gather(rows)[self._cut.column]
        assert isinstance(column, np.ndarray)
        return column

    def _added(self, documents: Documents, begins: Positions, tokens: Any) -> Batch:
        """Return the columns that tell documents apart. Positions begin anew in each window."""
        cut = self._cut
        if not self._source.schema[cut.column].shape:
            counts, lengths = _divided(tokens, cut.end)
        else:
            pieces = documents.pieces(begins, cut.length)
            there = offsets_of(pieces.lengths > 0)  # a document may be empty
            counts = np.diff(there[offsets_of(pieces.counts)])
            lengths = pieces.lengths[pieces.lengths > 0]
        edges = offsets_of(counts)
        made: Batch = {}
        shape = (len(begins), cut.length)
        if "positions" in cut.add:
            within = np.arange(lengths.sum()) - np.repeat(offsets_of(lengths)[:-1], lengths)
            made["positions"] = within.astype(np.int32).reshape(shape)
        if "segments" in cut.add:
            number = np.arange(len(lengths)) - np.repeat(edges[:-1], counts) + 1
            made["segments"] = np.repeat(number, lengths).astype(np.int32).reshape(shape)
        if "cu_seqlens" in cut.add:
            ends = np.cumsum(lengths) - np.repeat(np.arange(len(begins)) * cut.length, counts)
            starts = np.insert(ends, edges[:-1], 0) if len(begins) else ends
            made["cu_seqlens"] = Ragged(starts.astype(np.int32), offsets_of(counts + 1))
        return made

    def row_sizes(self, rows: RowArray) -> RowSizes | None:
        cut = self._cut
        own = self.row_bytes() + (4 * (cut.length + 3) if "cu_seqlens" in cut.add else 0)
        if self._stored is not None or not self._source.schema[cut.column].shape:
            return 2 * own
        documents = self._joined()
        pieces = documents.pieces(self._begins(documents, rows), cut.size)
        sizes = self._base().row_sizes(documents.numbers(pieces.documents))
        if sizes is None:
            return None
        whole = offsets_of(np.broadcast_to(sizes, len(pieces.documents)))
        return np.diff(whole[offsets_of(pieces.counts)]) + 2 * own

    def _needed(self, rows: RowArray) -> RowArray:
        documents = self._joined()
        pieces = documents.pieces(self._begins(documents, rows), self._cut.size)
        if self._source.schema[self._cut.column].shape:
            return np.unique(documents.numbers(pieces.documents))
        size = np.arange(self._cut.size)
        return np.unique((pieces.begins[:, None] + size).reshape(-1))

    def _span(self, start: int, stop: int) -> range | None:
        if self._joined().rows is not None:
            return None
        needed = self._needed(np.array([start, stop - 1]))
        return range(int(needed[0]), int(needed[-1]) + 1)

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        return super().fetch_ahead(rows) if self._source.facts.remote else None

    def row_name(self, row: int) -> str:
        first = int(self._needed(np.array([row]))[0])
        return f"row {row:,} of tokens, which begins in {row_name(self._base(), first)}"

    def select(self, names: Sequence[str]) -> Source:
        return Source.select(self, names)


def _rows_of(flat: Tokens, rows: RowArray, cut: Cut) -> tuple[Tokens, Tokens | None]:
    """Return rows by number, and their targets, from tokens that lie end to end."""
    shape, size = (len(rows), cut.length), flat.itemsize
    out = empty(shape, flat.dtype)
    targets = empty(shape, flat.dtype) if cut.target else None
    if len(rows):
        into, later = (None if o is None else o.reshape(-1).view(np.uint8) for o in (out, targets))
        numbers, threads = np.ascontiguousarray(rows, np.int64), thread_count()
        content = flat.view(np.uint8)
        assert into is not None
        _core.gather_rows(
            content, cut.length * size, numbers, into, threads, size * cut.target, later
        )
    return out, targets


def _spans(values: Tokens, starts: Positions, lengths: Positions) -> Tokens:
    """Return spans of values, end to end."""
    total = int(lengths.sum())
    if total > _SLICE_FROM * len(lengths):
        ends = starts + lengths
        parts = [values[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        return np.concatenate(parts)  # a copy, also of a single one
    index = np.arange(total) + np.repeat(starts - offsets_of(lengths)[:-1], lengths)
    return values[index]


def _divided(tokens: Tokens, end: int | None) -> tuple[Positions, Positions]:
    """Return how many documents are in each row, and their lengths: ``end`` closes a document."""
    rows, length = tokens.shape
    last = np.zeros((rows, length), bool) if end is None else tokens == end
    last[:, -1:] = True
    places = np.flatnonzero(last)
    return last.sum(1), np.diff(places, prepend=-1)
