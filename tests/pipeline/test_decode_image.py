"""Encoded images as arrays, compared with what Pillow and TensorFlow decode."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

import recmap as rm
from recmap.pipeline.transforms.decode_image import ImageDecoder, _RowQueue
from tests.forked import run_program
from tests.frameworks import tf
from tests.pictures import LOSSLESS, detailed, encoded, picture

EVERY = ["JPEG", "GIF", *LOSSLESS]


def decode(*strings: bytes, **options: Any) -> npt.NDArray[Any]:
    options = {"size": None, "dtype": "uint8"} | options
    column = ImageDecoder("image", **options).decode(rm.Ragged.from_bytes(strings))[0]
    return np.stack([row.pad() for row in column]) if isinstance(column, rm.Ragged) else column


def difference(one: Any, other: Any) -> tuple[int, float]:
    """Return the largest and the mean difference."""
    apart = np.abs(np.asarray(one, np.float64) - np.asarray(other, np.float64))
    return round(float(apart.max())), float(apart.mean())


def header(width: int, height: int) -> bytes:
    """Make a PNG that claims a size but holds no pixels."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(b"")
    chunks = [struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c))
              for c in (head, data, b"IEND")]  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


# Formats.


@pytest.mark.parametrize("format", LOSSLESS)
def test_lossless_images_are_exact(format: str) -> None:
    pixels = picture()
    assert np.array_equal(decode(encoded(pixels, format))[0], pixels)


@pytest.mark.parametrize("subsampling", [0, 2])
@pytest.mark.parametrize("progressive", [False, True])
def test_jpeg_is_what_tensorflow_decodes(subsampling: int, progressive: bool) -> None:
    data = encoded(picture(), "JPEG", subsampling=subsampling, progressive=progressive)
    for channels in (1, 3):
        got = decode(data, channels=channels)[0]
        exact = tf.io.decode_jpeg(data, channels, dct_method="INTEGER_ACCURATE")
        assert difference(got, exact)[0] <= 1
        assert difference(got, tf.io.decode_jpeg(data, channels))[0] <= 4


@pytest.mark.parametrize("format", ["PNG", "BMP"])
def test_png_and_bmp_are_what_tensorflow_decodes(format: str) -> None:
    data = encoded(picture(33, 21), format)
    assert np.array_equal(decode(data)[0], tf.io.decode_image(data))


def test_lossy_webp_is_what_pillow_decodes() -> None:
    data = encoded(picture(), "WEBP", lossless=False, quality=80)
    with Image.open(io.BytesIO(data)) as image:
        assert np.array_equal(decode(data)[0], image.convert("RGB"))


def test_the_first_frame_of_a_gif_is_decoded() -> None:
    frames = [Image.fromarray(picture()).quantize(64), Image.new("P", (64, 48))]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert np.array_equal(decode(data)[0], tf.io.decode_gif(data)[0])


# Channels.


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
def test_channels_are_converted_like_tensorflow(mode: str, channels: int) -> None:
    source = Image.fromarray(picture(channels=4)).convert(mode)
    data = encoded(source, "PNG")
    got = decode(data, channels=channels)[0]
    assert difference(got, tf.io.decode_png(data, channels=channels))[0] <= 1


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("transparent", [False, True])
def test_palettes_are_looked_up(channels: int, transparent: bool) -> None:
    source = Image.fromarray(picture()).quantize(16)
    alpha = {"transparency": bytes(range(0, 256, 16))} if transparent else {}
    data = encoded(source, "PNG", **alpha)
    got = decode(data, channels=channels)[0]
    expected = np.array(tf.io.decode_png(data, channels=channels))
    if channels == 4 and not transparent:
        expected[..., 3] = 255  # TensorFlow fills in the highest index of the palette
    assert difference(got, expected)[0] <= 1


def test_one_bit_images_are_black_and_white() -> None:
    source = Image.fromarray(picture(channels=1)).convert("1")
    assert np.array_equal(decode(encoded(source, "PNG"))[0, ..., 0], np.asarray(source) * 255)


