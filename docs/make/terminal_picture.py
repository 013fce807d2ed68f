"""Runs commands in a terminal, and draws what they print as docs/images/terminal.svg.

python -m docs.make.terminal_picture
"""

from __future__ import annotations

import contextlib
import html
import re
import shlex
import tempfile
from pathlib import Path

import numpy as np

import recmap as rm
from tests.command import run_in_terminal

# Each of them fills the terminal.
SCREENS = [
    ["recmap info photos.h5", "recmap convert photos.h5 train/ --shards 4"],
    ["recmap stats train/"],
    [
        "recmap head train/ --where 'label == 3' -n 7",
        "recmap diff photos.h5 train/",
        "recmap verify train/",
    ],
]
PICTURE = Path(__file__).parents[1] / "images" / "terminal.svg"
COLUMNS, LINES, SECONDS = 88, 15, 5
WIDTH, HEIGHT, MARGIN, BAR = 8.4, 20, 18, 30

# The colours of a terminal, by the codes that recmap uses.
COLORS = {"1": "#ffffff", "2": "#8b949e", "31": "#ff7b72", "32": "#7ee787", "33": "#e3b341",
          "36": "#79c0ff"}  # fmt: skip
PLAIN, BACK = "#d0d7de", "#0d1117"
# The frame shows on a dark page, whose colour may be that of the terminal.
FRAME, TITLE, BUTTONS = "#6e7681", "#21262d", ("#ff5f57", "#febc2e", "#28c840")


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
    code, written = run_in_terminal(*shlex.split(command)[1:], columns=COLUMNS)
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
    place = f'x="{MARGIN}" y="{BAR + HEIGHT * (number + 1) + 4}"'
    return (
        f'<text {place} textLength="{count * WIDTH:.1f}">{"".join(parts)}</text>' if parts else ""
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        make_photos("photos.h5")
        screens = [[line for each in commands for line in run(each)] for commands in SCREENS]
    share = 100 / len(screens)
    shown = "".join(
        # Where nothing moves, the first screen is shown.
        f'<g class="screen" opacity="{0 if i else 1}" style="animation-delay:{i * SECONDS}s">'
        f"{''.join(drawn(line, n) for n, line in enumerate(screen))}</g>\n"
        for i, screen in enumerate(screens)
    )
    wide, high = 2 * MARGIN + COLUMNS * WIDTH, BAR + MARGIN + HEIGHT * LINES
    inside = f'x="1" y="1" width="{wide - 2:.0f}"'
    buttons = "".join(
        f'<circle cx="{MARGIN + 18 * i}" cy="{BAR / 2 + 1:g}" r="5.5" fill="{color}"/>'
        for i, color in enumerate(BUTTONS)
    )
    PICTURE.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" '
        f'font-family="monospace" font-size="14">\n<style>'
        f".screen {{ animation: show {len(screens) * SECONDS}s infinite }} "
        f"@keyframes show {{ 0%, {share - 0.01:.2f}% {{ opacity: 1 }} "
        f"{share:.2f}%, 100% {{ opacity: 0 }} }}</style>\n"
        f'<rect {inside} height="{high - 2:.0f}" rx="8" fill="{BACK}"/>\n'
        f'<path d="M1 {BAR}V9a8 8 0 0 1 8-8H{wide - 9:.0f}a8 8 0 0 1 8 8V{BAR}z" fill="{TITLE}"/>\n'
        f"{buttons}\n"
        f'<rect {inside} height="{high - 2:.0f}" rx="8" fill="none" stroke="{FRAME}"/>\n'
        f"{shown}</svg>\n"
    )


if __name__ == "__main__":
    main()
