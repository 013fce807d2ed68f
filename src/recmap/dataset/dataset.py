"""Dataset: the rows and columns of any source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Never, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from recmap.dataset import widget
from recmap.dataset.channel_stats import AxisOption, check_quantiles
from recmap.dataset.column_view import ColumnView
from recmap.dataset.glimpse import glimpse_html, glimpse_text
from recmap.dataset.row_verbs import RowVerbs
from recmap.dataset.rows import (
    OpenedRows,
    RowBlocks,
    RowIteration,
    get_row,
    get_rows,
    how_made,
    numbered_rows,
    read_batches,
    take_seeds,
)
from recmap.dataset.stats import Stats
from recmap.dataset.stats_collector import collected
from recmap.errors import OptionError, RecmapError
from recmap.local.local_path import located
from recmap.machine.mapped import guarded
from recmap.model.arguments import (
    as_row,
    as_whole,
    check_flag,
    checked,
)
from recmap.model.facts import Skipped, SourceFacts
from recmap.model.habits import helpful, no_option
from recmap.model.info import Info
from recmap.model.iteration import Iteration
from recmap.model.nulls import with_masks
from recmap.model.preview import quantity
from recmap.model.progress import ProgressOption, check_progress
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source
from recmap.pipeline.stream import Stream
from recmap.store.paths import PathLike

if TYPE_CHECKING:
    # Needed at run time only to convert or train.
    from recmap.conversion.engine import Report
    from recmap.conversion.options import SaveOptions, Verify
    from recmap.pipeline.feed import PipelineFeed
    from recmap.pipeline.plan import Plan
    from recmap.pipeline.signature import VerbRecord

# What selects several rows: ds[100:200], ds[[5, 3, 9]], ds[mask].
RowsKey: TypeAlias = slice | npt.NDArray[Any] | list[int] | list[bool] | range


@helpful
class Dataset(RowVerbs):
    """The rows and columns of files, read when you index them.

    ``ds[7]`` is a row (a dict of values). ``ds[100:200]`` and ``ds[[5, 3, 9]]`` are batches
    (dicts of columns). ``ds["name"]`` is a column: a view of the mapped file if the column is
    stored as an array, otherwise a ``ColumnView`` that reads what you index.

    Verbs such as ``shuffle``, ``filter`` and ``map`` return another dataset, and read nothing
    yet. ``batch`` begins a stream of batches for training.
    """

    def __init__(self, opened: OpenedRows | None = None, plan: Plan | None = None) -> None:
        # Rows as they were opened, or those that the verbs of a plan make.
        self._as_opened, self._verbs_plan = opened, plan

    def __reduce__(self) -> tuple[Any, ...]:
        return Dataset, (self._as_opened, self._verbs_plan)

    def _of(self, plan: Plan) -> Dataset:
        return Dataset(plan=plan)

    def pipeline(self) -> Stream:
        """Return the rows as a stream, which has ``state()`` and ``restore()``."""
        return self._stream(self._plan)

    @cached_property
    def _opened(self) -> OpenedRows:
        if self._as_opened is not None:
            return self._as_opened
        plan = self._plan
        plan.check_images_on_host("reading rows by number")
        return numbered_rows(plan)

    @cached_property
    def _source(self) -> Source:
        return self._opened.source

    @cached_property
    def _plan(self) -> Plan:
        if self._verbs_plan is not None:
            return self._verbs_plan
        from recmap.pipeline.plan import Plan
        from recmap.pipeline.row_source import SourceRows
        from recmap.pipeline.signature import VerbRecord

        opened = self._opened
        rows = SourceRows(opened.source, opened.reopen, opened.how)
        shown = " > ".join(opened.shown_steps)
        records = () if opened.verbs is None else (VerbRecord(opened.verbs, written=shown),)
        return Plan(rows, sources=(rows,), records=records)

    @cached_property
    def _own_feed(self) -> PipelineFeed:
        if self._as_opened is not None:
            raise OptionError(
                "a dataset without verbs is read from its beginning each time, and has no epochs "
                "or states; ds.pipeline() returns its rows as a stream that has both"
            )
        return self._new_feed()

    def _new_feed(self) -> PipelineFeed:
        from recmap.pipeline.feed import PipelineFeed

        return PipelineFeed(self._plan)

    @cached_property
    def _warned(self) -> bool:
        """Warn once about a shuffle that is slow to read."""
        self._plan.warned()
        return True

    def _feed(self) -> PipelineFeed:
        self._warned  # noqa: B018
        return self._own_feed if self._as_opened is None else self._new_feed()

    def _table(self) -> tuple[Schema, Iterable[Batch]]:
        if self._as_opened is None:
            return super()._table()
        return self.schema, RowBlocks(self._source)

    def _table_facts(self) -> SourceFacts:
        return super()._table_facts() if self._as_opened is None else self._source.facts

    def _changed(self, verb: str, change: Callable[[Source], Source]) -> Dataset:
        if self._as_opened is not None:
            return Dataset(self._as_opened.derive(verb, change))
        from recmap.pipeline.signature import VerbRecord

        name = verb.partition("(")[0]
        self._plan.check_images_on_host(name)
        rows = self._plan.random_access(name)
        return self._rows(self._plan.with_rows(change(rows)), VerbRecord(verb))

    def _with_columns(self, names: Sequence[str], record: VerbRecord) -> Dataset:
        if self._as_opened is not None and self._as_opened.source.facts.once:
            # There are no epochs, and so no plan, of rows that can be read only once.
            chosen = with_masks(names, self.schema)
            return self._changed(record.text(), partial(_selected, names=chosen))
        return super()._with_columns(names, record)

    @property
    def schema(self) -> Schema:
        """The columns and their types. To find them, functions are tried on the first rows."""
        if self._as_opened is not None:
            return self._source.schema
        plan = self._plan
        known = plan.known_schema if plan.transforms else plan.rows.schema
        # The feed reads the first rows, which may have to be searched for.
        return self._own_feed.schema if known is None or plan.images_on_device else known

    @property
    def skipped(self) -> list[Skipped]:
        """The records that ``errors="skip"`` left out, with file, record, byte and reason."""
        if self._as_opened is None:
            return [each for rows in self._plan.sources for each in rows.skipped]
        return list(self._source.facts.skipped)

    @property
    def files(self) -> list[str]:
        """The files, in the order of their rows."""
        # Who opens one of these paths again means the file that is there by then.
        return [located(file).public() for file in self._source.facts.files]

    @property
    def labels(self) -> dict[str, list[str]]:
        """The names of the classes, for columns of class numbers, as TFDS datasets have them.

        ``ds.labels["label"][7]`` is the name of class 7.
        """
        return {name: list(names) for name, names in self._source.facts.labels.items()}

    def info(self) -> Info:
        """Return facts about the files: format, rows, columns, hints for raw bytes."""
        found = self._source.info()
        return replace(found, files=[located(file).public() for file in found.files])

    def __len__(self) -> int:
        return len(self._source)

    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...
    @overload
    def __getitem__(self, key: RowsKey) -> dict[str, Any]: ...
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            self.schema[key]  # raises an error that lists the columns
            view = self._source.column(key)
            if isinstance(view, np.ndarray):
                return view if not view.flags.writeable else _read_only(view)
            return ColumnView(self._source.select([key]), key)
        number = as_row(key)
        if number is None:
            return get_rows(self._source, key)
        return get_row(self._source, number)

    def __contains__(self, name: object) -> bool:
        """Return whether there is a column with this name."""
        return name in self.schema

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema)

    def head(self, n: int = 5) -> dict[str, Any]:
        """Read the first ``n`` rows, or all if there are fewer.

        >>> import recmap as rm
        >>> rm.from_arrays({"x": np.arange(100)}).head(3)
        {'x': array([0, 1, 2])}
        """
        n = as_whole("n", n)
        if self._as_opened is None and self._plan.drops and n:
            # Filters run until they have kept enough rows.
            for batch in self.take(n).batch(n).pipeline():
                return batch
        return self._source.read(0, n)

    def keys(self) -> list[str]:
        """Return the names of the columns, so that ``dict(ds)`` is a dict of columns."""
        return list(self.schema)

    def _ipython_key_completions_(self) -> list[str]:
        # Of functions that fail on the first rows, nothing is known.
        try:
            return list(self.schema)
        except RecmapError:
            return []

    def items(self) -> list[tuple[str, Any]]:
        """Return pairs of names and columns."""
        return [(name, self[name]) for name in self.schema]

    def batches(self, size: int, *, drop_last: bool = False) -> Iterator[dict[str, Any]]:
        """Iterate over all rows in order, ``size`` at a time; the last batch may be smaller.

        >>> import recmap as rm
        >>> with rm.TFRecordWriter("tour.tfrecord", overwrite=True) as w:
        ...     w.write({"x": np.arange(5)})
        >>> [batch["x"].tolist() for batch in rm.open("tour.tfrecord").batches(2)]
        [[0, 1], [2, 3], [4]]
        """
        size, drop_last = as_whole("size", size, least=1), check_flag("drop_last", drop_last)
        return Iteration(read_batches(self._source, size, drop_last))

    @guarded
    def stats(
        self,
        *,
        axis: AxisOption = None,
        quantiles: Sequence[float] = (),
        progress: ProgressOption = None,
    ) -> Stats:
        """Compute statistics of each column, in one pass and bounded memory.

        The result is a dict by column, which prints as a table. It has count, min, max, mean, std,
        NaN count and a histogram, also of the lengths of ragged rows, and the distinct and most
        common values of integers and short strings.

        >>> import recmap as rm
        >>> found = rm.from_arrays({"x": np.array([1.0, np.nan, 4.0])}).stats()["x"].values
        >>> found.count, found.nan, found.min, found.max, found.mean, found.std
        (3, 1, 1.0, 4.0, 2.5, 1.5)

        With ``axis``, each channel has its own: ``axis=-1`` gives the mean of each color of an
        image, or of each element of a vector. It is an axis of a row, several of them, or a dict
        by column; columns without such an axis of a fixed length have one channel. ``quantiles``
        are shares, such as ``[0.01, 0.99]``. Both run on all cores, and make no histograms and no
        counts of values. Quantiles come from a KLL sketch and say how far they may be off; those
        of bytes and of the first values are exact. ``normalize`` takes the result, and ``save``
        writes it as JSON.

        >>> state = np.array([[1.0, 10.0], [3.0, 10.0]])
        >>> found = rm.from_arrays({"state": state}).stats(axis=-1, quantiles=[0.5])
        >>> channels = found["state"].channels
        >>> channels.mean, channels.std, channels.quantiles[0.5]
        (array([ 2., 10.]), array([1., 0.]), array([ 2., 10.]))
        """
        check_progress(progress)
        return collected(self._source, axis, check_quantiles(quantiles), progress)

    def save(
        self,
        dst: PathLike,
        *,
        format: str | None = None,
        compression: str | None = None,
        encoding: Mapping[str, str] | None = None,
        align: int | None = None,
        options: Mapping[str, Any] | None = None,
        shards: int | str | None = None,
        memory: int | str = "512MB",
        workers: int | str | None = None,
        verify: Verify = True,
        resume: bool = True,
        overwrite: bool = False,
        append: bool = False,
        progress: ProgressOption = None,
        engine: str = "local",
        storage: Mapping[str, Any] | None = None,
        **unknown: Never,
    ) -> Report:
        """Write all rows to ``dst``, in any format and in bounded memory.

        Verbs before it choose and change the rows: ``ds.select("x").shuffle(seed=1).save(dst)``
        reads only that column, and shuffles the rows on disk if they are slow to read in a random
        order. The options are those of ``rm.convert`` for the output and the work.

        If it is interrupted, make the same call again; it resumes with the files that are missing.
        The same call has the same verbs: a function is recognized by its code and the values that
        it uses. A shuffle without a seed takes that of the interrupted call.

        >>> import recmap as rm
        >>> ds = rm.from_arrays({"x": np.arange(6.0).reshape(3, 2), "y": np.arange(3)})
        >>> ds.select("x").save("x.npy").rows
        3
        >>> np.load("x.npy", mmap_mode="r").shape
        (3, 2)
        """
        from recmap.conversion.options import SaveOptions
        from recmap.dataset.moved_options import refuse_moved

        refuse_moved("save ", unknown, "ds")
        for option, value in dict[str, Any](unknown).items():
            raise no_option("save", option, Dataset.save.__kwdefaults__ or (), value)
        chosen = checked(SaveOptions, locals())
        return self._saved(chosen.located(dst, storage), chosen)

    def _saved(self, dst: str, options: SaveOptions) -> Report:
        from recmap.dataset.frame_stats import frame_stats

        if self._as_opened is not None:
            rows = self._as_opened
        else:
            take_seeds(self._plan, dst)
            rows = replace(self._opened, how=how_made(self._plan))
        if rows.source.facts.table_index is not None and not options.append:
            from recmap.conversion.plan import output_format
            from recmap.dataset.tables import with_index

            format = output_format(dst, options.format)
            rows = rows.changed(partial(with_index, format=format, options=options.for_sink()))
        return rows.save(dst, options, frame_stats)

    def view(self, *, height: int = 640, port: int = 0) -> widget.Widget:
        """Show the page of ``recmap view`` in a notebook, in a frame of this ``height``.

        Call ``close()`` on the result to stop serving it. The browser must run on the same
        machine; if it runs on another, give a ``port`` and forward that.
        """
        height, port = as_whole("height", height, least=1), as_whole("port", port, most=65535)
        return widget.show(self, height, port)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the rows in order; each row is a dict."""
        if self._as_opened is not None:
            return RowIteration(self._source)
        self._warned  # noqa: B018
        return super().__iter__()

    def __repr__(self) -> str:
        shown = "" if self._hides_rows else f"\n{glimpse_text(self._source)}"
        return f"Dataset({self._summary()}){shown}"

    def _repr_html_(self) -> str:
        if self._hides_rows:
            return super()._repr_html_()
        return glimpse_html(self._source, f"Dataset: {self._summary()}")

    @property
    def _hides_rows(self) -> bool:
        """Whether showing a row would call functions or run filters."""
        facts = self._source.facts
        return facts.calls_user_code or not facts.searched

    def _summary(self) -> str:
        facts, rows = self._source.facts, self._source.known_rows()
        files, verbs = facts.files, list(self._opened.shown_steps)
        if self._as_opened is None:
            verbs = self._plan.describe()
        name = f"{len(files):,} files, {files[0]}, ..." if len(files) > 1 else "".join(files)
        count = "rows not counted yet" if rows is None else quantity(rows, "row")
        count = "endless rows" if facts.endless else count
        return f"{' > '.join([name or 'in memory', *verbs])}: {count}, schema {facts.origin}"


def save_rows(dataset: Dataset, dst: str, options: SaveOptions) -> Report:
    """Write the rows of a dataset, for other modules of recmap."""
    return dataset._saved(dst, options)  # noqa: SLF001  # users do not see it


def opened_rows(dataset: Dataset) -> OpenedRows:
    """Return the rows of a dataset, for other modules of recmap."""
    return dataset._opened  # noqa: SLF001  # users do not see it


def _selected(source: Source, names: Sequence[str]) -> Source:
    return source.select(names)


def is_derived(dataset: Dataset) -> bool:
    """Return whether verbs made the rows, which may differ from epoch to epoch."""
    return dataset._as_opened is None  # noqa: SLF001  # users do not see it


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array[...]
    view.flags.writeable = False
    return view
