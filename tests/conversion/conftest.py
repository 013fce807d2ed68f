"""Fixtures for conversions to stores."""

from __future__ import annotations

import pytest

from recmap.store import object_writer


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let objects above 5 MiB be sent in parts, which is the least that S3 takes."""
    parts = object_writer.UploadParts(5 << 20, 2)
    monkeypatch.setattr(object_writer, "choose_parts", lambda *_: parts)
    for name in ("recmap.conversion.budget", "recmap.conversion.engine"):
        monkeypatch.setattr(f"{name}.choose_parts", lambda *_: parts)