def test_the_upper_eight_of_sixteen_bits_are_kept() -> None:
    deep = np.arange(0, 65536, 16, dtype=np.uint16).reshape(64, 64)
    grey = encoded(deep, "PNG")
    assert np.array_equal(decode(grey, channels=1)[0, ..., 0], deep >> 8)
    assert np.array_equal(decode(grey, channels=3)[0], np.stack([deep >> 8] * 3, -1))
    colour = tf.io.encode_png(np.stack([deep, deep.T, deep[::-1]], -1)).numpy()
    read = tf.io.decode_png(colour, dtype=tf.uint16)
    assert np.array_equal(decode(colour)[0], np.asarray(read) >> 8)


def test_cmyk_becomes_rgb() -> None:
    data = encoded(Image.fromarray(picture()).convert("CMYK"), "JPEG", quality=95)
    assert difference(decode(data)[0], picture())[1] < 3
    assert difference(decode(data)[0], tf.io.decode_jpeg(data, channels=3))[1] < 3
    assert decode(data, channels=1).shape == (1, 48, 64, 1)
    assert (decode(data, channels=4)[0, ..., 3] == 255).all()


# Sizes.


@pytest.mark.parametrize("size", [(24, 32), (17, 50), (100, 90), (48, 64), (6, 8)])
def test_resizing_matches_tensorflow_with_antialias(size: tuple[int, int]) -> None:
    pixels = picture()
    got = decode(encoded(pixels, "PNG"), size=size)
    assert got.shape == (1, *size, 3)
    largest, mean = difference(got[0], tf.image.resize(pixels, size, antialias=True))
    assert largest <= 2
    assert mean < 0.6


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_fast_decodes_large_jpegs_at_a_reduced_size(channels: int) -> None:
    data = encoded(picture(768, 1030), "JPEG", quality=90)
    got = decode(data, size=(96, 128), channels=channels, fast=True)[0]
    whole = tf.io.decode_jpeg(data, channels=min(channels, 3))
    expected = tf.image.resize(whole, (96, 128), antialias=True)
    largest, mean = difference(got[..., :3], expected)
    assert largest <= 6
    assert mean < 1


MODES: dict[str, tuple[str, str]] = {
    "grey": ("PNG", "L"),
    "colour": ("PNG", "RGB"),
    "alpha": ("PNG", "RGBA"),
    "grey with alpha": ("PNG", "LA"),
    "palette": ("PNG", "P"),
    "one bit": ("PNG", "1"),
    "sixteen bits": ("PNG", "I;16"),
    "BMP": ("BMP", "RGB"),
    "BMP of 32 bits": ("BMP", "RGBA"),
    "WebP": ("WEBP", "RGB"),
    "JPEG": ("JPEG", "RGB"),
    "grey JPEG": ("JPEG", "L"),
    "CMYK": ("JPEG", "CMYK"),
}


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("size", [(31, 17), (64, 64), (224, 224), (300, 20)])
def test_every_kind_of_image_is_resized_within_a_level_of_tensorflow(
    kind: str, channels: int, size: tuple[int, int]
) -> None:
    format, mode = MODES[kind]
    if mode == "I;16":
        source = Image.fromarray(detailed(400, 333, 1)[..., 0].astype(np.uint16) * 257)
    else:
        source = Image.fromarray(detailed(400, 333, 4)).convert(mode)
    data = encoded(source, format)
    whole = decode(data, channels=channels)[0]
    expected = tf.image.resize(whole, size, antialias=True)
    assert difference(decode(data, channels=channels, size=size)[0], expected)[0] <= 1


