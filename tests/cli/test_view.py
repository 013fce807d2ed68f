"""recmap view, as users run it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from recmap.cli import main
from tests.command import COMMAND


@pytest.mark.slow
def test_the_address_is_printed_and_ctrl_c_stops_the_server() -> None:
    np.save("x.npy", np.arange(6).reshape(3, 2))
    with subprocess.Popen(
        [*COMMAND, "view", "x.npy", "--no-browser"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        asked = urllib.request.Request(
            f"{url}api/info", b"{}", {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(asked) as answer:
            info = json.load(answer)
        assert (info["name"], info["count"]["rows"]) == ("x.npy", 3)
        assert info["columns"][0]["storage"] == "mapped in place"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_ctrl_c_while_the_browser_starts_stops_the_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(url: str) -> bool:
        raise KeyboardInterrupt(url)

    np.save("x.npy", np.arange(3))
    monkeypatch.setattr("webbrowser.open", interrupted)
    assert main(["view", "x.npy"]) == 0
    assert "interrupted" not in capsys.readouterr().err


def test_a_report_is_written_once(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.arange(3))
    assert main(["view", "x.npy", "--html", "report.html"]) == 0
    assert "All 3 rows" in Path("report.html").read_text()
    assert main(["view", "x.npy", "--html", "report.html"]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main(["view", "x.npy", "--html", "report.html", "--overwrite"]) == 0


def test_a_pipeline_is_imported_from_this_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("viewed_training.py").write_text(
        "import numpy as np, recmap as rm\n"
        "def train():\n"
        "    return rm.from_arrays({'x': np.arange(5)}).batch(2)\n"
    )
    assert main(["view", "--pipeline", "viewed_training:train", "--html", "batches.html"]) == 0
    assert "5 rows" in Path("batches.html").read_text()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "give the path of a dataset, or --pipeline MODULE:NAME"),
        (["a", "b", "c"], "give one path, or two to compare"),
        (["--pipeline", "train"], "write module:name"),
        (["--pipeline", "no_such_module:x"], "No module named 'no_such_module'"),
        (["--pipeline", "os:sep"], "is a str, not a pipeline of recmap"),
        (["x.npy", "--port", "70000"], "give a number from 0 to 65535"),
    ],
)
def test_wrong_calls_are_explained(
    args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", *args]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_a_notebook_shows_the_page_in_a_frame() -> None:
    with rm.from_arrays({"x": np.arange(3)}).view(height=300) as widget:
        shown = widget._repr_html_()
        assert f'<iframe src="{widget.url}"' in shown
        assert 'height="300"' in shown
        with urllib.request.urlopen(widget.url) as page:
            assert "frame-ancestors http://127.0.0.1:*" in page.headers["Content-Security-Policy"]
