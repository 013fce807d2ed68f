"""Dataset.view(): the page in a notebook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self


class Widget:
    """The page of a dataset, in a frame. It is served until ``close()``, or the program ends.

    ``url`` opens it in a browser on the same machine, with its token.
    """

    def __init__(self, url: str, height: int, close: Callable[[], None]) -> None:
        self.url, self._height, self._close = url, height, close

    def close(self) -> None:
        """Stop serving."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self.url}>"

    def _repr_html_(self) -> str:
        from html import escape

        return (
            f'<iframe src="{escape(self.url)}" title="recmap view" width="100%" '
            f'height="{self._height}" style="border: 1px solid #8884; border-radius: 6px; '
            'box-sizing: border-box"></iframe>'
        )


# Serves the page of a dataset, given its height and a port. The page is made of datasets, in a
# package above this one, so recmap itself, which is above both, puts the function here.
show: Callable[[Any, int, int], Widget]
