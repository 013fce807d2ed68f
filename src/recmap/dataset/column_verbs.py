"""The verbs of datasets that change columns, row by row: their names, types and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy.typing as npt

from recmap.dataset.rows import OpenedRows
from recmap.errors import OptionError
from recmap.model.arguments import as_mapping, check_choice, check_column_name
from recmap.model.field import Field
from recmap.model.habits import helpful
from recmap.model.nulls import NULL_SUFFIX
from recmap.model.source import Source, renamed
from recmap.pipeline.stream import Stream

if TYPE_CHECKING:
    from recmap.conversion.cast import Casting
    from recmap.dataset.channel_stats import By
    from recmap.dataset.stats import Stats


@helpful
class ColumnVerbs(Stream):
    """The verbs of a dataset that change its columns."""

    @property
    def _opened(self) -> OpenedRows:
        """The rows, and how they were opened."""
        raise NotImplementedError

    @property
    def _source(self) -> Source:
        """The rows by number."""
        raise NotImplementedError

    def _changed(self, verb: str, change: Callable[[Source], Source]) -> Self:
        """Return a dataset of what ``change`` makes of the rows; ``verb`` is the call, as text."""
        raise NotImplementedError

    def rename(self, names: Mapping[str, str]) -> Self:
        """Rename columns: ``{"old": "new"}``. Nothing is read or copied.

        >>> import numpy as np, recmap as rm
        >>> rm.from_arrays({"x": np.arange(3), "y": np.arange(3)}).rename({"x": "pixels"}).columns
        ['pixels', 'y']
        """
        given = as_mapping("names", names, '{"old": "new"}')
        for name in given.values():
            check_column_name(name)
        change = partial(_renamed, names=given)
        return self._changed(f"rename({given})", change)

    def cast(self, dtypes: Mapping[str, npt.DTypeLike], *, casting: Casting = "same_value") -> Self:
        """Cast columns to other types. Values are converted when they are read.

        Byte strings can be cast to ``"text"``, and text to ``"bytes"``.

        With ``casting="same_value"``, a value that the new type cannot hold is an error;
        ``"unsafe"`` rounds, wraps and truncates like NumPy.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"x": np.arange(3)}).cast({"x": "float32"})
        >>> ds.schema, ds["x"][:]
        (Schema(x: float32), array([0., 1., 2.], dtype=float32))
        """
        given = as_mapping("dtypes", dtypes, '{"x": "float32"}')
        check_choice("casting", casting, ("same_value", "unsafe"))
        from recmap.conversion.cast import cast_columns

        change = partial(cast_columns, dtypes=given, casting=casting)
        schema = change(self._source).schema
        named = {name: str(Field(schema[name].dtype)) for name in given}
        return self._changed(f"cast({named}, casting={casting!r})", change)

    def fill_null(self, value: Any) -> Self:
        """Replace nulls: ``fill_null(0)`` in all columns that can hold the value, or by column.

        In lists, ``value`` replaces null items, and null lists become empty.

        >>> import numpy as np, recmap as rm
        >>> x = np.ma.array([1, 2, 3], mask=[False, True, False])
        >>> rm.from_arrays({"x": x}).fill_null({"x": -1})["x"][:]
        array([ 1, -1,  3])
        """
        from recmap.model.fill_null import fill_values, filled

        values = fill_values(self.schema, value)
        change = partial(filled, values=values)
        return self._changed(f"fill_null({values!r})", change)

    def mask_null(self, *columns: str) -> Self:
        """Add a column ``x/is_null`` that says where ``x`` is null, and make nulls 0 or empty.

        Without names, this is done for all columns that may hold nulls.

        >>> import numpy as np, recmap as rm
        >>> x = np.ma.array([1, 2, 3], mask=[False, True, False])
        >>> rm.from_arrays({"x": x}).mask_null("x")[1]
        {'x': np.int64(0), 'x/is_null': np.True_}
        """
        from recmap.model.fill_null import masked

        names = self._nullable(columns)
        return self._changed(f"mask_null({names})", partial(masked, names=names))

    def normalize(self, stats: Stats, *columns: str, by: By = "std") -> Self:
        """Normalize columns by statistics, such as those of the training split.

        ``columns`` are those to normalize: by default, all float columns that have statistics.
        Integer columns, such as images, have to be named. The results are float32. ``by`` says how:

        - ``"std"``: ``(x - mean) / std``;
        - ``"minmax"``: the least value becomes -1, and the greatest 1;
        - ``(0.01, 0.99)``: the first of these quantiles becomes -1, and the second 1; values
          beyond them lie outside, and are not clipped.

        A channel of equal values has no spread to divide by: only its mean is subtracted, so it
        becomes 0. NaN, infinities and nulls stay what they are.

        >>> import numpy as np, recmap as rm
        >>> ds = rm.from_arrays({"state": np.array([[1.0, 10.0], [3.0, 10.0]])})
        >>> stats = ds.stats(axis=-1)
        >>> ds.normalize(stats)["state"][:]
        array([[-1.,  0.],
               [ 1.,  0.]], dtype=float32)
        >>> stats["state"].denormalize(np.array([0.5, 0.0]))
        array([ 2.5, 10. ])
        """
        return self._scaled(stats, columns, by, inverse=False)

    def denormalize(self, stats: Stats, *columns: str, by: By = "std") -> Self:
        """Undo ``normalize``; the results are float32.

        For arrays and batches, such as the actions that a model returns, use
        ``stats["action"].denormalize(actions)`` or ``stats.denormalize(batch)``.
        """
        return self._scaled(stats, columns, by, inverse=True)

    def _scaled(self, stats: Stats, columns: Sequence[str], by: By, *, inverse: bool) -> Self:
        from recmap.dataset.channel_stats import check_by
        from recmap.dataset.normalize import scaled, scalings

        verb, by = "denormalize" if inverse else "normalize", check_by(by)
        scaling = scalings(
            self.schema, stats, list(self.schema.select(columns)), by, inverse=inverse
        )
        digests = {name: each.digest() for name, each in scaling.items()}
        return self._changed(f"{verb}({digests}, by={by!r})", partial(scaled, scaling=scaling))

    def _nullable(self, columns: Sequence[str]) -> list[str]:
        """Return the columns given, or all that may hold nulls."""
        given = list(dict.fromkeys(self.schema.select(columns)))
        return given or [name for name, field in self.schema.items() if field.has_nulls]


def _renamed(source: Source, names: Mapping[str, str]) -> Source:
    """Return the source with new names: ``{"old": "new"}``; the source itself if none changes."""
    schema = source.schema
    for old in names:
        schema[old]  # raises an error that lists the columns
    # A mask keeps the name of its column, unless it is given a name of its own.
    masks = {old + NULL_SUFFIX: new + NULL_SUFFIX for old, new in names.items()}
    changed = {**masks, **names}
    old_names = {changed.get(name, name): name for name in schema}
    if len(old_names) != len(schema):
        raise OptionError("two columns would have the same name")
    same = all(new == old for new, old in old_names.items())
    return source if same else renamed(source, old_names)
