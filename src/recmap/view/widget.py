"""Dataset.view(): the page in a notebook."""

from __future__ import annotations

from html import escape
from typing import Self

from recmap.dataset.dataset import Dataset
from recmap.view.api import Api
from recmap.view.server import Server
from recmap.view.table import RowTable


class Widget:
    """The page of a dataset, in a frame. It is served until ``close()``, or the program ends.

    ``url`` opens it in a browser on the same machine.
    """

    def __init__(self, dataset: Dataset, height: int, port: int) -> None:
        name = dataset.files[0] if dataset.files else "in memory"
        more = f" and {len(dataset.files) - 1:,} more" if len(dataset.files) > 1 else ""
        self._server = Server(Api(RowTable(dataset, name + more)), port=port, framed=True)
        self._height = height

    @property
    def url(self) -> str:
        """The address of the page, with its token."""
        return self._server.url

    def close(self) -> None:
        """Stop serving."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self.url}>"

    def _repr_html_(self) -> str:
        return (
            f'<iframe src="{escape(self.url)}" title="recmap view" width="100%" '
            f'height="{self._height}" style="border: 1px solid #8884; border-radius: 6px; '
            'box-sizing: border-box"></iframe>'
        )
