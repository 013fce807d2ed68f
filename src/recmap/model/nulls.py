"""Nulls: what becomes of missing values, which recmap's columns cannot hold."""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["Nulls"]

Nulls: TypeAlias = Literal["error", "fill", "mask"]
