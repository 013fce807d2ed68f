"""Makes the pictures of docs/view.md: a dataset with images, boxes, numbers and text, in a browser.

Run ``python -m docs.make.view_pictures``. It needs the test group and Chromium.
"""

from __future__ import annotations

import colorsys
import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import recmap as rm
from recmap.view.api import Api
from recmap.view.server import Server
from recmap.view.table import RowTable
from tests.view.browser import start_browser

IMAGES = Path(__file__).parent.parent / "images"
SHAPES = ["circle", "square", "triangle"]
WORDS = "A {0} and its shadow|One {0}, seen from above|A {0} at dusk|The same {0}, an hour later"


def make(path: str, rows: int = 2000) -> None:
    """Write pictures of shapes with their boxes."""
    rng = np.random.default_rng(7)
    with rm.TFRecordWriter(path) as writer:
        for _ in range(rows // 50):
            made = [scene(rng) for _ in range(50)]
            writer.write(
                {
                    "image/encoded": rm.Ragged.from_bytes([each["image"] for each in made]),
                    "image/caption": rm.Ragged.from_text([each["caption"] for each in made]),
                    "object/label": rm.Ragged.from_bytes([each["label"].encode() for each in made]),
                    "brightness": np.array([each["brightness"] for each in made], np.float32),
                    "sensor": np.stack([each["sensor"] for each in made]),
                    **{
                        f"object/bbox/{name}": rm.Ragged.from_rows(
                            [each["boxes"][:, k] for each in made], "float32"
                        )
                        for k, name in enumerate(("xmin", "ymin", "xmax", "ymax"))
                    },
                }
            )


def scene(rng: np.random.Generator) -> dict[str, Any]:
    hue, label = rng.random(), int(rng.choice(3, p=[0.5, 0.3, 0.2]))
    base = np.array(colorsys.hls_to_rgb(hue, 0.82, 0.45)) * 255
    y = np.linspace(1, 0.72, 96)[:, None, None]
    picture = Image.fromarray((np.broadcast_to(base, (96, 128, 3)) * y).astype(np.uint8))
    draw, boxes = ImageDraw.Draw(picture), []
    for _ in range(int(rng.integers(1, 4))):
        size = int(rng.integers(18, 44))
        left, top = int(rng.integers(4, 122 - size)), int(rng.integers(4, 90 - size))
        right, bottom = left + size, top + size
        shade = rng.random() * 0.15 + 0.4
        color = colorsys.hls_to_rgb((hue + 0.5 + rng.random() * 0.1) % 1, shade, 0.55)
        fill = tuple(int(255 * part) for part in color)
        if label == 0:
            draw.ellipse((left, top, right, bottom), fill=fill)
        elif label == 1:
            draw.rectangle((left, top, right, bottom), fill=fill)
        else:
            draw.polygon([(left, bottom), (right, bottom), ((left + right) // 2, top)], fill=fill)
        boxes.append((left / 128, top / 96, right / 128, bottom / 96))
    file = io.BytesIO()
    picture.save(file, "PNG")
    time = np.linspace(0, 6, 120)
    waves = np.sin(time * rng.uniform(1, 4)) * np.exp(-time * rng.random() / 3)
    return {
        "image": file.getvalue(),
        "caption": str(rng.choice(WORDS.split("|"))).format(SHAPES[label]),
        "boxes": np.array(boxes),
        "label": SHAPES[label],
        "brightness": np.nan if rng.random() < 0.02 else rng.normal(0.6, 0.12),
        "sensor": (waves + rng.normal(0, 0.06, 120)).astype(np.float32),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        make(f"{folder}/shapes.tfrecord")
        table = RowTable(rm.open(f"{folder}/shapes.tfrecord"), "shapes.tfrecord")
        for scheme in ("light", "dark"):
            with Server(Api(table)) as server, start_browser(scheme) as browser:
                browser.get(server.url)
                wait = WebDriverWait(browser, 20)
                wait.until(lambda b: len(b.find_elements(By.CSS_SELECTOR, ".boxes")) >= 5)
                wait.until(lambda b: len(b.find_elements(By.CSS_SELECTOR, ".of")) >= 3)
                browser.execute_script("document.getElementById('grid').focus()")
                if scheme == "dark":
                    browser.find_element(By.CSS_SELECTOR, "#c1-8, #c1-0").click()
                    wait.until(lambda b: b.find_element(By.ID, "pane").is_displayed())
                    wait.until(
                        lambda b: (
                            not b.execute_script(
                                "return [...document.images].some((image) => !image.complete)"
                            )
                        )
                    )
                shot = Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB")
                shot.quantize(256).save(IMAGES / f"view-{scheme}.png", optimize=True)


if __name__ == "__main__":
    main()
