"""Conditions written as text: ``label == 3 and kind in ["a", "b"]``.

The text is Python, and Python's own parser reads it; nothing is executed. A name is a column, and
a name with other characters is put in backquotes or in ``col("...")``::

    label == 3                 10 < size <= 20            `image/class/label` != 7
    a and (b or not c)         (a) & ((b) | ~(c))         flag
    kind in ["a", "b"]         kind not in ["a", "b"]     between(size, 1, 5)
    name.starts_with("x")      name.contains("x")         "x" in name
    size is null               size is not null           is_nan(size)
    day >= "2024-01-31"        data == b"abc"             col("my column") > 1.5

The repr of an expression is such a text.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any, NoReturn

import numpy as np

from recmap.errors import OptionError
from recmap.model.expression import Expression, NamedColumn

# Strings, which may hold backquotes, and names in backquotes.
_QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`([^`]*)`", re.DOTALL)
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None, "inf": float("inf")}
_RELATIONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "__eq__",
    ast.NotEq: "__ne__",
    ast.Lt: "__lt__",
    ast.LtE: "__le__",
    ast.Gt: "__gt__",
    ast.GtE: "__ge__",
}
_TURNED = {"__lt__": "__gt__", "__le__": "__ge__", "__gt__": "__lt__", "__ge__": "__le__"}
# How many arguments the tests of a column take, and how else people write them.
_TESTS = {"is_in": 1, "between": 2, "starts_with": 1, "contains": 1, "is_null": 0, "is_nan": 0}
_ALSO = {"startswith": "starts_with", "isin": "is_in", "isnull": "is_null", "isnan": "is_nan"}
# What stands between two texts that Python makes one.
_BETWEEN_TEXTS = re.compile(r"\s*[bBrRuU]{0,2}")
# What a date without quotes looks like.
_DATE = re.compile(r"(?<![\w.])\d{4}-\d{2}(?!\w)")
_QUOTE_DATES = 'put dates in quotes: day >= "2024-01-31"'
# Longer texts are shortened in messages.
_LONG = 200
_EXAMPLE = 'write it like: label == 3 and kind in ["a", "b"]'


def parse_expression(text: str) -> Expression:
    """Return the expression that a text means.

    >>> parse_expression("10 < size <= 20 and not `my kind` in ['a', 'b']")
    (col('size') > 10) & (col('size') <= 20) & ~col('my kind').is_in(['a', 'b'])
    """
    return _ConditionParser(text).parse()


class _ConditionParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._names: dict[str, str] = {}

    def parse(self) -> Expression:
        source = _QUOTED.sub(self._plain_name, self._text.strip())
        self._refuse_adjacent_texts(source)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of Python, about the text
                tree = ast.parse(source, mode="eval")
            return self._condition(tree.body)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
            if isinstance(e, OptionError):
                raise
            self._refuse(_hint(source, e))

    def _plain_name(self, match: re.Match[str]) -> str:
        """Return an identifier in place of a name in backquotes."""
        if match[1] is None:
            return match[0]
        plain = f"__column_{len(self._names)}"
        self._names[plain] = match[1]
        return plain

    def _refuse_adjacent_texts(self, source: str) -> None:
        """Refuse ``'it''s'``, which is ``it's`` in SQL and ``its`` in Python."""
        end: int | None = None
        for text in _QUOTED.finditer(source):
            if end is not None and re.fullmatch(
                r"\s*[bru]{0,2}", source[end : text.start()], re.IGNORECASE
            ):
                self._refuse('two texts side by side: write "it\'s" for a text with a quote')
            end = text.end()

    def _refuse(self, why: str) -> NoReturn:
        text = self._text if len(self._text) <= _LONG else f"{self._text[:_LONG]}..."
        raise OptionError(f"where {text!r}: {why}")

    def _shown(self, node: ast.expr) -> str:
        """Return a part of the text."""
        text = ast.unparse(node)
        for plain, name in self._names.items():
            text = text.replace(plain, f"`{name}`")
        return text if len(text) <= _LONG else f"{text[:_LONG]}..."

    def _condition(self, node: ast.expr) -> Expression:
        if isinstance(node, ast.BoolOp):
            return _joined([self._condition(each) for each in node.values], node.op)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
            return _joined([self._condition(each) for each in (node.left, node.right)], node.op)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
            return ~self._condition(node.operand)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.Call) and not self._is_column(node):
            return self._call(node)
        return self._column(node)

    def _comparison(self, node: ast.Compare) -> Expression:
        terms = [node.left, *node.comparators]
        pairs = zip(terms, node.ops, terms[1:], strict=False)
        return _joined([self._pair(*pair) for pair in pairs], ast.And())

    def _pair(self, left: ast.expr, sign: ast.cmpop, right: ast.expr) -> Expression:
        if isinstance(sign, ast.Is | ast.IsNot):
            if self._value(right) is not None:
                self._refuse("is takes null: size is null, size is not null")
            found = self._column(left).is_null()
            return found if isinstance(sign, ast.Is) else ~found
        if isinstance(sign, ast.In | ast.NotIn):
            if self._is_column(left):
                found = self._column(left).is_in(self._values(right))
            else:
                found = self._column(right).contains(self._value(left))
            return found if isinstance(sign, ast.In) else ~found
        relation = _RELATIONS[type(sign)]
        if self._is_column(left) and self._is_column(right):
            self._refuse(self._not_a_value(right))
        if self._is_column(right):
            left, right, relation = right, left, _TURNED.get(relation, relation)
        made: Expression = getattr(self._column(left), relation)(self._value(right))
        return made

    def _call(self, node: ast.Call) -> Expression:
        given = list(node.args)
        if isinstance(node.func, ast.Attribute):
            name, given = node.func.attr, [node.func.value, *given]
        else:
            name = node.func.id if isinstance(node.func, ast.Name) else ""
        name = _ALSO.get(name, name)
        if name not in _TESTS or len(given) != _TESTS[name] + 1 or node.keywords:
            self._refuse(f"{self._shown(node)} is not one of the tests, {', '.join(_TESTS)}")
        take = self._values if name == "is_in" else self._value
        test = getattr(self._column(given[0]), name)
        made: Expression = test(*map(take, given[1:]))
        return made

    def _is_column(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id.lower() not in _CONSTANTS
        if isinstance(node, ast.Attribute):
            return self._is_column(node.value)
        return isinstance(node, ast.Call) and ast.unparse(node.func) in ("col", "rm.col")

    def _column(self, node: ast.expr) -> NamedColumn:
        if not self._is_column(node):
            if isinstance(node, ast.BinOp):
                self._refuse(
                    f"{self._shown(node)} calculates, or names a column: put such a name in "
                    "backquotes, `image/label`, and comparisons around & and | in parentheses"
                )
            self._refuse(f"{self._shown(node)} is not a column; {_EXAMPLE}")
        if isinstance(node, ast.Call):
            name = self._value(node.args[0]) if len(node.args) == 1 else None
            return NamedColumn(name) if isinstance(name, str) else self._refuse("write col('name')")
        return NamedColumn(self._dotted(node))

    def _dotted(self, node: ast.expr) -> str:
        """Return a name, which may hold dots."""
        if isinstance(node, ast.Attribute):
            return f"{self._dotted(node.value)}.{node.attr}"
        plain = ast.unparse(node)
        return self._names.get(plain, plain)

    def _values(self, node: ast.expr) -> list[Any]:
        if not isinstance(node, ast.List | ast.Tuple | ast.Set):
            self._refuse(f"{self._shown(node)} is not a list of values, such as [1, 2]")
        return [self._value(each) for each in node.elts]

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and not isinstance(node.value, type(...)):
            return node.value
        if isinstance(node, ast.Name) and node.id.lower() in _CONSTANTS:
            return _CONSTANTS[node.id.lower()]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            value = self._value(node.operand)
            if isinstance(value, int | float | complex):
                return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "np.timedelta64":
            return self._duration(node)
        return self._refuse(self._not_a_value(node))

    def _not_a_value(self, node: ast.expr) -> str:
        shown = self._shown(node)
        if shown.lower() == "nan":
            return "nothing equals NaN; use is_nan(x) to find it"
        if self._is_column(node):
            return f"{shown} is read as a column; put text in quotes: {shown!r}"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
            return "put each comparison in parentheses: (a == 1) & (b > 2), or write and, or"
        if isinstance(node, ast.BinOp) and _DATE.search(self._text):
            return _QUOTE_DATES
        return f'{shown} is not a value, such as 3, 1.5, "text" or b"bytes"'

    def _duration(self, node: ast.Call) -> Any:
        try:
            return np.timedelta64(*[self._value(each) for each in node.args])
        except (TypeError, ValueError) as e:
            if isinstance(e, OptionError):
                raise
            self._refuse(f"{self._shown(node)}: {e}")


def _joined(parts: list[Expression], how: ast.boolop | ast.operator) -> Expression:
    found = parts[0]
    for part in parts[1:]:
        found = found & part if isinstance(how, ast.And | ast.BitAnd) else found | part
    return found


def _hint(source: str, error: Exception) -> str:
    """Say what to write instead of a text that is not Python."""
    outside = _QUOTED.sub("", source)
    if not source:
        return f"it is empty; {_EXAMPLE}"
    if isinstance(error, RecursionError | MemoryError):
        return "it is nested too deeply"
    if re.search(r"(?<![=!<>])=(?!=)", outside):
        return "compare with ==, not ="
    if "<>" in outside:
        return "write != instead of <>"
    if re.search(r"\b(AND|OR|NOT|IN|IS)\b", outside):
        return "write and, or, not, in and is in small letters"
    if re.search(r"\blike\b", outside, re.IGNORECASE):
        return 'write contains(name, "x") or starts_with(name, "x") instead of like'
    if re.search(r"\bbetween\b(?!\s*\()", outside, re.IGNORECASE):
        return "write between(size, 1, 5), or 1 <= size <= 5"
    if _DATE.search(outside):
        return _QUOTE_DATES
    if "&&" in outside or "||" in outside or re.search(r"!(?!=)", outside):
        return "write and, or, not instead of &&, ||, !"
    return f"it cannot be read; {_EXAMPLE}; a name with other characters goes in backquotes"
