"""JPEGs as libjpeg-turbo decodes them, compared with what Pillow makes of the same bytes."""

from __future__ import annotations

import io
import struct
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from recmap.native import _core
from recmap.pipeline.transforms.image_reader import ImageReader
from tests.forked import run_program
from tests.pictures import detailed, encoded, picture

SUBSAMPLINGS = ["444", "422", "420", "440", "411"]
SIZES = [(1, 1), (1, 9), (7, 9), (8, 8), (16, 17), (33, 21), (64, 120)]


def reader(channels: int = 3, size: Any = None, *, fast: bool = False) -> ImageReader:
    return ImageReader(channels, size, exif=False, fast=fast)


def with_both(data: bytes, **options: Any) -> tuple[Any, Any]:
    """Decode with libjpeg-turbo and with Pillow. None stands for an image that is refused."""
    using = reader(**options)
    try:
        expected = using._with_pillow(data)
    except Exception:
        expected = None
    return using._with_turbo(data), expected


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
def test_every_subsampling_is_decoded_like_pillow(subsampling: str, channels: int) -> None:
    for height, width in SIZES:
        pixels = detailed(height, width)
        data = simplejpeg.encode_jpeg(pixels, 85, colorsubsampling=subsampling)
        got, expected = with_both(data, channels=channels)
        assert got.shape == (height, width, channels)
        assert np.array_equal(got, expected)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(
    "options",
    [
        {"progressive": True},
        {"restart_marker_rows": 1},
        {"restart_marker_blocks": 3, "progressive": True},
        {"quality": 1},
        {"quality": 100, "subsampling": 0},
        {"keep_rgb": True},
        {"optimize": True, "comment": b"by hand", "dpi": (72, 72)},
    ],
    ids=str,
)
def test_every_kind_of_jpeg_is_decoded_like_pillow(options: dict[str, Any], channels: int) -> None:
    for height, width in SIZES:
        got, expected = with_both(
            encoded(detailed(height, width), "JPEG", **options), channels=channels
        )
        assert np.array_equal(got, expected)
        grey = encoded(detailed(height, width)[..., 0], "JPEG", **options)
        got, expected = with_both(grey, channels=channels)
        assert np.array_equal(got, expected)


def test_orientations_are_left_alone() -> None:
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        got, expected = with_both(encoded(picture(30, 50), "JPEG", exif=exif))
        assert got.shape == (30, 50, 3)
        assert np.array_equal(got, expected)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("size", [(10, 10), (30, 31), (48, 64), (47, 64), (5, 120), (200, 200)])
def test_fast_reads_the_size_that_pillow_reads(size: tuple[int, int], channels: int) -> None:
    for height, width in [*SIZES, (97, 129), (400, 300)]:
        data = encoded(picture(height, width), "JPEG")
        got, expected = with_both(data, channels=channels, size=size, fast=True)
        if max(height, width) >= 8:
            assert np.array_equal(got, expected)
        else:
            assert got.shape == (height, width, channels)


