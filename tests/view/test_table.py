"""Rows, searches, summaries and reports behind the page of recmap view."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import recmap as rm
from recmap.view.api import Api
from recmap.view.report import write_report
from recmap.view.table import BatchTable, RowTable
from tests.pictures import encoded, picture


def api_of(rows: Any, name: str = "rows") -> Api:
    dataset = rm.open(rows) if isinstance(rows, str) else rm.from_arrays(rows)
    return Api(RowTable(dataset, name))


def ask(api: Api, name: str, **given: Any) -> Any:
    answer = api.call(name, given)
    return json.loads(json.dumps(answer, allow_nan=False))


def cells(api: Api, row: int, *columns: int) -> list[Any]:
    answer = ask(api, "rows", start=row, stop=row + 1, columns=list(columns))
    found: list[Any] = answer["rows"][0]["cells"]
    return found


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def found(api: Api, column: int, operator: str, text: str = "") -> list[int]:
    answer = ask(api, "search", column=column, operator=operator, text=text, start=0)
    assert answer["done"]
    rows: list[int] = answer["rows"]
    return rows


def test_numbers_are_exact_and_long_values_shortened() -> None:
    api = api_of(
        {
            "id": np.array([2**63 - 1]),
            "x": np.array([np.nan]),
            "inf": np.array([[np.inf, -np.inf, np.nan, 1, 2]]),
            "text": rm.Ragged.from_text(["é" * 10**6]),
            "blob": rm.Ragged.from_bytes([bytes(10**6)]),
        }
    )
    number, nan, odd, text, blob = cells(api, 0, 0, 1, 2, 3, 4)
    assert number["text"] == "9223372036854775807"
    assert nan["text"] == "nan"
    assert odd["points"] == [None, None, None, 1.0, 2.0]
    assert (len(text["text"]), text["size"]) == (240, 10**6)
    assert (blob["kind"], blob["size"]) == ("bytes", 10**6)
    assert len(json.dumps(ask(api, "value", row=0, column=4))) < 100_000


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 1), (20, 30, 3), (20, 30, 4), (3, 20, 30)])
def test_arrays_of_pixels_become_images(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (1, *shape), dtype=np.uint8)
    media = api_of({"x": pixels}).media({"row": 0, "column": 0})
    assert media is not None
    shown = np.asarray(Image.open(io.BytesIO(media.data)))
    expected = np.moveaxis(pixels[0], 0, 2) if shape[0] == 3 else pixels[0]
    assert np.array_equal(shown.reshape(expected.shape), expected)


def test_items_of_lists_and_stacks_of_pixels_are_images() -> None:
    random = np.random.default_rng(0)
    clips = random.integers(0, 256, (2, 6, 20, 30, 3), dtype=np.uint8)
    encoded = [[png(frame) for frame in clip] for clip in clips]
    rows = [{"clip": a, "list": b} for a, b in zip(clips, encoded, strict=True)]
    api = Api(RowTable(rm.open(rows), "x"))
    for cell in cells(api, 1, 0, 1):
        assert (cell["kind"], cell["size"], len(cell["items"])) == ("list", 6, 4)
        assert {item["kind"] for item in cell["items"]} == {"image"}
    for column in (0, 1):
        assert len(ask(api, "value", row=1, column=column)["items"]) == 6
        media = api.media({"row": "1", "column": column, "item": "5"})
        assert media is not None
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(media.data))), clips[1, 5])
        for item in ("6", "5,0", ""):
            assert api.media({"row": "1", "column": column, "item": item}) is None
        for item in ("-1", "x", "5,x"):
            with pytest.raises(rm.OptionError, match="item must be a whole number"):
                api.media({"row": "1", "column": column, "item": item})


def test_samples_of_a_column_called_audio_are_played() -> None:
    wave = np.sin(np.arange(1000) / 5).astype(np.float32)[None]
    api = api_of({"audio": wave, "other": wave})
    assert [cell["kind"] for cell in cells(api, 0, 0, 1)] == ["audio", "numbers"]
    media = api.media({"row": "0", "column": "0", "rate": "8000"})
    assert media is not None
    assert (media.data[:4], media.type, len(media.data)) == (b"RIFF", "audio/wav", 2044)
    assert int.from_bytes(media.data[24:28], "little") == 8000
    rates = np.array([8_000])
    api = api_of({"audio": wave[:1], "audio/sample_rate": rates})
    assert ask(api, "value", row=0, column=0)["note"].startswith("8,000 Hz")
    assert ask(api, "value", row=0, column=0)["rate"] == 8_000


def test_a_search_compares_values_as_their_type_does() -> None:
    api = api_of(
        {
            "i": np.array([1, 2, 2**62 + 1]),
            "f": np.array([0.1, np.nan, 2], np.float32),
            "s": rm.Ragged.from_text(["a", "", "ab"]),
            "r": rm.Ragged.from_rows([[1, 2], [], [3]]),
        }
    )
    assert found(api, 0, "=", str(2**62 + 1)) == [2]
    assert found(api, 0, "≠", "2") == [0, 2]
    assert found(api, 0, ">", "1.5") == [1, 2]
    assert found(api, 1, "=", "0.1") == [0]
    assert found(api, 1, "missing") == found(api, 2, "missing") == found(api, 3, "missing") == [1]
    assert found(api, 2, "contains", "a") == [0, 2]
    assert found(api, 2, "=", "a") == [0]
    assert found(api, 3, "≥", "2") == [0, 2]
    assert found(api, 0, "where", "i > 1 and not s == 'ab'") == [1]
    with pytest.raises(rm.OptionError, match="compare with =="):
        found(api, 0, "where", "i = 1")
    with pytest.raises(rm.OptionError, match="contains takes a column of strings"):
        found(api, 0, "contains", "1")
    many = api_of({"x": np.zeros(50_000)})
    first = ask(many, "search", column=0, operator="=", text="0", start=0)
    assert (len(first["rows"]), first["next"], first["done"]) == (20_000, 20_000, False)
    with pytest.raises(rm.OptionError, match="'x' is not a value of int64"):
        found(api, 0, "=", "x")


def test_a_value_beyond_the_type_is_not_infinity() -> None:
    api = api_of({"x": np.array([1, np.inf, 65504], np.float16)})
    assert found(api, 0, "=", "1e9") == []
    assert found(api, 0, "=", "inf") == [1]
    assert found(api, 0, "<", "1e9") == [0, 2]
    assert found(api, 0, "≥", "-1e9") == [0, 1, 2]


def test_a_summary_says_what_was_read_and_what_is_missing() -> None:
    x = np.arange(20_000.0) % 4
    x[:10] = np.nan
    api = api_of({"x": x, "s": rm.Ragged.from_bytes([b"", b"b"] * 10_000)})
    numbers, strings = ask(api, "summary", column=0), ask(api, "summary", column=1)
    assert (numbers["rows"], numbers["whole"], numbers["distinct"]) == (10_000, False, 4)
    assert (numbers["values"]["nan"], numbers["values"]["max"]) == (10, "3")
    assert (strings["empty"], strings["top"][0]["count"]) == (5000, 5000)


# NumPy 2.5 says so where the test makes times without a unit.
@pytest.mark.filterwarnings("ignore:The 'generic' unit:DeprecationWarning")
def test_the_most_frequent_dates_are_dates_in_any_unit() -> None:
    assert ask(api_of({"x": np.array([1, 1, 2], "m8")}), "summary", column=0)["distinct"] == 2
    for unit in ("D", "s", "ns"):
        days = np.array(["2020-01-02", "NaT", "2020-01-02", "2020-01-01"], f"M8[{unit}]")
        (first, second) = ask(api_of({"x": days}), "summary", column=0)["top"]
        assert (first["count"], second["count"]) == (2, 1)
        assert first["text"] == str(np.datetime64("2020-01-02", unit))


def test_records_without_an_index_are_found_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 20_000
    with rm.TFRecordWriter("x.tfrecord") as writer:
        writer.write({"x": rm.Ragged.from_rows([np.arange(i % 7) for i in range(rows)])})
    monkeypatch.setattr("recmap.view.table._FIND_SIZE", 1 << 16)
    monkeypatch.setattr("recmap.view.api._SECONDS", 0.0)
    Path(".x.tfrecord.recmap").unlink()  # the index that the writer made
    table = RowTable(rm.open("x.tfrecord"), "x")
    assert not table.count().exact
    api = Api(table)
    answer = ask(api, "rows", start=rows - 1, stop=rows, columns=[0])
    while answer["pending"]:
        answer = ask(api, "rows", start=rows - 1, stop=rows, columns=[0])
    assert answer["rows"][0]["row"] == rows - 1
    while not (answer := ask(api, "count"))["done"]:
        pass
    assert (answer["count"]["rows"], answer["count"]["exact"]) == (rows, True)
    shuffled = ask(api, "rows", start=0, stop=5, seed=3, columns=[0])["rows"]
    assert len({row["row"] for row in shuffled}) == 5


@pytest.mark.parametrize("compress", [bytes, partial(gzip.compress, mtime=0), zlib.compress])
def test_damage_that_hides_later_records_is_the_last_row(
    compress: Callable[[bytearray], bytes],
) -> None:
    with rm.TFRecordWriter("x.tfrecord") as writer:
        writer.write({"x": rm.Ragged.from_rows([np.arange(i) for i in range(1, 40)])})
    data = bytearray(Path("x.tfrecord").read_bytes())
    at = 0
    for _ in range(30):
        at += 16 + int.from_bytes(data[at : at + 8], "little")
    data[at] ^= 255  # the length of record 30
    Path("y.tfrecord").write_bytes(compress(data))
    api = api_of("y.tfrecord")
    rows = ask(api, "rows", start=0, stop=39, columns=[0])["rows"]
    assert [row["row"] for row in rows] == list(range(len(rows)))
    assert len(rows) == ask(api, "info")["count"]["rows"] == 31
    damage = rows[-1]["damage"]
    assert damage["reason"].startswith("y.tfrecord: record 30")
    assert damage["byte"] == at
    assert bytes.fromhex("".join(line[1] for line in damage["hex"])) == data[at:][:512]
    assert "damage" not in rows[0]
    assert found(api, 0, "=", "0") == list(range(30))
    assert ask(api, "summary", column=0)["damaged"] == 1


def test_rows_of_two_datasets_are_compared_exactly() -> None:
    a = {"x": np.array([2**53 + 1, 5, 6]), "s": rm.Ragged.from_bytes([b"a", b"b", b"c"])}
    b = {"x": np.array([2.0**53, 5, 6]), "s": rm.Ragged.from_text(["a", "b", "d"])}
    api = Api(*(RowTable(rm.from_arrays(rows), "x") for rows in (a, b)))
    assert ask(api, "search", operator="differs", start=0)["rows"] == [0, 2]
    rows = ask(api, "rows", start=0, stop=3, columns=[0, 1])["rows"]
    assert [row["differs"] for row in rows] == [[0], [], [1]]


def test_batches_of_a_pipeline_are_rows_with_the_number_of_their_batch() -> None:
    rows = rm.from_arrays({"x": np.arange(100)})
    api = Api(BatchTable(rows.map(lambda row: {"x": row["x"] * 2}).batch(3), "train"))
    info = ask(api, "info")
    assert (info["count"]["rows"], info["batches"]) == (48, [0, 16])
    row = ask(api, "rows", start=4, stop=5, columns=[0])["rows"][0]
    assert (row["title"], row["cells"][0]["text"]) == ("1:1", "8")
    assert ask(api, "advance")["batches"] == [16, 32]
    assert found(api, 0, "=", "96") == [0]
    assert ask(api, "summary", column=0)["rows"] == 48


def test_a_report_is_one_file_without_scripts() -> None:
    hostile = "</style><script>alert(1)</script>"
    pixels = np.zeros((30, 600, 800, 3), np.uint8)
    rows = {"image": pixels, hostile: rm.Ragged.from_text([hostile] * 30), "x": np.arange(30.0)}
    write_report(RowTable(rm.from_arrays(rows), f"a/{hostile}"), "report.html")
    text = Path("report.html").read_text()
    assert "<script" not in text
    assert "default-src &#x27;none&#x27;" in text
    assert "The first 20 rows" in text
    assert "of the first" in text or "all 30 rows" in text
    images = re.findall(r'src="([^"]{40})', text)
    assert len(images) == 20
    assert all(image.startswith("data:image/png;base64,") for image in images)
    with pytest.raises(rm.OutputExistsError):
        write_report(RowTable(rm.from_arrays(rows), "x"), "report.html")


def test_a_report_shows_large_images_and_lists_of_images_small() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (5, 400, 500, 3), dtype=np.uint8)
    rows = [{"large": png(each), "list": [png(each[:20, :20])] * 5} for each in noise]
    write_report(RowTable(rm.open(rows), "x"), "report.html")
    text = Path("report.html").read_text()
    assert "left out" not in text
    assert text.count('<img alt="PNG"') == 5 + 5 * 4
    assert text.count("5 images") == 5
    assert len(text) < 5 * 80_000


def test_a_report_draws_boxes_on_images() -> None:
    image = np.zeros((20, 40, 3), np.uint8)
    corners = {"xmin": 0.25, "ymin": 0.5, "xmax": 0.75, "ymax": 1.0}
    rm.report(
        rm.open([{"image": image, **{f"box/{k}": [v] for k, v in corners.items()}}]), "a.html"
    )
    text = Path("a.html").read_text()
    assert '<svg viewBox="0 0 1 1"' in text
    assert '<rect x="0.25" y="0.5" width="0.5" height="0.5"/>' in text
    # In pixels of the image, whatever it is shown as.
    png = encoded(picture(20, 40), "PNG")
    for value in (image, png):
        rows = rm.open([{"image": value, "bbox": np.array([[4, 2, 20, 10]], np.float32)}])
        rm.report(rows, "b.html", overwrite=True)
        assert '<svg viewBox="0 0 40 20"' in Path("b.html").read_text()
    with pytest.raises(rm.OutputExistsError):
        rm.report(rm.from_arrays({"x": [1]}), "b.html")
    np.save("c.npy", np.arange(3))
    rm.report("c.npy", "c.html", other=np.array([0, 7, 2]))
    assert "1 row of 3 differs" in Path("c.html").read_text()


def test_a_report_on_two_datasets_shows_the_rows_that_differ() -> None:
    words = rm.Ragged.from_text(["<b>"] * 1000)
    a = rm.from_arrays({"x": np.arange(1000), "s": words, "a": np.zeros(1000)})

    def report(x: npt.NDArray[np.int64]) -> str:
        b = rm.from_arrays({"x": x, "s": words[: len(x)]})
        write_report(RowTable(a, "<b>"), "both.html", other=RowTable(b, "b"), overwrite=True)
        text = Path("both.html").read_text()
        assert "<b>" not in text
        return re.sub("<[^>]*>", " ", text)

    x = np.arange(1000)
    assert "No difference in 1,000 rows" in report(x)
    x[700] = -7
    text = report(x)
    assert "1 row of 1,000 differs" in text
    assert re.search(r"700 +x +700 +-7", text)
    x[10:990:10] = -7
    assert "The first 20 rows that differ, of 201 compared" in report(x)
    text = report(np.arange(998))
    assert "No difference in 998 rows" in text
    assert "Only a has rows from 998 on." in text


def test_large_rows_are_compared_and_rows_that_cannot_be_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = np.random.default_rng(0).random((4, 5 << 20), np.float32)
    for name, column in (("a", {"x": x}), ("b", {"other": x})):
        numbers = np.arange(4) if name == "a" else np.array([0, 1, 9, 3])
        rm.from_arrays({**column, "y": numbers}).save(f"{name}.h5")

    def report(one: str, other: str) -> str:
        tables = [RowTable(rm.open(name), name) for name in (one, other)]
        write_report(tables[0], "both.html", other=tables[1], overwrite=True)
        return re.sub("<[^>]*>", " ", Path("both.html").read_text())

    assert "No difference in 4 rows" in report("a.h5", "a.h5")
    text = report("a.h5", "b.h5")
    assert "1 row of 4 differs" in text
    assert re.search(r" 2 +y +2 +9 ", text)
    monkeypatch.setattr("recmap.view.table._LARGEST_ROW", 1 << 20)
    text = report("a.h5", "a.h5")
    assert "4 rows of 4 differ or cannot be compared" in text
    assert "too large to show" in text


def test_lists_of_lists_of_images_are_in_reports() -> None:
    pixels = np.zeros((6, 20, 20, 3), np.uint8)
    nested = rm.Ragged(rm.Ragged(pixels, [0, 2, 4, 6]), [0, 1, 3])
    mixed = rm.Ragged(rm.Ragged.from_bytes([png(pixels[0]), b"text", b"more"]), [0, 2, 3])
    write_report(RowTable(rm.from_arrays({"x": nested, "y": mixed}), "x"), "report.html")
    text = Path("report.html").read_text()
    assert text.count("<img ") == 6 + 1
    assert "2 items" in text


def test_a_stack_of_images_is_tried_on_raw_bytes() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 20, 20, 3), dtype=np.uint8)
    api = api_of({"raw": rm.Ragged.from_bytes([pixels.tobytes()])})
    given = {"row": 0, "column": 0, "dtype": "uint8", "shape": "3,20,20,3"}
    assert ask(api, "try", **given)["kind"] == "list"
    media = api.media({**given, "item": "2"})
    assert media is not None
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(media.data))), pixels[2])


def test_bytes_of_a_fixed_size_are_shown_and_searched() -> None:
    pairs = np.array([[b"abc", b"\xff\x00\x01"], [b"xyz", b"abc"]], "V3")
    lists = rm.Ragged.from_rows([pairs[0], pairs[1, :1]])
    rows = {"hash": pairs[:, 0], "pair": pairs, "list": lists}
    api = api_of(rows)
    first, *others = cells(api, 0, 0, 1, 2)
    assert (first["text"], first["size"]) == ("abc", 3)
    for each in others:
        assert [item["text"] for item in each["items"]] == ["abc", "ff 00 01"]
    assert "hex" in ask(api, "value", column=0, row=0)
    assert [found(api, column, "=", "abc") for column in range(3)] == [[0], [0, 1], [0]]
    write_report(RowTable(rm.from_arrays(rows), "rows"), "fixed.html")
    assert "0xff0001" in Path("fixed.html").read_text()


@pytest.mark.skipif(np.finfo(np.longdouble).nmant != 63, reason="only x87 has such numbers")
@pytest.mark.filterwarnings("error")
def test_numbers_that_no_calculation_gives_are_summarized_without_a_warning() -> None:
    words = np.array([[1, 0x4000, 1, 0x4000]] * 3, np.uint64)
    picture = np.tile(words[:1, :2].view(np.longdouble), (1, 40, 40))
    rows = {"x": words.view(np.clongdouble).reshape(3), "picture": np.repeat(picture, 3, axis=0)}
    api = api_of(rows)
    assert ask(api, "summary", column=0)["rows"] == 3
    assert found(api, 0, "missing", "") == [0, 1, 2]
    assert ask(api, "value", column=1, row=0)
    assert rm.from_arrays(rows)._repr_html_()
