"""Runs commands in a terminal, and draws what they print as docs/images/terminal.svg.

python -m docs.make.terminal_picture
"""

from __future__ import annotations

import contextlib
import html
import re
import tempfile
from pathlib import Path

import numpy as np

import recmap as rm
from tests.command import run_in_terminal

SCREENS = [
    ["recmap info photos.h5"],
    ["recmap convert photos.h5 train/ --shards 4", "recmap head train/ -n 4"],
    ["recmap stats train/"],
    ["recmap diff photos.h5 train/", "recmap verify train/"],
]
PICTURE = Path(__file__).parents[1] / "images" / "terminal.svg"
COLUMNS, LINES, SECONDS = 92, 14, 4
WIDTH, HEIGHT, MARGIN = 7.8, 18, 16

# The colours of a terminal, by the codes that recmap uses.
COLORS = {"1": "#ffffff", "2": "#8b949e", "31": "#ff7b72", "32": "#7ee787", "33": "#e3b341",
          "36": "#79c0ff"}  # fmt: skip
PLAIN, BACK = "#d0d7de", "#0d1117"


def make_photos(path: str) -> None:
    rng, rows = np.random.default_rng(0), 20_000
    captions = ["a red fox", "two birds", "the old harbour", "rain on glass", "a child reading"]
    rm.from_arrays({
        "image": rng.integers(0, 256, (rows, 32, 32, 3), "uint8"),
        "label": rng.choice(5, rows, p=[0.5, 0.2, 0.15, 0.1, 0.05]),
        "score": rng.normal(0.6, 0.1, rows).astype("float32"),
        "caption": rm.Ragged.from_text([captions[i] for i in rng.integers(0, 5, rows)]),
    }).save(path)  # fmt: skip


def run(command: str) -> list[str]:
    """Return a command, and the lines that it leaves in a terminal, with their colours."""
    code, written = run_in_terminal(*command.split()[1:], columns=COLUMNS)
    if code:
        raise SystemExit(written)
    # A progress bar is cleared when it is done.
    lines = written.rpartition("\x1b[2K")[2].splitlines()
    return [f"\x1b[32m$\x1b[0m \x1b[1m{command}", *lines, ""]


def drawn(line: str, number: int) -> str:
    """Return a line as SVG. Its length is fixed, whatever font there is."""
    parts, color, count = [], PLAIN, 0
    for code, text in re.findall(r"\x1b\[(\d*)m|([^\x1b]+)", line):
        if text:
            # Spaces in a row would become one.
            kept = html.escape(text).replace(" ", "\N{NO-BREAK SPACE}")
            parts.append(f'<tspan fill="{color}">{kept}</tspan>')
            count += len(text)
        else:
            color = COLORS.get(code, PLAIN)
    place = f'x="{MARGIN}" y="{MARGIN + HEIGHT * (number + 1)}"'
    return (
        f'<text {place} textLength="{count * WIDTH:.1f}">{"".join(parts)}</text>' if parts else ""
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        make_photos("photos.h5")
        screens = [[line for each in commands for line in run(each)] for commands in SCREENS]
    share = 100 / len(screens)
    shown = "".join(
        f'<g class="screen" style="animation-delay:{i * SECONDS}s">'
        f"{''.join(drawn(line, n) for n, line in enumerate(screen))}</g>\n"
        for i, screen in enumerate(screens)
    )
    wide, high = 2 * MARGIN + COLUMNS * WIDTH, 2 * MARGIN + HEIGHT * (LINES + 1)
    PICTURE.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" '
        f'font-family="monospace" font-size="13">\n<style>'
        f".screen {{ opacity: 0; animation: show {len(screens) * SECONDS}s infinite }} "
        f"@keyframes show {{ 0%, {share - 0.01:.2f}% {{ opacity: 1 }} "
        f"{share:.2f}%, 100% {{ opacity: 0 }} }}</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="{BACK}"/>\n{shown}</svg>\n'
    )


if __name__ == "__main__":
    main()
