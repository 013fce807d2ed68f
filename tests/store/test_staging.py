"""Local space for files on their way to a store."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import recmap as rm
from recmap.local.temporary import Process, acting_for, process_of, this_process
from recmap.store.staging import check_space, make_staging_folder


@pytest.fixture(autouse=True)
def _own_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_folders_of_killed_processes_are_removed_by_the_next(tmp_path: Path) -> None:
    program = "\n".join(
        [
            "import os, signal, sys, tempfile",
            "from recmap.store.staging import make_staging_folder",
            f"tempfile.tempdir = {str(tmp_path)!r}",
            "folder = make_staging_folder()",
            "for name in map(str, range(300)):",
            "    os.mkdir(os.path.join(folder, name))",
            "os.kill(os.getpid(), signal.SIGKILL)",
        ]
    )
    subprocess.run([sys.executable, "-c", program], check=False, timeout=600)
    (left,) = tmp_path.iterdir()
    mine = tmp_path / "mine"
    mine.mkdir()
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: make_staging_folder(), range(8)))
    assert not left.exists()
    assert len(set(made)) == 8
    assert set(map(str, tmp_path.iterdir())) == {*made, str(mine)}


def test_others_cannot_look_inside() -> None:
    assert os.stat(make_staging_folder()).st_mode & 0o077 == 0


def test_too_little_space_is_an_error_that_says_what_to_do() -> None:
    check_space(1, "s3://bucket/x.h5")
    with pytest.raises(rm.OutputError, match=r"s3://bucket/x\.h5: .* set TMPDIR"):
        check_space(1 << 60, "s3://bucket/x.h5")


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
    program = "from recmap.store.staging import make_staging_folder; make_staging_folder()"
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
