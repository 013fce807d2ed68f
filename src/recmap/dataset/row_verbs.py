"""The verbs that datasets have and streams have not: rows by value, by weight, in another order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as changed
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy.typing as npt

from recmap.dataset.column_verbs import ColumnVerbs
from recmap.errors import OptionError
from recmap.model.arguments import (
    as_whole,
    check_choice,
    check_flag,
)
from recmap.model.field import FieldLike
from recmap.model.habits import helpful
from recmap.model.progress import ProgressOption, check_progress
from recmap.model.schema import Schema
from recmap.model.source import Source

if TYPE_CHECKING:
    from recmap.dataset.tokens import Added, Cut, Documents
    from recmap.dataset.windows import Edges
    from recmap.model.expression import Expression
    from recmap.model.remembered import Remembered


@helpful
class RowVerbs(ColumnVerbs):
    """The verbs of a dataset that make another."""

    def split(
        self,
        parts: Mapping[str, float],
        *,
        seed: int = 0,
        by: str | None = None,
        stratify: str | None = None,
    ) -> dict[str, Self]:
        """Split the rows at random into disjoint datasets; the same seed gives the same split.

        ``parts`` gives the share of each dataset, or its number of rows. The counts are exact.
        With ``by``, rows with the same value in that column stay together. A hash of the value
        decides, so appending data moves no old row, and the counts are approximate. With
        ``stratify``, each value of that column is split in the same proportions. With both, rows
        with the same value of ``by`` stay together, and proportions are as close as that allows.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"x": np.arange(10)})
        >>> parts = ds.split({"train": 0.8, "val": 0.2}, seed=0)
        >>> {name: len(part) for name, part in parts.items()}
        {'train': 8, 'val': 2}
        """
        from recmap.dataset.split import split
        from recmap.model.ordered_rows import OrderedRows

        self._check_same_rows("split")
        made = {}
        orders = split(self._source, parts, seed, by, stratify, self._opened.reopen)
        for name, order in orders.items():
            verb = f"split({dict(parts)}, seed={seed}, by={by!r}, stratify={stratify!r})[{name!r}]"
            made[name] = self._changed(verb, partial(OrderedRows, order=order))
        return made

    def where(self, condition: Expression | str, *, progress: ProgressOption = None) -> Self:
        """Filter rows: keep those for which a condition on columns holds.

        A condition compares columns with values: ``rm.col("label") == 3``. It can also be
        written as text, ``"label == 3 and size > 10"``. Only its columns are read, when rows or
        their number are first needed; the numbers of the rows are remembered. A null is never
        equal and never unequal to a value; ``is_null`` finds it. For conditions that need
        Python, use ``filter``.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"label": np.array([3, 1, 3]), "size": np.array([5, 50, 500])})
        >>> ds.where(rm.col("label") == 3)["size"][:]
        array([  5, 500])
        >>> len(ds.where("label == 3 and size > 10"))
        1
        """
        from recmap.dataset.where import where

        expression, change = where(self._source, condition, progress)
        return self._changed(f"where({expression!r})", change)

    def sample(
        self,
        n: int | None = None,
        *,
        weights: str | npt.ArrayLike | None = None,
        balance: str | None = None,
        replace: bool = True,
        seed: int | None = None,
        progress: ProgressOption = None,
    ) -> Self:
        """Draw ``n`` rows at random, as many as there are by default; new ones in every epoch.

        ``weights`` is a column of numbers, or an array with one for each row: a row of weight 2 is
        drawn twice as often as one of weight 1, and one of weight 0 never. ``balance`` is a column
        of classes (integers, booleans, text or bytes), which are drawn equally often: rows of
        rare classes come more than once. Only that column is read, once, when the first row
        is needed; ``progress=True`` draws a progress bar.

        With ``replace=False``, no row comes twice in an epoch. With ``balance``, that takes
        equally many rows of each class.

        Without a ``seed``, one is drawn, as by ``shuffle``. Several ranks need the same seed.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"x": np.arange(4), "label": np.array([0, 0, 0, 1])})
        >>> labels = [row["label"].item() for row in ds.sample(1000, balance="label", seed=1)]
        >>> labels.count(0), labels.count(1)
        (491, 509)
        """
        from recmap.dataset.sample import described, sampled
        from recmap.pipeline.signature import Seed, VerbRecord, drawn_seed
        from recmap.pipeline.transforms.shuffle import warn_if_slow

        check_flag("replace", replace)
        check_progress(progress)
        rows = self._plan.random_access("sample")
        chosen = drawn_seed() if seed is None else Seed(as_whole("seed", seed))
        made = sampled(rows, n, weights, balance, replace, chosen, progress)
        warn_if_slow(rows, self._plan.sources, "sample")
        verb = VerbRecord(described(n, weights, balance, replace), chosen)
        return self._rows(self._plan.with_rows(made), verb)

    def sort(
        self, column: str, *, descending: bool = False, progress: ProgressOption = None
    ) -> Self:
        """Sort the rows by a column of numbers, dates, booleans, text or byte strings.

        Only the numbers of the rows are sorted, once, when the first row is needed, and only
        that column is read for it; its values are held in memory meanwhile. Rows with equal
        values stay in their order. NaN, NaT and nulls come last, also with ``descending``. Text is
        sorted by code points: "Z" comes before "a".

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"x": np.array([3.0, np.nan, 1.0]), "id": np.arange(3)})
        >>> ds.sort("x", descending=True)[:]["id"]
        array([0, 2, 1])
        """
        from recmap.dataset.sort import Sorted
        from recmap.model.ordered_rows import OrderedRows

        check_flag("descending", descending)
        check_progress(progress)
        order = Sorted(self._source, column, descending, progress, self._opened.reopen)
        verb = f"sort({column!r}{', descending=True' if descending else ''})"
        return self._changed(verb, partial(OrderedRows, order=order))

    def explode(self, *columns: str, progress: ProgressOption = None) -> Self:
        """Make a row of every item of a list; the other columns are repeated.

        ``columns`` are ragged, or have rows of a fixed shape, whose first axis is divided.
        Several are divided together, and must have equally many items in every row. A row with
        an empty list gives no rows. The lengths of the lists are counted once, when the number
        of rows or a row is first needed; only these columns are read for it.

        >>> import numpy as np, recmap as rm
        >>> boxes = rm.Ragged.from_rows([[1, 2], [], [3]])
        >>> ds = rm.from_arrays({"image": np.array([7, 8, 9]), "box": boxes}).explode("box")
        >>> ds.schema, len(ds), ds[1]
        (Schema(image: int64, box: int64), 3, {'image': np.int64(7), 'box': np.int64(2)})
        """
        from recmap.dataset.explode import ExplodedRows, counted_items

        check_progress(progress)
        items = counted_items(self._source, columns, progress, self._opened.reopen)
        change = partial(ExplodedRows, columns=columns, items=items)
        return self._changed(f"explode({', '.join(map(repr, columns))})", change)

    def windows(
        self,
        size: int | Mapping[str, Sequence[int]],
        *,
        stride: int = 1,
        within: str | None = None,
        edges: Edges = "drop",
        horizon: int | Mapping[str, int] | None = None,
        progress: ProgressOption = None,
    ) -> Self:
        """Make a row of every ``size`` consecutive rows: sliding windows for time series.

        Columns get an axis of ``size``. The next window begins ``stride`` rows later. ``within``
        is a column that names or numbers episodes (or series, or patients): no window holds rows
        of two, and the column itself keeps one value. The rows of an episode have to lie together.

        ``size`` may also give offsets by column: ``{"image": [-1, 0], "action": range(16)}`` has
        for every row the image before it and its own, and the next 16 actions. Other columns keep
        one value.

        ``edges`` says what becomes of windows that reach beyond the first or last row of an
        episode: ``"drop"`` leaves them out, ``"repeat"`` repeats that row, and ``"pad"`` puts
        zeros there, and adds a column ``x/is_pad`` for every ``x``.

        ``horizon`` is how many rows to predict: the rows that follow the window come as
        ``x/target``. ``{"load": 6}`` predicts that column only.

        Nothing is copied before it is read. ``within`` is read once, when the number of windows or
        a row is first needed. Windows of strings, of ragged columns and of those with nulls are
        lists.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"x": np.arange(6), "episode": np.array([0, 0, 0, 1, 1, 1])})
        >>> ds.windows(2, within="episode")[:]
        {'x': array([[0, 1],
               [1, 2],
               [3, 4],
               [4, 5]]), 'episode': array([0, 0, 1, 1])}
        >>> ds.select("x").windows(3, horizon=1, stride=2)[0]
        {'x': array([0, 1, 2]), 'x/target': array([3])}
        """
        from recmap.dataset.windows import RowWindows, window_order, window_parts

        stride = as_whole("stride", stride, least=1)
        check_choice("edges", edges, ("drop", "repeat", "pad"))
        check_progress(progress)
        if within is not None:
            self.schema.select([within])
        parts = window_parts(self.schema, size, within, horizon)
        order = window_order(
            self._source, parts, stride, within, edges, progress, self._opened.reopen
        )
        change = partial(RowWindows, parts=parts, order=order, edges=edges)
        shown = dict(size) if isinstance(size, Mapping) else size
        options = {"stride": stride, "within": within, "edges": edges, "horizon": horizon}
        told = "".join(f", {name}={value!r}" for name, value in options.items())
        return self._changed(f"windows({shown!r}{told})", change)

    def tokens(
        self,
        column: str,
        length: int,
        *,
        target: bool = True,
        end: int | None = None,
        add: Sequence[Added] = (),
        megatron: Mapping[str, int] | None = None,
        progress: ProgressOption = None,
    ) -> Self:
        """Join the documents of a column of token lists, and cut them into rows of ``length``.

        A row has ``length`` tokens, and ``x/target`` has the token after each, which a language
        model predicts. Documents follow each other without a gap, and what does not fill the last
        row is left out. ``end`` is put after every document. If each row is a single
        token, all are joined, and ``end`` is the token that ends documents there.

        ``add`` names columns that tell the documents of a row apart: ``"segments"`` counts them
        from 1, ``"positions"`` begins from 0 in each, and ``"cu_seqlens"`` has where each begins
        and the last ends, for attention over sequences of different lengths.

        ``megatron={"seed": 1234, "samples": 1_000_000}`` gives the samples of Megatron-LM in its
        order, so that a run with that seed and number of samples can be continued.

        To shuffle documents, ``shuffle`` before; to shuffle rows, ``shuffle`` after; or both. Only
        the lengths of documents are needed to find a row: in files that map, nothing is read
        before the first one.

        >>> import recmap as rm
        >>> ds = rm.from_arrays({"ids": rm.Ragged.from_rows([[1, 2, 3], [4, 5], [6, 7, 8]])})
        >>> ds.tokens("ids", 3, add=["segments"])[:]
        {'ids': array([[1, 2, 3],
               [4, 5, 6]]), 'ids/target': array([[2, 3, 4],
               [5, 6, 7]]), 'segments': array([[1, 1, 1],
               [1, 1, 2]], dtype=int32)}
        """
        from recmap.dataset.tokens import Cut, joined_documents

        check_flag("target", target)
        check_progress(progress)
        cut = Cut.checked(self.schema, column, length, target, end, add, megatron)
        source = self._source.select([cut.column])
        documents = joined_documents(source, cut, progress, self._opened.reopen)
        return self._changed(str(cut), partial(_cut_tokens, cut=cut, documents=documents))

    def flat_map(
        self,
        fn: Callable[..., Any],
        *,
        workers: int | str | None = None,
        columns: Mapping[str, FieldLike] | None = None,
        seed: int = 0,
        progress: ProgressOption = None,
        fields: Mapping[str, FieldLike] | None = None,
    ) -> Self:
        """Call ``fn`` with every row: it returns a list of rows, or yields them; maybe none.

        Each row is a dict of values, as for ``map``, and ``workers``, ``columns``, ``seed`` and
        ``rng`` are those of ``map``.

        Iterating calls ``fn`` as it goes. When the number of rows or a row by number is first
        needed, ``fn`` is called with every row, to count what it returns; ``progress=True`` draws a
        progress bar. With ``workers``, that comes before the first row. Rows are made again when
        they are read again, so save the result if ``fn`` is slow.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"n": np.array([2, 0, 1])})
        >>> parts = ds.flat_map(lambda row: [{"n": row["n"], "i": i} for i in range(row["n"])])
        >>> len(parts), parts[:]
        (3, {'n': array([2, 2, 1]), 'i': array([0, 1, 0])})
        """
        from recmap.dataset.flat_map import flat_mapped
        from recmap.model.arguments import given_types, parse_workers
        from recmap.pipeline.signature import record_function
        from recmap.pipeline.transforms.flat_map import FlatMapRows
        from recmap.pipeline.transforms.map import Function

        check_progress(progress)
        plan = self._plan
        plan.check_images_on_host("flat_map")
        function = Function(fn, as_whole("seed", seed), plan.functions)
        if workers is not None:
            plan = plan.with_workers(parse_workers(workers))
        types = given_types("flat_map", columns, fields)
        transform = FlatMapRows(function, None if types is None else Schema(types))
        made = plan.with_rows(flat_mapped(plan, transform, progress))
        record = record_function("flat_map", fn, False, types, seed)
        return self._rows(changed(made, functions=plan.functions + 1), record)

    def cache(self, *, memory: int | str | None = None, progress: ProgressOption = None) -> Self:
        """Keep the rows on this machine's disk, so that they are decoded and made only once.

        When a row or batch is first needed, all rows so far are made in order and written to the
        disk cache, which ``recmap cache`` shows and clears. From then on they are read from there,
        in any order and as fast as a mapped file, by all processes and in later runs too. Put it
        after what is slow (compressed files, ``decode_image``, ``map``) and before ``shuffle`` and
        functions with an ``rng``: what is kept are the rows of the first epoch.

        If a file, a verb or the code of a function has changed, the rows are made again. Rows in
        memory, and functions that cannot be told apart, are kept for this process only. If there is
        no room, the rows are read as without ``cache``, and a ``NoCacheWarning`` says why.

        With ``memory="2GB"``, rows that take no more than that are held in memory instead, by this
        process and those that are forked from it. ``progress=True`` draws a progress bar.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"x": np.arange(4)}).map(lambda row: {"y": row["x"] ** 2})
        >>> train = ds.cache().shuffle(seed=1).batch(2)
        >>> [batch["y"].tolist() for batch in train]
        [[4, 0], [1, 9]]
        """
        from recmap.dataset.cache import cached
        from recmap.model.arguments import parse_size
        from recmap.pipeline.signature import VerbRecord

        check_progress(progress)
        plan = self._plan
        rows = cached(plan, None if memory is None else parse_size(memory), progress)
        # The workers of map fill the cache. What comes next does not need them.
        made = changed(plan.with_rows(rows), workers=None, unwarned=())
        if plan.drops:
            # Filtered rows have places of their own from here on, and so in states.
            return self._rows(made, VerbRecord("cache()"))
        return self._rows(changed(made, caches=(*plan.caches, len(plan.records))))

    def drop_null(self, *columns: str, progress: ProgressOption = None) -> Self:
        """Leave out the rows in which one of these columns is null, or holds a null.

        Without names, this checks all columns that may hold nulls. They are read once, when rows or
        their number are first needed.

        >>> import numpy as np, recmap as rm
        >>> x = np.ma.array([1, 2, 3], mask=[False, True, False])
        >>> rm.from_arrays({"x": x, "y": np.arange(3)}).drop_null("x")["y"][:]
        array([0, 2])
        """
        from recmap.dataset.drop_null import rows_without_nulls
        from recmap.model.fill_null import without_nulls

        self._check_same_rows("drop_null")
        names = self._nullable(columns)
        rows = rows_without_nulls(self._source, names, progress, self._opened.reopen)
        change = partial(without_nulls, rows=rows, names=names)
        return self._changed(f"drop_null({names})", change)

    def _check_same_rows(self, verb: str) -> None:
        if self._source.facts.varies:
            raise OptionError(
                f"{verb} comes before shuffle, sample and functions with an rng: it takes rows by "
                "number, and these differ from epoch to epoch"
            )


def _cut_tokens(source: Source, cut: Cut, documents: Remembered[int, Documents]) -> Source:
    from recmap.dataset.tokens import TokenRows

    return TokenRows(source.select([cut.column]), cut, documents)