@pytest.mark.parametrize("down", [False, True])
def test_the_alpha_of_a_32_bit_bmp_is_kept(down: bool) -> None:
    pixels = detailed(9, 7, 4)
    data = bytearray(encoded(pixels, "BMP"))
    if down:  # a negative height: lines begin at the top
        data[22:26] = struct.pack("<i", -9)
        pixels = pixels[::-1]
    assert np.array_equal(decode(bytes(data), channels=4)[0], pixels)
    assert np.array_equal(decode(bytes(data), channels=3)[0], pixels[..., :3])
    pixels = pixels.copy()
    pixels[..., 3] = 0  # the byte is unused
    unused = decode(encoded(pixels, "BMP"), channels=4)[0]
    assert np.array_equal(unused[..., :3], pixels[..., :3])
    assert (unused[..., 3] == 255).all()


def test_images_that_keep_their_size_are_ragged() -> None:
    pictures = [picture(), picture(20, 30), picture(5, 1)]
    strings = rm.Ragged.from_bytes([encoded(pixels, "PNG") for pixels in pictures])
    column, good = ImageDecoder("image", None, dtype="uint8").decode(strings)
    assert good.all()
    assert isinstance(column, rm.Ragged)
    for row, pixels in zip(column, pictures, strict=True):
        assert np.array_equal(row.pad(), pixels)


def test_orientation_is_applied_only_if_asked_for() -> None:
    exif = Image.Exif()
    pixels = picture()
    for orientation in range(1, 9):
        exif[0x0112] = orientation
        data = encoded(pixels, "PNG", exif=exif)
        assert np.array_equal(decode(data)[0], pixels)
        with Image.open(io.BytesIO(data)) as image:
            expected = np.asarray(ImageOps.exif_transpose(image))
        assert np.array_equal(decode(data, exif=True)[0], expected)
    exif[0x0112] = 6
    large = encoded(picture(512, 1024), "JPEG", exif=exif)
    assert decode(large, exif=True).shape == (1, 1024, 512, 3)
    turned = decode(large, exif=True, size=(128, 64))[0]
    upright = np.rot90(decode(large, size=(64, 128))[0], -1)
    assert difference(turned, upright)[0] <= 2


# Values.


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
def test_values_are_levels_or_fractions(dtype: str) -> None:
    pixels = picture()
    data = encoded(pixels, "PNG")
    levels = decode(data, dtype=dtype)
    assert levels.dtype == dtype
    assert np.array_equal(levels[0], pixels)
    if dtype != "uint8":
        fractions = decode(data, dtype=dtype, scale="0-1")
        assert fractions.dtype == dtype
        expected = pixels / np.float64(255) if dtype == "float64" else pixels / np.float32(255)
        assert np.array_equal(fractions[0], expected.astype(dtype))


def test_the_field_describes_the_pixels() -> None:
    assert ImageDecoder("x").field == rm.Field("float32", (256, 256, 3))
    assert ImageDecoder("x", (4, 5), 1, "uint8").field == rm.Field("uint8", (4, 5, 1))
    assert ImageDecoder("x", size=None).field == rm.Field("float32", (None, None, 3))


def test_a_batch_without_rows_is_decoded() -> None:
    assert decode(size=(4, 5)).shape == (0, 4, 5, 3)
    assert len(ImageDecoder("image", None).decode(rm.Ragged.from_bytes([]))[0]) == 0


# Broken images.

GOOD = encoded(picture(), "PNG")
BROKEN = {
    "empty": b"",
    "text": b"not an image",
    "claims 60,000 x 60,000": header(60_000, 60_000),
    "claims 10,000 x 10,000": header(10_000, 10_000),
    "no pixels": header(64, 48),
    "no width": header(0, 48),
    "TIFF": encoded(picture(), "TIFF"),
    "WebP canvas and no more": b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + b"\xfe\x3f\0" * 2,
    **{f"half a {format}": encoded(picture(), format)[:-200] for format in EVERY},
}
# Pillow warns about images half as large as those it refuses; recmap refuses both.
quiet = pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")


