"""Where the rows of a text begin: some are remembered, and the others counted from there.

``recmap index`` keeps the remembered ones next to the file, in the index of TFRecord files, whose
``encoding`` says how rows were told apart.
"""

from __future__ import annotations

from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, IndexFileError
from recmap.formats.text.faults import misplaced
from recmap.formats.text.text_file import PlainText, TextFile
from recmap.machine.cpus import thread_count
from recmap.model.schema import Schema
from recmap.native import _core
from recmap.tfrecord.index import Index
from recmap.tfrecord.sidecar import Sidecar, load_sidecar, save_sidecar, sidecar_path

Offsets = npt.NDArray[np.uint64]

# A row is remembered in this many bytes, or more in a file that would have too many.
_STEP, _PACKED_STEP, _MOST_ANCHORS = 1 << 12, 1 << 16, 1 << 20


class RowIndex:
    """The rows found so far. Scanning goes on where it stopped."""

    def __init__(
        self, text: TextFile, syntax: _core.RowSyntax, rules: str, skipped: int = 0
    ) -> None:
        """Leave out the first ``skipped`` rows, such as a header. ``rules`` names the syntax."""
        self._text, self._syntax, self._rules, self._skipped = text, syntax, rules, skipped
        self._step = _step(text)
        self._rows: list[Offsets] = []
        self._offsets: list[Offsets] = []
        self._found = 0
        self._end = text.begin
        self._state = _core.RowState()
        self.complete = self._loaded = False
        self.lock = RLock()

    def load(self) -> None:
        """Use the index next to the file, if there is one that was made of it."""
        if not isinstance(self._text, PlainText):
            return
        kept = load_sidecar(self._text.path)
        if kept is None or dict(kept.encoding) != self._told or kept.index.length is not None:
            return
        rows, offsets = kept.index.anchors
        size = np.uint64(self._text.mapped.size)
        ascend = bool((offsets[1:] > offsets[:-1]).all() and (offsets < size).all())
        if ascend and (len(rows) or not kept.index.count):
            self._rows, self._offsets = [rows], [offsets]
            self._found, self._end = kept.index.count, int(size)
            self.complete = self._loaded = True

    def save(self, beside: str) -> str:
        """Find all rows, and write the index next to a path."""
        self.reach(None)
        found = Index.of_anchors(self._found, None, *self._anchors, self._end)
        sidecar = Sidecar(found, Schema({}), self._told, False, ())
        return save_sidecar(self._text.path, sidecar, beside)

    @property
    def _told(self) -> dict[str, str]:
        return {"rows": self._rules}

    @property
    def count(self) -> int:
        """The number of rows found so far."""
        return max(0, self._found - self._skipped)

    @property
    def end(self) -> int:
        """Where the rows end that were found so far, or the file."""
        return self._end

    def reach(self, rows: int | None) -> int:
        """Find as many rows, or all of them; return how many there are, or that many."""
        with self.lock:
            # One more, which tells where the last one ends.
            while not self.complete and (rows is None or self.count <= rows):
                self._scan()
            return self.count if rows is None else min(rows, self.count)

    def _scan(self) -> None:
        window, after = self._text.window(self._end)
        if not len(window):
            self._finish()
            return
        scan = _core.scan_text_rows(
            window, after, self._state, self._syntax, self._step, thread_count()
        )
        if scan.fault != _core.RowFault.none:
            # Nothing is kept: whoever tries again finds the same fault.
            rows = self._found + scan.rows
            raise self._fault(scan.fault, rows, self._end + scan.fault_offset)
        if scan.rows:
            self._rows.append(scan.anchor_rows + np.uint64(self._found))
            self._offsets.append(scan.anchor_offsets + np.uint64(self._end))
        self._found += scan.rows
        self._end += len(window)
        self._state = scan.state
        if after < 0:
            self._finish()

    def _finish(self) -> None:
        if self._state.quoted:
            raise self._fault(None, self._found, self._end)
        self.complete = True

    def _fault(self, fault: Any, rows: int, byte: int) -> DataError:
        return misplaced(self._text, fault, rows - 1 - self._skipped, byte)

    @property
    def _anchors(self) -> tuple[Offsets, Offsets]:
        if len(self._rows) != 1:
            self._rows = [np.concatenate([np.empty(0, np.uint64), *self._rows])]
            self._offsets = [np.concatenate([np.empty(0, np.uint64), *self._offsets])]
        return self._rows[0], self._offsets[0]

    def near(self, rows: npt.NDArray[np.int64]) -> tuple[Offsets, Offsets, Offsets]:
        """Return where to look for rows that were found.

        That is a row before each one, how many rows to pass from there, and an end of the bytes
        that hold all of it.
        """
        with self.lock:
            anchors, offsets = self._anchors
            wanted = rows.astype(np.uint64) + np.uint64(self._skipped)
            at = np.searchsorted(anchors, wanted, side="right") - 1
            after = np.searchsorted(anchors, wanted + np.uint64(1), side="left")
            ends = np.append(offsets, np.uint64(self._end))[after]
            if self._loaded:
                self._check(offsets[at])
            return offsets[at], wanted - anchors[at], ends

    def _check(self, offsets: Offsets) -> None:
        """Raise unless a line ends before each of these places, as the index says."""
        assert isinstance(self._text, PlainText)
        inside = offsets[offsets > self._text.begin] - np.uint64(1)
        with self._text.spans(inside, inside + np.uint64(1)) as text:
            wrong = np.flatnonzero(text[inside] != ord("\n"))
        if len(wrong):
            raise self.stale(int(inside[wrong[0]]) + 1)

    def stale(self, byte: int) -> IndexFileError:
        """Make the error for rows that are not where the index says."""
        return IndexFileError(
            f"{sidecar_path(self._text.path)} was made from other data: rows begin elsewhere than "
            f"it says at byte {byte:,}; run `recmap index` to renew it, or delete it, and open the "
            "data again",
            file=self._text.path,
        )

    def cuts(self, begin: int, end: int, size: int) -> list[int]:
        """Return places between rows that divide a span into parts of about ``size`` bytes."""
        with self.lock:
            _, offsets = self._anchors
            wanted = np.arange(begin + size, end - size // 2, size, dtype=np.uint64)
            places = offsets[np.minimum(np.searchsorted(offsets, wanted), len(offsets) - 1)]
            inside = np.unique(places[(places > begin) & (places < end)])
            return [begin, *inside.tolist(), end]


def _step(text: TextFile) -> int:
    if not isinstance(text, PlainText):
        return _PACKED_STEP
    return max(_STEP, 1 << (text.mapped.size // _MOST_ANCHORS).bit_length())
