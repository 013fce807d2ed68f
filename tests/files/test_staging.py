"""Local space for files on their way to a store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recmap.files.staging import make_staging_folder
from recmap.files.temporary import Process, acting_for, process_of, this_process


def test_a_folder_belongs_to_the_process_that_fills_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with acting_for(Process("elsewhere_0123456789ab", 7, "01234567")):
        folder = make_staging_folder()
    assert process_of(folder) == this_process()


def test_folders_of_killed_processes_are_removed_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    program = "from recmap.files.staging import make_staging_folder; make_staging_folder()"
    subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "TMPDIR": str(tmp_path)}, check=True
    )
    (left,) = tmp_path.iterdir()
    (tmp_path / ".recmap-staging").mkdir()
    (tmp_path / ".recmap-staging.elsewhere_0123456789ab-7-01234567-01234567.tmp").mkdir()
    before = set(tmp_path.iterdir())
    own = Path(make_staging_folder())
    assert own.stat().st_mode & 0o777 == 0o700
    assert set(tmp_path.iterdir()) == (before - {left}) | {own}
