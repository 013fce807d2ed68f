"""The columns that a model gets: which ones, how they are arranged, and as what arrays."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, FieldNotFoundError, Message, Option, OptionError
from recmap.model.arguments import as_names, no_column
from recmap.model.coerce import Given, infer_schema
from recmap.model.nulls import TRAINING, refuse_nulls, with_masks
from recmap.model.ragged import Column, Ragged

Names: TypeAlias = "str | Sequence[str] | None"
_Chosen: TypeAlias = str | tuple[str, ...]


@dataclass(frozen=True)
class FeaturesAndLabels:
    """The columns a model gets: a single name gives the column itself, several give a dict."""

    features: _Chosen
    label: _Chosen | None = None
    sample_weight: str | None = None

    @classmethod
    def choose(
        cls,
        columns: Mapping[str, Column],
        features: Names,
        label: Names,
        sample_weight: str | None = None,
        *,
        mask: str | None = None,
    ) -> FeaturesAndLabels:
        """Check the columns named by ``features=``, ``label=`` and ``sample_weight=``.

        Without ``features``, all columns that are neither label nor weight are features. The
        column ``mask``, which tells real rows from repeated ones, must not get lost. Columns with
        nulls are refused.
        """
        chosen = cls._chosen(columns, features, label, sample_weight, mask)
        given = {name: Given(columns[name], exact=True) for name in chosen.names}
        refuse_nulls(infer_schema(given), TRAINING)
        return chosen

    @classmethod
    def _chosen(
        cls,
        columns: Collection[str],
        features: Names,
        label: Names,
        sample_weight: str | None,
        mask: str | None,
    ) -> FeaturesAndLabels:
        if sample_weight is not None:
            _check_weight(columns, sample_weight, label)
        labels = None if label is None else _check_names(columns, label, "label")
        if features is not None:
            chosen = cls(_check_names(columns, features, "features"), labels, sample_weight)
            chosen._check_mask(mask)
            chosen.refuse_lost_masks(columns)
            return chosen
        taken = {*_as_tuple(labels), *_as_tuple(sample_weight)}
        rest = tuple(name for name in columns if name not in taken)
        if not rest:
            raise OptionError(f"label={label!r}: no column is left for the features")
        return cls(rest, labels, sample_weight)

    def _check_mask(self, mask: str | None) -> None:
        if mask is not None and mask not in self.names:
            given = [*_as_tuple(self.features), mask]
            raise OptionError(
                f'shard(even="pad") repeats rows, and only the column {mask!r} says which; '
                f'include it: features={given!r}, or use even="drop"'
            )

    def refuse_lost_masks(self, columns: Collection[str]) -> None:
        """Refuse to leave out the mask of a column, which says where values are missing."""
        for mask in with_masks(self.names, columns):
            if mask not in self.names:
                raise OptionError(
                    Message(
                        f"{mask!r}, which says where values are missing, is left out: add it "
                        "to features=, or open the table with ",
                        Option("nulls", "fill"),
                    )
                )

    @cached_property
    def names(self) -> list[str]:
        """All columns that the model needs."""
        chosen = (self.features, self.label, self.sample_weight)
        return list(dict.fromkeys(name for names in chosen for name in _as_tuple(names)))

    def arrange(self, columns: Mapping[str, Any]) -> Any:
        """Arrange columns the way a model takes them.

        >>> FeaturesAndLabels(("a", "b"), "y").arrange({"a": 1, "b": 2, "y": 3})
        ({'a': 1, 'b': 2}, 3)
        >>> FeaturesAndLabels("a").arrange({"a": 1, "b": 2})
        1
        >>> FeaturesAndLabels("a", "y", "w").arrange({"a": 1, "y": 3, "w": 0.5})
        (1, 3, 0.5)
        """
        features = _pick(columns, self.features)
        if self.label is None:
            return features
        label = _pick(columns, self.label)
        if self.sample_weight is None:
            return features, label
        return features, label, columns[self.sample_weight]


def _check_weight(columns: Collection[str], name: Any, label: Names) -> None:
    if not isinstance(_check_names(columns, name, "sample_weight"), str):
        raise OptionError(f"sample_weight={name!r}: give the name of one column")
    if label is None:
        raise OptionError(
            f"sample_weight={name!r} weighs the loss of each row, which needs a label: "
            f'label="y", sample_weight={name!r}'
        )


def _check_names(columns: Collection[str], names: str | Sequence[str], argument: str) -> _Chosen:
    chosen = names if isinstance(names, str) else tuple(as_names(argument, names))
    if not chosen:
        raise OptionError(f"{argument}={names!r}: give the name of a column, or of several")
    for name in _as_tuple(chosen):
        if name not in columns:
            raise FieldNotFoundError(f"{argument}={names!r}: {no_column(name, columns)}")
    return chosen


def _as_tuple(names: _Chosen | None) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names or ()


def _pick(columns: Mapping[str, Any], names: _Chosen) -> Any:
    if isinstance(names, str):
        return columns[names]
    return {name: columns[name] for name in names}


def as_native(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert numbers to native byte order and dates to integers."""
    if array.dtype.kind in "mM":
        return without_dates(name, array)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def without_dates(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert dates and durations to integers; raise if one is null, for which there is none."""
    if np.isnat(array).any():
        what = "date" if array.dtype.kind == "M" else "duration"
        raise ColumnError(
            f"column {name!r} has a null {what} (NaT); {TRAINING}: fill them, "
            f"ds.fill_null({{{name!r}: 0}}), leave out their rows, ds.drop_null({name!r}), or add "
            f"a column that says where they are, ds.mask_null({name!r})"
        )
    return array.astype(np.int64)


def refuse_ragged(name: str, column: Any, no_bytes: str) -> None:
    """Raise if a column is ragged. ``no_bytes`` says why byte strings are not supported."""
    if not isinstance(column, Ragged):
        return
    if column.is_bytes:
        raise OptionError(
            f"column {name!r}: {no_bytes}; leave it out with select or features=, or decode it "
            "with map"
        )
    raise OptionError(
        f'column {name!r}: rows differ in length; pad them: batch(n, pad={{{name!r}: "longest"}})'
    )


def unknown_dtype(name: str, framework: str, dtype: np.dtype[Any]) -> OptionError:
    """Return the error for a column with a dtype that the framework lacks."""
    return OptionError(
        f"column {name!r}: {framework} has no type {dtype}; cast it with map, or leave it out "
        "with select"
    )