@quiet
@pytest.mark.parametrize("size", [(8, 8), None])
@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_errors_decides_what_happens_to_broken_images(
    data: bytes, size: tuple[int, int] | None
) -> None:
    strings = rm.Ragged.from_bytes([GOOD, data, GOOD, data])
    with pytest.raises(rm.ImageError, match="'image': row 1 of the batch: .*errors='skip'") as e:
        ImageDecoder("image", size).decode(strings)
    assert (e.value.row, e.value.field) == (1, "image")
    for errors in ("skip", "zero"):
        pixels, good = ImageDecoder("image", size, errors=errors).decode(strings)
        assert good.tolist() == [True, False, True, False]
        rows = [row.pad() for row in pixels] if isinstance(pixels, rm.Ragged) else list(pixels)
        assert not rows[1].any()
        assert not rows[3].any()
        assert np.array_equal(rows[0], rows[2])
        assert rows[0].any()


@quiet
def test_the_error_says_why_an_image_is_broken() -> None:
    for data, reason in [
        (BROKEN["text"], "not a JPEG, PNG"),
        (BROKEN["claims 60,000 x 60,000"], "3600000000 pixels"),
        (BROKEN["claims 10,000 x 10,000"], "10,000 x 10,000 pixels, more than"),
        (BROKEN["half a JPEG"], "truncated"),
    ]:
        with pytest.raises(rm.ImageError, match=reason):
            decode(data)


def test_a_batch_of_broken_images_has_no_size() -> None:
    decoder = ImageDecoder("image", None, errors="skip")
    pixels, good = decoder.decode(rm.Ragged.from_bytes([b"", b""]))
    assert isinstance(pixels, rm.Ragged)
    assert pixels.lengths.tolist() == [0, 0]
    assert not good.any()


