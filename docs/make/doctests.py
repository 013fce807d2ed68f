"""Shows examples in docstrings as blocks of code: to Markdown, ``>>>`` is a quotation."""

from __future__ import annotations

from typing import Any

import griffe

__all__ = ["Doctests"]


class Doctests(griffe.Extension):
    """Fences the examples in every docstring of the package."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the examples of one docstring; griffe calls this for every object."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Return the text with its examples, from ``>>>`` to the next empty line, in fences."""
    blocks = text.split("\n\n")
    return "\n\n".join(
        f"```pycon\n{block}\n```" if block.startswith(">>>") else block for block in blocks
    )
