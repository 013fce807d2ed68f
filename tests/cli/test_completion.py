"""Shell completion of verbs, options and paths."""

from __future__ import annotations

import subprocess

import pytest

from recmap.cli import main


def _completed(script: str, *words: str) -> list[str]:
    """Return what bash completes the last word to."""
    call = (
        f"{script}\nCOMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
        '_shtab_recmap; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", call], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes_verbs_options_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    for name in ("numbers.npy", "notes.txt"):
        with open(name, "w", encoding="utf-8"):
            pass
    assert _completed(script, "recmap", "co") == ["convert", "completion"]
    assert "--shuffle" in _completed(script, "recmap", "convert", "--sh")
    assert _completed(script, "recmap", "info", "num") == ["numbers.npy"]
    assert _completed(script, "recmap", "convert", "num") == ["numbers.npy"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_there_are_scripts_for_other_shells(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "convert" in capsys.readouterr().out
