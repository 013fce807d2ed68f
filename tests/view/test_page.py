"""The page of recmap view in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.view.api import Api
from recmap.view.server import Server
from recmap.view.table import RowTable
from tests.pictures import encoded, picture
from tests.view.browser import start_browser

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">"
ROWS = 3000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with start_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("view") / "mixed.tfrecord")
    png = encoded(picture(24, 32), "PNG")
    number = np.arange(ROWS)
    with rm.TFRecordWriter(path) as writer:
        writer.write(
            {
                "image/encoded": rm.Ragged.from_bytes([png] * ROWS),
                **{
                    f"image/object/bbox/{name}": np.full(ROWS, value, np.float32)
                    for name, value in (("xmin", 0.25), ("ymin", 0.5), ("xmax", 0.75), ("ymax", 1))
                },
                "id": number,
                "score": np.where(number % 7, number / 10, np.nan).astype(np.float32),
                "wave": np.sin(number[:, None] + np.arange(40) / 5).astype(np.float32),
                "raw": rm.Ragged.from_bytes([np.arange(12, dtype="float32").tobytes()] * ROWS),
                f"text/{HOSTILE}": rm.Ragged.from_text([HOSTILE] * ROWS),
            }
        )
    return path


def until(browser: Any, test: Callable[[Any], Any]) -> Any:
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.ui import WebDriverWait

    # Rows are drawn anew when their values arrive.
    ignored = [StaleElementReferenceException]
    return WebDriverWait(browser, 60, ignored_exceptions=ignored).until(test)


def all_of(browser: Any, selector: str) -> list[Any]:
    from selenium.webdriver.common.by import By

    found: list[Any] = browser.find_elements(By.CSS_SELECTOR, selector)
    return found


def one(browser: Any, selector: str) -> Any:
    return until(browser, lambda b: (all_of(b, selector) or [None])[0])


def first_row(browser: Any) -> str:
    """Return the number of the first row in sight."""
    found: str = browser.execute_script(
        "const rows = [...document.querySelectorAll('.layer .row')].sort((a, b) => "
        "a.dataset.position - b.dataset.position); "
        "return rows.length ? rows[0].firstChild.textContent : ''"
    )
    return found


def first_row_is(number: str, browser: Any) -> bool:
    return first_row(browser) == number


def click(browser: Any, selector: str) -> None:
    def clicked(_: Any) -> bool:
        one(browser, selector).click()
        return True

    until(browser, clicked)


def keys(browser: Any, selector: str, *typed: str) -> None:
    one(browser, selector).send_keys(*typed)


def open_page(browser: Any, server: Server) -> None:
    browser.get(server.url)
    until(browser, lambda _: first_row(browser) == "0")


def complaints(browser: Any) -> list[str]:
    """Return what the browser logged, such as a violation of the policy, except refused shapes."""
    logged = [entry["message"] for entry in browser.get_log("browser")]
    return [message for message in logged if "/api/try" not in message]


def test_rows_are_shown_scrolled_filtered_and_opened(browser: Any, mixed: str) -> None:
    from selenium.webdriver.common.keys import Keys

    with Server(Api(RowTable(rm.open(mixed), "mixed"))) as server:
        open_page(browser, server)
        # Images with their boxes, in fractions of the picture.
        box = one(browser, "#c0-0 .boxes rect")
        assert [box.get_attribute(n) for n in ("x", "y", "width", "height")] == [
            "8",
            "12",
            "16",
            "12",
        ]
        image = one(browser, "#c0-0 img")
        assert browser.execute_script("return arguments[0].naturalWidth", image) == 32
        assert one(browser, "#c0-7 .sparkline polyline")
        # Values and names of columns stay text.
        assert one(browser, "#c0-9").text == HOSTILE
        assert browser.title == "mixed - recmap view"
        assert all_of(browser, "img[src='x']") == []
        # Summaries say what they cover.
        until(browser, lambda b: len(all_of(b, ".of")) >= 5)
        assert {each.text for each in all_of(browser, ".of")} == {"of all 3,000 rows"}

        grid = one(browser, "#grid")
        grid.send_keys(Keys.CONTROL, Keys.END)
        until(browser, lambda b: one(b, "#c2999-5").text == "2999")
        grid.send_keys(Keys.PAGE_UP, Keys.ARROW_UP, Keys.CONTROL, Keys.HOME)
        until(browser, lambda _: first_row(browser) == "0")
        keys(browser, "#number", "1,234", Keys.ENTER)
        until(browser, lambda b: one(b, "#c1234-5").text == "1234")
        assert browser.execute_script("return document.activeElement.id") == "grid"
        active = one(browser, "#grid").get_attribute("aria-activedescendant")
        assert active.startswith("c1234-")

        # Raw bytes, read as a type.
        click(browser, "#c1234-8")
        click(browser, "#dtype option[value=float32]")
        until(browser, lambda b: "0 1 2 3" in one(b, "#pane fieldset pre.values").text)
        assert (
            "rm.open('mixed', columns={'raw': 'float32[12]', ...: None})"
            in one(browser, "#pane .code").text
        )
        keys(browser, "#shape", Keys.CONTROL, "a")
        keys(browser, "#shape", "5,5", Keys.TAB)
        until(browser, lambda b: "100 bytes" in one(b, "#pane fieldset").text)
        click(browser, "#pane h2")
        one(browser, "#grid").send_keys(Keys.ESCAPE)
        until(browser, lambda b: not one(b, "#pane").is_displayed())

        # A filter, by keyboard.
        click(browser, "#column option[value='5']")
        click(browser, "#operator option:nth-child(5)")
        one(browser, "#grid").send_keys("/")
        browser.switch_to.active_element.send_keys("2990", Keys.ENTER)
        until(browser, lambda b: "9 rows found" in one(b, "#message").text)
        until(browser, lambda _: first_row(browser) == "2,991")
        click(browser, "#clear")
        until(browser, lambda _: first_row(browser) == "0")
        click(browser, "#order option[value=shuffle]")
        until(browser, lambda _: first_row(browser) not in ("", "…", "0"))
        assert complaints(browser) == []


def test_keys_sort_explain_themselves_and_work_at_once(browser: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    many = {f"c{i:02}": np.arange(5) for i in range(45)}
    rows = rm.from_arrays({"x": np.array([3, 1, 2, 5, 4]), **many})
    with Server(Api(RowTable(rows, "rows"))) as server:
        open_page(browser, server)
        assert "40 of 46 columns shown" in one(browser, "#facts").text
        until(browser, lambda b: b.switch_to.active_element.get_attribute("id") == "grid")
        browser.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
        until(browser, lambda b: one(b, "#grid").get_attribute("aria-activedescendant") == "c1-0")
        # Sorted by the first column: up, down, and as stored again.
        for first, direction in (("1", "ascending"), ("3", "descending"), ("0", None)):
            browser.switch_to.active_element.send_keys("s")
            until(browser, partial(first_row_is, first))
            head = one(browser, ".head .cell:nth-child(2)")
            assert head.get_attribute("aria-sort") == direction
        click(browser, ".head .cell:nth-child(2)")
        until(browser, lambda _: first_row(browser) == "1")
        # A wrong value says so, and the rows stay.
        click(browser, "#column option[value='0']")
        keys(browser, "#value", "many", Keys.ENTER)
        until(browser, lambda b: "many" in one(b, "#message").text)
        assert first_row(browser) == "1"
        assert len(complaints(browser)) == 1  # the request that was refused
        one(browser, "#grid").send_keys("?")
        until(browser, lambda b: "Arrow keys" in one(b, "#keys").text)
        browser.switch_to.active_element.send_keys(Keys.ESCAPE)
        until(browser, lambda b: not one(b, "#keys").is_displayed())
        assert complaints(browser) == []


def test_every_control_fits_a_narrow_window(browser: Any) -> None:
    size = browser.get_window_size()
    with Server(Api(RowTable(rm.from_arrays({"x": np.arange(5)}), "rows"))) as server:
        browser.set_window_size(500, 800)
        try:
            open_page(browser, server)
            script = (
                "document.body.style.width = '420px';"
                "return Math.max(...[...document.querySelectorAll('nav *')].map("
                "(each) => each.getBoundingClientRect().right))"
            )
            assert browser.execute_script(script) <= 420
        finally:
            browser.set_window_size(size["width"], size["height"])


def test_a_file_of_a_terabyte_scrolls_to_its_end(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    path = tmp_path / "huge.bin"
    with path.open("wb") as file:
        file.truncate(10**12)
        file.seek(10**12 - 4)
        file.write(np.float32(7).tobytes())
    huge = rm.open(str(path), dtype="float32", shape=(-1, 25))
    with Server(Api(RowTable(huge, "huge"))) as server:
        open_page(browser, server)
        assert "10,000,000,000 rows" in one(browser, "#facts").text
        until(browser, lambda b: "of the first 10,000 rows" in [e.text for e in all_of(b, ".of")])
        keys(browser, "#number", "5000000001", Keys.ENTER)
        until(
            browser,
            lambda b: one(b, "[data-position='5000000001'] .number").text == "5,000,000,001",
        )
        grid = one(browser, "#grid")
        grid.send_keys(Keys.ARROW_DOWN)
        until(
            browser,
            lambda b: one(b, "#grid").get_attribute("aria-activedescendant") == "c5000000002-0",
        )
        grid.send_keys(Keys.CONTROL, Keys.END)
        click(browser, "#c9999999999-0")
        until(browser, lambda b: one(b, "#pane pre.values").text.endswith("0 7"))
        # The wheel moves by rows, though a pixel of the scroll bar stands for thousands.
        before = int(first_row(browser).replace(",", ""))
        browser.execute_script(
            "arguments[0].dispatchEvent(new WheelEvent('wheel', {deltaY: -440, cancelable: true}))",
            grid,
        )
        until(browser, lambda b: first_row(b) == f"{before - 10:,}")
        assert complaints(browser) == []


def test_two_datasets_are_compared(browser: Any) -> None:
    a = np.arange(500.0)
    b = a.copy()
    b[[3, 400]] += 1
    tables = [RowTable(rm.from_arrays({"x": x, n: a}), n) for x, n in ((a, "old"), (b, "new"))]
    with Server(Api(*tables)) as server:
        open_page(browser, server)
        assert one(browser, "#name").text == "old ↔ new"
        until(browser, lambda _: one(browser, "#c3-0").text.split() == ["a", "3", "b", "4"])
        assert "only in b" in one(browser, "#tree").text
        click(browser, "#differences")
        until(browser, lambda _: "2 rows found" in one(browser, "#message").text)
        until(browser, lambda _: first_row(browser) == "3")
        assert complaints(browser) == []


def test_damage_is_shown_with_its_bytes(browser: Any, mixed: str, tmp_path: Path) -> None:
    data = bytearray(Path(mixed).read_bytes())
    offset = len(data) // 3000 * 2 + 60
    data[offset] ^= 1
    path = tmp_path / "damaged.tfrecord"
    path.write_bytes(data)
    with Server(Api(RowTable(rm.open(str(path)), "damaged"))) as server:
        open_page(browser, server)
        until(browser, lambda b: "record 1 at byte" in one(b, ".cell.damaged").text)
        click(browser, ".cell.damaged")
        until(browser, lambda _: "from byte" in one(browser, "#pane").text)
        assert one(browser, "#pane .hex").text.count("\n") > 10
        assert complaints(browser) == []


def test_lists_of_images_are_strips_and_everything_has_a_name(browser: Any) -> None:
    frames = np.zeros((3, 7, 16, 24, 3), np.uint8)
    images = [[encoded(picture(24, 32), "PNG")] * i for i in range(3)]
    rows = [{"list": a, "clip": b} for a, b in zip(images, frames, strict=True)]

    def await_widths(selector: str, expected: list[int]) -> None:
        read = "return arguments[0].map((image) => image.naturalWidth)"
        until(browser, lambda b: b.execute_script(read, all_of(b, selector)) == expected)

    with Server(Api(RowTable(rm.open(rows), "lists"))) as server:
        open_page(browser, server)
        await_widths("#c0-0 .strip img", [])
        await_widths("#c2-0 .strip img", [32] * 2)
        await_widths("#c2-1 .strip img", [24] * 4)
        click(browser, "#c2-1")
        await_widths("#pane .strip img", [24] * 7)
        assert "uint8 [7, 16, 24, 3]" in one(browser, "#pane").text
        tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        read = [node for node in tree if not node["ignored"]]
        roles = {"button", "checkbox", "combobox", "grid", "gridcell", "image", "textbox"}
        named = [(n["role"]["value"], n["name"]["value"]) for n in read if "name" in n]
        assert {role for role, _ in named} >= roles
        assert [role for role, name in named if role in roles and not name] == []
        assert ("gridcell", "2 images") in named
        assert complaints(browser) == []