def test_what_libjpeg_turbo_is_not_to_decide_goes_to_pillow() -> None:
    data = encoded(detailed(40, 50), "JPEG")
    others = [
        encoded(Image.fromarray(detailed(40, 50)).convert("CMYK"), "JPEG"),
        encoded(detailed(40, 50), "PNG"),
        data[:-2],  # no end marker
        data[: len(data) // 2],
        b"\xff\xd8\xff",
        b"",
    ]
    for each in others:
        assert reader()._with_turbo(each) is None
        assert not reader().is_sound_jpeg(each)
    assert reader().is_sound_jpeg(data)
    assert reader().is_sound_jpeg(encoded(detailed(40, 50)[..., 0], "JPEG"))
    # Decoders that ignore the marker would give other colours.
    assert not reader().is_sound_jpeg(encoded(detailed(40, 50), "JPEG", keep_rgb=True))
    assert np.array_equal(reader().read(others[0]), reader()._with_pillow(others[0]))


def test_every_truncation_has_the_verdict_of_pillow() -> None:
    for options in ({}, {"progressive": True}):
        data = encoded(picture(24, 40), "JPEG", **options)
        for length in range(len(data)):
            got, expected = with_both(data[:length])
            assert got is None or np.array_equal(got, expected)


def damaged(data: bytes, draw: st.DataObject) -> bytes:
    made = bytearray(data)
    for _ in range(draw.draw(st.integers(0, 6))):
        made[draw.draw(st.integers(0, len(made) - 1))] = draw.draw(st.integers(0, 255))
    cut = draw.draw(st.one_of(st.none(), st.integers(0, len(made))))
    at = draw.draw(st.integers(0, len(made)))
    return bytes(made[:cut]) if cut is not None else bytes(made[:at] + b"\xff" + made[at:])


SEEDS = [
    encoded(picture(40, 56), "JPEG"),
    encoded(picture(40, 56), "JPEG", progressive=True),
    encoded(picture(33, 17)[..., 0], "JPEG"),
    encoded(picture(24, 24), "JPEG", subsampling=0, restart_marker_rows=1, dpi=(72, 72)),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Pillow's, of damaged EXIF data and large sizes
@settings(max_examples=100, deadline=None)
@given(st.sampled_from(SEEDS), st.data())
def test_damaged_jpegs_have_the_verdict_and_the_pixels_of_pillow(
    seed: bytes, draw: st.DataObject
) -> None:
    got, expected = with_both(damaged(seed, draw))
    assert got is None or np.array_equal(got, expected)


def test_claimed_sizes_take_no_memory() -> None:
    data = bytearray(encoded(picture(16, 16), "JPEG"))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", 9000, 9000)  # fewer than Pillow's limit
    program = f"""
import resource
from recmap.pipeline.transforms.image_reader import ImageReader
reader = ImageReader(3, None, exif=False, fast=False)
reader.read({encoded(picture(16, 16), "JPEG")!r})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert reader._with_turbo({bytes(data)!r}) is None
try:
    reader.read({bytes(data[:-2])!r})
except OSError as e:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    run = run_program(program)
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(run.stdout) * unit < 50e6, run.stderr


# Resizing.


def resized(pixels: npt.NDArray[np.uint8], size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    out = np.empty((*size, pixels.shape[2]), np.uint8)
    _core.resize_image(pixels, out)
    return out


@settings(max_examples=50, deadline=None)
@given(
    st.tuples(st.integers(1, 150), st.integers(1, 150)),
    st.tuples(st.integers(1, 150), st.integers(1, 150)),
    st.sampled_from([1, 3, 4]),
    st.integers(0, 1 << 32),
)
def test_resizing_is_within_a_level_of_pillow(
    before: tuple[int, int], after: tuple[int, int], channels: int, seed: int
) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (*before, channels), np.uint8)
    bands = [
        np.asarray(Image.fromarray(pixels[..., i]).resize(after[::-1], Image.Resampling.BILINEAR))
        for i in range(channels)
    ]
    apart = np.abs(resized(pixels, after).astype(int) - np.stack(bands, -1))
    assert apart.max() <= 1


def test_resizing_refuses_arrays_that_do_not_fit() -> None:
    pixels = np.zeros((4, 5, 3), np.uint8)
    values = np.zeros(256, np.float32)
    cases: list[tuple[npt.NDArray[Any], Any]] = [
        (np.zeros((4, 5, 4), np.uint8), None),
        (np.zeros((0, 5, 3), np.uint8), None),
        (np.zeros((4, 5, 3), np.float32), None),
        (np.zeros((4, 5, 3), np.float64), values),
        (np.zeros((4, 5, 3), np.float32), values[:255]),
    ]
    for out, table in cases:
        with pytest.raises(ValueError, match="channels|256 values"):
            _core.resize_image(pixels, out, table)
    with pytest.raises(ValueError, match="1, 3 or 4 channels"):
        _core.resize_image(np.zeros((4, 5, 2), np.uint8), np.zeros((4, 5, 2), np.uint8))
    with pytest.raises(ValueError, match="1, 2, 4 or 8 bytes"):
        _core.resize_image(pixels, np.zeros((4, 5, 3), np.complex128), values.astype(np.complex128))


def test_resizing_never_writes_into_a_copy() -> None:
    out = np.zeros((4, 10, 3), np.uint8)[:, ::2]
    with pytest.raises(TypeError):
        _core.resize_image(np.ones((8, 9, 3), np.uint8), out)


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("size", ["(224, 224)", "(1, 1)"])
@pytest.mark.parametrize("sides", ["(1, 8_000_000)", "(8_000_000, 1)", "(23, 400_000)"])
def test_resizing_takes_little_memory(sides: str, size: str, channels: int) -> None:
    program = f"""
import resource
import numpy as np
from recmap.native import _core
pixels = np.full((*{sides}, {channels}), 7, np.uint8)
out = np.zeros((*{size}, {channels}), np.uint8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
_core.resize_image(pixels, out)
assert (out == 7).all()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * UNIT / pixels.nbytes)
""".replace("UNIT", "1" if sys.platform == "darwin" else "1024")
    run = run_program(program)
    assert float(run.stdout) < 1.5, run.stderr


def test_big_endian_values_are_written() -> None:
    from recmap import Ragged
    from recmap.pipeline.transforms.decode_image import ImageDecoder

    file = io.BytesIO()
    Image.fromarray(picture()).save(file, "PNG")
    strings = Ragged.from_bytes([file.getvalue()])
    got = ImageDecoder("x", (48, 64), dtype=">f4").decode(strings)[0]
    assert np.array_equal(np.asarray(got)[0], picture())
