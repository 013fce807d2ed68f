"""What a model is given of a batch: a dict, or features and labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from recmap.errors import FieldNotFoundError, OptionError
from recmap.model.arguments import as_names

__all__ = ["Names", "Pairs", "as_pairs"]

Names: TypeAlias = "str | Sequence[str] | None"


@dataclass(frozen=True)
class Pairs:
    """One name stands for its column alone, several for a dict of columns."""

    features: str | tuple[str, ...]
    label: str | tuple[str, ...] | None

    @cached_property
    def names(self) -> list[str]:
        """The columns that are wanted at all."""
        return [*_several(self.features), *_several(self.label or ())]

    def of(self, columns: Mapping[str, Any]) -> Any:
        """The columns as the model takes them.

        >>> Pairs(("a", "b"), "y").of({"a": 1, "b": 2, "y": 3})
        ({'a': 1, 'b': 2}, 3)
        >>> Pairs("a", None).of({"a": 1, "b": 2})
        1
        """
        features = _picked(columns, self.features)
        return features if self.label is None else (features, _picked(columns, self.label))


def as_pairs(columns: Collection[str], features: Names, label: Names) -> Pairs:
    """What ``features=`` and ``label=`` mean; without them, everything is a feature."""
    wanted = None if label is None else _checked(columns, label, "label")
    if features is not None:
        return Pairs(_checked(columns, features, "features"), wanted)
    labels = _several(wanted or ())
    rest = tuple(name for name in columns if name not in labels)
    if not rest:
        raise OptionError(f"label={label!r}: no column is left for the features")
    return Pairs(rest, wanted)


def _checked(
    columns: Collection[str], names: str | Sequence[str], argument: str
) -> str | tuple[str, ...]:
    chosen = names if isinstance(names, str) else tuple(as_names(argument, names))
    if not chosen:
        raise OptionError(f"{argument}={names!r}: the name of a column, or of several")
    for name in _several(chosen):
        if name not in columns:
            raise FieldNotFoundError(
                f"{argument}={names!r}: no column {name!r}; there are: {', '.join(columns)}"
            )
    return chosen


def _several(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _picked(columns: Mapping[str, Any], names: str | tuple[str, ...]) -> Any:
    if isinstance(names, str):
        return columns[names]
    return {name: columns[name] for name in names}
