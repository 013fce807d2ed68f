"""Read a large JSON object value by value, with little more than one value in memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from recmap.errors import DataError
from recmap.local.location import OpenFile

# Bytes that are read at once, and the most characters of a value.
_READ, _MOST = 1 << 20, 1 << 28
# Damage this close to the end of the text that was read may be a value that goes on.
_CUT = 32
_SPACE = re.compile(r"[ \t\r\n]*")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name}, which is not JSON")


class JsonStream:
    """A JSON file that is one object. Its members are read in order, each once."""

    def __init__(self, path: str, file: OpenFile) -> None:
        self._path, self._file = path, file
        self._decoder = json.JSONDecoder(parse_constant=_refuse_constant)
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")()
        # What was read and not used yet begins at ``_at``. The file is read up to ``_place``.
        self._text, self._at, self._place = "", 0, 0
        self._ended = False

    def fail(self, why: str) -> DataError:
        """Make the error for what is at this place."""
        left = len(self._text[self._at :].encode())
        byte = self._place - left
        return DataError(f"{self._path}: byte {byte:,}: {why}", file=self._path, byte=byte)

    def members(self) -> Iterator[str]:
        """Yield the names of the members. Read the value of each, or the items of its list."""
        self._take("{")
        known: set[str] = set()
        ended = self._took("}")
        while not ended:
            name = self.value()
            if not isinstance(name, str):
                raise self.fail("not valid JSON: the name of a member is missing")
            if name in known:
                raise self.fail(f"{name!r} is there twice")
            known.add(name)
            self._take(":")
            yield name
            ended = self._took("}")
            if not ended:
                self._take(",")
        if self._next():
            raise self.fail("more follows after the end of the JSON object")

    def items(self) -> Iterator[Any]:
        """Yield the items of the list that comes next."""
        self._take("[")
        if self._took("]"):
            return
        while True:
            yield self.value()
            if self._took("]"):
                return
            self._take(",")

    def skip(self) -> None:
        """Pass over a value; of a list, item by item."""
        if self._next() != "[":
            self.value()
            return
        for _ in self.items():
            pass

    def value(self) -> Any:
        """Read the value that comes next."""
        self._next()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as e:
                goes_on = e.pos + _CUT > len(self._text) or e.msg.startswith("Unterminated")
                if goes_on and self._read():
                    continue
                self._at = min(e.pos, len(self._text))
                why = "the file ends here" if self._at == len(self._text) else e.msg
                raise self.fail(f"not valid JSON: {why}") from None
            except (ValueError, RecursionError) as e:
                raise self.fail(f"not valid JSON: {e}") from None
            # A number may go on: 12 may be the beginning of 12.5e-3.
            is_number = type(value) in (int, float)
            if is_number and end + _CUT > len(self._text) and self._read():
                continue
            self._at = end
            return value

    def _next(self) -> str:
        """Return the next character that is not space; "" at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            assert space is not None
            self._at = space.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read():
                return ""

    def _took(self, character: str) -> bool:
        """Pass over a character if it comes next."""
        if self._next() != character:
            return False
        self._at += 1
        return True

    def _take(self, character: str) -> None:
        if not self._took(character):
            raise self.fail(f"not valid JSON: {character!r} is missing")

    def _read(self) -> bool:
        """Read on, the more the longer the value; return False at the end."""
        if self._ended:
            return False
        rest = self._text[self._at :]
        if len(rest) > _MOST:
            raise self.fail(f"a value of more than {_MOST:,} characters")
        data = self._file.pread(max(_READ, len(rest)), self._place)
        self._place += len(data)
        self._ended = not data
        try:
            more = self._utf8.decode(data, final=self._ended)
        except UnicodeDecodeError as e:
            byte = self._place - len(data) + e.start
            raise DataError(
                f"{self._path}: near byte {byte:,}: not UTF-8", file=self._path, byte=byte
            ) from None
        if data:
            self._text, self._at = rest + more, 0
        return not self._ended