@pytest.mark.parametrize("size", ["(256, 256)", "None"])
def test_claimed_sizes_take_no_memory(size: str) -> None:
    claims = [data for name, data in BROKEN.items() if "claims" in name or "canvas" in name]
    program = f"""
import resource, warnings
warnings.simplefilter("ignore")
import recmap as rm
from recmap.pipeline.transforms.decode_image import ImageDecoder
data = rm.Ragged.from_bytes([{GOOD!r}, *{claims!r}])
decoder = ImageDecoder("image", {size}, errors="skip")
decoder.decode(data[:1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
good = decoder.decode(data)[1]
assert good.sum() == 1
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    run = run_program(program)
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(run.stdout) * unit < 50e6, run.stderr


FILES = {format: encoded(picture(16, 16), format) for format in EVERY}


@quiet
@settings(max_examples=50, deadline=None)
@given(st.sampled_from(EVERY), st.data())
def test_damaged_bytes_never_raise_anything_else(format: str, data: st.DataObject) -> None:
    damaged = bytearray(FILES[format])
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    strings = rm.Ragged.from_bytes([bytes(damaged), cut, FILES[format]])
    for exif in (False, True):
        decoder = ImageDecoder("x", (8, 8), errors="zero", threads=1, exif=exif)
        pixels, good = decoder.decode(strings)
        assert isinstance(pixels, np.ndarray)
        assert pixels.shape == (3, 8, 8, 3)
        assert good[2]
        assert not pixels[~good].any()


# Threads and processes.


def test_the_pixels_do_not_depend_on_the_threads() -> None:
    files = [encoded(picture(40 + i, 50), EVERY[i % len(EVERY)]) for i in range(40)]
    one = decode(*files, size=(32, 32), threads=1)
    assert np.array_equal(one, decode(*files, size=(32, 32)))
    assert np.array_equal(one, decode(*files, size=(32, 32), threads=64))


def test_threads_share_rows_that_only_one_may_take_at_a_time() -> None:
    def slow() -> Iterator[int]:  # a generator refuses to be entered twice
        for row in range(50):
            time.sleep(0.001)
            yield row

    rows = _RowQueue(slow())
    with ThreadPoolExecutor(4) as pool:
        taken = [task.result() for task in [pool.submit(list, rows) for _ in range(4)]]
    assert sorted(row for some in taken for row in some) == list(range(50))
    rows = _RowQueue(range(9))
    assert next(rows) == 0
    rows.stop()
    assert list(rows) == []


@pytest.mark.parametrize("size", [(8, 8), None])
def test_rows_that_no_thread_took_are_not_good(
    size: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_RowQueue, "__next__", lambda rows: next(rows._rows) and next(rows._rows))
    for _ in range(3):  # memory that was in use before
        pixels, good = ImageDecoder("image", size, threads=1).decode(
            rm.Ragged.from_bytes([GOOD, GOOD])
        )
        assert good.tolist() == [True, False]
        assert not np.asarray(pixels[1].pad() if isinstance(pixels, rm.Ragged) else pixels[1]).any()


@pytest.mark.parametrize("threads", [1, None])
def test_the_first_broken_row_is_named_with_any_number_of_threads(threads: int | None) -> None:
    files = [b"bad" if i in (17, 18, 33) else GOOD for i in range(40)]
    for _ in range(5):
        with pytest.raises(rm.ImageError, match="row 17 of"):
            decode(*files, threads=threads)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning")
def test_a_forked_child_can_decode() -> None:
    decoder = ImageDecoder("image", (8, 8))
    strings = rm.Ragged.from_bytes([GOOD] * 8)
    expected = np.asarray(decoder.decode(strings)[0])
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(np.asarray(decoder.decode(strings)[0]), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


# Options.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": (0, 3)}, "size="),
        ({"size": (1, 2, 3)}, "size="),
        ({"size": 2.5}, "size="),
        ({"channels": 2}, "channels=2"),
        ({"dtype": "int32"}, "dtype=int32"),
        ({"scale": "-1-1"}, "scale='-1-1'"),
        ({"scale": "0-1", "dtype": "uint8"}, "floating-point"),
        ({"errors": "ignore"}, "errors='ignore'"),
        ({"threads": 0}, "threads=0"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(rm.OptionError, match=message):
        ImageDecoder("image", **options)


def test_columns_that_are_not_byte_strings_are_refused() -> None:
    with pytest.raises(rm.ColumnError, match="'image': images are byte strings"):
        ImageDecoder("image").decode(rm.Ragged.from_rows([[1, 2]]))


@pytest.mark.parametrize(("module", "package"), [("PIL", "Pillow"), ("simplejpeg", "simplejpeg")])
def test_the_error_says_what_to_install(module: str, package: str) -> None:
    program = f"""
import sys
sys.modules["{module}"] = None
import numpy as np, recmap as rm
ds = rm.from_arrays({{"packed": [b"", b""], "pixels": np.zeros((2, 8, 8, 3), np.uint8)}})
print(ds.decode_image("pixels", 4, dtype="uint8", crop="center")[:]["pixels"].shape)
try:
    ds.decode_image("packed")
except ImportError as e:
    print(type(e).__name__, e)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == (
        "(2, 4, 4, 3)\n"
        f'MissingPackageError images need {package}: pip install "pillow>=11.3" "simplejpeg>=1.8"\n'
    )


def test_a_broken_image_in_a_pipeline_is_black_skipped_or_an_error() -> None:
    good = io.BytesIO()
    Image.new("RGB", (4, 4), (9, 9, 9)).save(good, "PNG")
    rows = [good.getvalue()] * 5 + [b"junk"]
    ds = rm.from_arrays({"image": rows, "x": np.arange(6)})
    black = list(ds.decode_image("image", (4, 4), errors="zero").batch(3))
    assert [batch["x"].tolist() for batch in black] == [[0, 1, 2], [3, 4, 5]]
    assert not black[1]["image"][2].any()
    left = ds.decode_image("image", (4, 4), errors="skip").batch(3)
    assert [batch["x"].tolist() for batch in left] == [[0, 1, 2], [3, 4]]
    with pytest.raises(rm.ImageError, match="^row 5: "):
        list(ds.decode_image("image", (4, 4)).batch(3))
