"""How datasets, rows, statistics and reports look in a notebook and in a Python prompt."""

from __future__ import annotations

import base64
import io
import os
import pickle
import re
from pathlib import Path

import numpy as np
from PIL import Image

import recmap as rm


def _dataset() -> rm.Dataset:
    return rm.from_arrays({"<x>": np.zeros((5, 2), np.float32), "y": np.arange(5)})


def test_a_dataset_is_shown_as_a_table_of_its_fields() -> None:
    html = _dataset()._repr_html_()
    assert "<b>Dataset: in memory: 5 rows" in html
    assert "<tr><td>y</td><td>int64</td><td>0</td><td>1</td><td>2</td><td>...</td></tr>" in html


def test_images_are_shown_and_other_values_are_escaped() -> None:
    pixels = np.arange(2 * 9 * 10 * 3, dtype=np.uint8).reshape(2, 9, 10, 3)
    buffer = io.BytesIO()
    Image.fromarray(pixels[0]).save(buffer, "PNG")
    encoded = buffer.getvalue()
    columns = {
        "array": pixels,
        "floats": pixels / 255,
        "encoded": rm.Ragged.from_bytes([encoded, b"<svg onload=alert(1)>"]),
        "large": rm.Ragged.from_bytes([encoded + bytes(1 << 20), b'\xff\xd8\xff"><script>']),
        "broken": rm.Ragged.from_bytes([encoded[:40] + bytes(1 << 20), b"BMW"]),
    }
    html = rm.from_arrays(columns)._repr_html_()
    shown = [part.partition('"')[0] for part in html.split('src="data:image/')[1:]]
    assert [kind.partition(";")[0] for kind in shown] == [*["png"] * 6, "jpeg"]
    for same in (0, 2, 4, 5):
        data = base64.b64decode(shown[same].partition(",")[2])
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(data)).convert("RGB")), pixels[0])
    assert "&#x27;BMW&#x27;" in html
    assert len(html) < 20_000
    assert "<svg" not in html
    assert "<script" not in html
    assert "PNG, 1,048," in html


def test_the_first_images_of_lists_and_stacks_are_shown() -> None:
    pixels = np.arange(5 * 9 * 10 * 3, dtype=np.uint8).reshape(5, 9, 10, 3)
    file = io.BytesIO()
    Image.fromarray(pixels[0]).save(file, "PNG")
    image = file.getvalue()
    rows = [{"stack": pixels, "list": [image] * 2, "other": [image, b"<b>"], "none": []}]
    html = rm.open(rows)._repr_html_()
    assert html.count("<img ") == 3 + 2
    assert re.search(r"<td>\[5\] <img [^>]*> <img [^>]*> <img [^>]*> \.\.\.</td>", html)
    assert re.search(r"<td>\[2\] <img [^>]*> <img [^>]*></td>", html)
    assert "<b>'" not in html
    row = repr(rm.open(rows)[0])
    assert f"<PNG, {len(image)} bytes>, <PNG, {len(image)} bytes>" in row


def test_large_images_become_small_ones() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (400, 300, 4), dtype=np.uint8)
    noise[:200, :, 3] = 0  # transparent
    huge = Image.new("L", (5000, 5000))
    for image, shown in ((Image.fromarray(noise), True), (huge, False)):
        file = io.BytesIO()
        image.save(file, "PNG", compress_level=0)
        html = rm.open([{"x": file.getvalue()}])._repr_html_()
        assert ("<img" in html) == shown
        if shown:
            data = base64.b64decode(html.split("base64,")[1].partition('"')[0])
            small = np.asarray(Image.open(io.BytesIO(data)))
            assert small.shape == (64, 48, 4)
            assert not small[:30, :, 3].any()
            assert small[40:, :, 3].any()


def test_a_repr_never_fails_and_never_uses_up_rows() -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"x": np.arange(3)})
    ds = rm.open("x.tfrecord")
    content = bytearray(Path("x.tfrecord").read_bytes())
    content[14] ^= 1
    Path("x.tfrecord").write_bytes(content)
    assert "x  int64" in repr(ds)
    assert "<td>int64</td>" in ds._repr_html_()
    np.save("y.npy", np.zeros((1000, 1000)))
    cut = rm.open("y.npy")
    os.truncate("y.npy", 200)
    assert "float64[1000]" in repr(cut)
    stream = rm.from_batches({"x": np.arange(2)} for _ in range(2))
    assert repr(stream) == f"{stream}"
    assert sum(len(batch["x"]) for batch in stream.batches(4)) == 4


def test_printing_a_row_does_not_print_kilobytes() -> None:
    columns = {
        "image": rm.Ragged.from_bytes([b"\xff\xd8\xff" + bytes(50_000)]),
        "text": rm.Ragged.from_text(["word " * 10_000]),
        "array": np.zeros((1, 900)),
        "label": np.array([3]),
    }
    ds = rm.from_arrays(columns)
    for row in (ds[0], next(iter(ds))):
        assert isinstance(row, dict)
        assert len(repr(row)) < 500
        assert "<JPEG, 50,003 bytes>" in repr(row)
    assert type(pickle.loads(pickle.dumps(ds[0]))) is type(ds[0])


def test_jax_looks_into_rows_as_into_dicts() -> None:
    import jax

    row = rm.from_arrays({"b": np.array([1, 2]), "a": np.array([3.0, 4.0])})[1]
    assert jax.tree.map(lambda x: x * 2, row) == {"a": 8.0, "b": 4}


def test_statistics_timings_and_reports_are_tables() -> None:
    ds = _dataset()
    stats = ds.stats()
    assert "<td>y</td><td>int64</td><td>5</td>" in stats._repr_html_()
    assert repr(stats).splitlines()[0].startswith("column  of")
    batches = ds.batch(2)
    assert len(list(batches)) == 3
    assert "<td>loop</td>" in batches.timings()._repr_html_()
    assert repr(batches.timings()).startswith("3 batches, 5 rows, ")
    report = ds.save("x.npz")
    assert "<td>rows</td><td>5</td>" in report._repr_html_()
    assert "<td>file</td><td>x.npz</td>" in report._repr_html_()
    assert repr(report).startswith("Report(5 rows in x.npz, ")


def test_names_are_escaped() -> None:
    assert "<td>&lt;x&gt;</td><td>float32[2]</td>" in _dataset().schema._repr_html_()


def test_a_pipeline_is_shown_as_a_table_of_its_verbs() -> None:
    html = _dataset().shuffle(seed=1).batch(2)._repr_html_()
    assert "<b>Stream: 5 rows, in batches</b>" in html
    assert "<td>2</td><td>batch(2)</td>" in html
