"""The package anndata, with what it needs to write files under pandas 3."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pandas as pd  # type: ignore[import-untyped]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import anndata

__all__ = ["anndata", "plain_strings"]


@contextmanager
def plain_strings() -> Iterator[None]:
    """Make strings objects: anndata 0.12 does not write those of pandas 3."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pd.set_option("future.infer_string", False)
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pd.reset_option("future.infer_string")
