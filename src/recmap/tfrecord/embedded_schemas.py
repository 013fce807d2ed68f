"""Descriptions of the columns in records that are not the first of a file.

Files that were put together (``cat a.tfrecord b.tfrecord``) have one wherever one of them
began. The types of the whole are those of its first record, so the others must agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recmap.errors import FieldMismatchError
from recmap.tfrecord.embedded_schema import damaged_description, parse_description
from recmap.tfrecord.unknown_features import Where

__all__ = ["DescribedTypes"]

# Descriptions that are remembered as checked.
_REMEMBERED = 64


class DescribedTypes:
    """The types that rows are read with, as texts by field, which every description must
    agree with. ``origin`` says where they are from. With ``skip`` damaged ones are ignored.
    """

    def __init__(self, texts: Mapping[str, str], origin: str, *, skip: bool = False) -> None:
        self._texts, self._origin, self._skip = dict(texts), origin, skip
        self._checked = set[bytes]()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_checked": set()}

    def select(self, names: Sequence[str]) -> DescribedTypes:
        """Of these fields only."""
        texts = {name: text for name, text in self._texts.items() if name in names}
        return DescribedTypes(texts, self._origin, skip=self._skip)

    def met(self, found: Sequence[tuple[bytes, int]], where: Where) -> None:
        """Raises if one of these, each with the first row that has it, says otherwise."""
        for content, row in sorted(found, key=lambda one: one[1]):
            if content in self._checked:
                continue
            self._check(content, *where(row))
            if len(self._checked) < _REMEMBERED:
                self._checked.add(content)

    def _check(self, content: bytes, file: str, record: int) -> None:
        try:
            texts = parse_description(content)
        except ValueError as e:
            if self._skip:
                return
            raise damaged_description(file, record, e) from None
        for name, text in self._texts.items():
            if texts.get(name, text) != text:
                raise FieldMismatchError(
                    f"{file}: record {record:,} says {name!r} is {texts[name]}, but the rows are "
                    f"read as {text} ({self._origin}); files of different types were put together "
                    "(take them apart and open them as several files, or give fields={...} with "
                    "the types)",
                    file=file,
                    record=record,
                    field=name,
                )
