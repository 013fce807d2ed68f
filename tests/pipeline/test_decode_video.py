"""Columns of videos, decoded into frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.video_files import numbers_in, pictures, video


def clips(*files: bytes, **columns: Any) -> rm.Dataset:
    return rm.from_arrays({"clip": rm.Ragged.from_bytes(list(files)), **columns})


@pytest.mark.slow
def test_frames_are_chosen_by_number_or_time() -> None:
    files = [video(20), video(7, 100, kind="mkv"), video(20), video(30, 300, rate=30)]
    numbers = np.array([3, 1, 19, 29])
    # 0.7 of float32 is less than 0.7, when the frame begins.
    times = np.array([0.3, 0.1, 1.9, 29 / 30], np.float32)
    ds = clips(*files, frame=numbers, time=times)
    for chosen in (ds.decode_video("clip", frame="frame", size=64),
                   ds.decode_video("clip", timestamp="time", size=64)):  # fmt: skip
        assert str(chosen.schema["clip"]) == "uint8[64,64,3]"
        [batch] = chosen.batch(4)
        assert numbers_in(batch["clip"]) == [3, 101, 19, 329]
        assert np.abs(batch["clip"][0].astype(int) - pictures(1, 3)[0]).max() < 40
        shuffled = chosen.shuffle(seed=2).batch(3)
        expected = {0: 3, 1: 101, 2: 19, 3: 329}
        for batch in shuffled:
            whence = [int(np.flatnonzero(numbers == each)[0]) for each in batch["frame"]]
            assert numbers_in(batch["clip"]) == [expected[row] for row in whence]


def test_rows_may_have_several_frames_or_all() -> None:
    ds = clips(
        video(9), video(4, 50),
        pair=np.array([[8, 0], [1, 1]]),
        some=rm.Ragged.from_rows([np.array([2, 7, 2]), np.array([], np.int64)]),
    )  # fmt: skip
    pairs = ds.decode_video("clip", frame="pair", size=(32, 64))
    assert str(pairs.schema["clip"]) == "uint8[2,32,64,3]"
    squares = ds.decode_video("clip", frame="pair", size=32)
    assert [numbers_in(row["clip"]) for row in squares] == [[8, 0], [51, 51]]
    ragged = ds.decode_video("clip", frame="some", size=32)
    assert str(ragged.schema["clip"]) == "uint8[*,32,32,3]"
    assert [numbers_in(row["clip"]) for row in ragged] == [[2, 7, 2], []]
    whole = ds.decode_video("clip", size=32)
    assert [numbers_in(row["clip"]) for row in whole] == [list(range(9)), [50, 51, 52, 53]]


def test_a_file_is_opened_once_for_all_of_its_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recmap.formats import video as module

    for name, first in (("a.mp4", 0), ("b.mp4", 100)):
        (tmp_path / name).write_bytes(video(12, first))
    opened: list[str] = []
    decoder = module._decoder

    def counted(file: Any, threads: int) -> Any:
        opened.append(Path(file).name)
        return decoder(file, threads)

    monkeypatch.setattr(module, "_decoder", counted)
    names = rm.Ragged.from_bytes([b"a.mp4"] * 12 + [b"b.mp4"] * 12)
    frames = np.tile(np.arange(12), 2)
    ds = rm.from_arrays({"clip": names, "frame": frames}).decode_video(
        "clip", frame="frame", size=16, folder=tmp_path
    )
    found = [n for batch in ds.batch(5) for n in numbers_in(batch["clip"])]
    assert found == [*range(12), *range(100, 112)]
    assert sorted(opened) == ["a.mp4", "b.mp4"]
    # A file that was replaced is opened again.
    (tmp_path / "a.mp4").write_bytes(video(12, 500))
    assert numbers_in(ds[:1]["clip"]) == [500]


def test_bad_videos_are_errors_or_left_out(tmp_path: Path) -> None:
    good = video(5)
    (tmp_path / "good.mp4").write_bytes(good)
    (tmp_path / "list.mp4").write_bytes(b"#EXTM3U\n/etc/passwd\n")
    zero = np.zeros(2, np.int64)
    cases: list[tuple[bytes, str]] = [
        (b"", "is an empty file"),
        (b"#EXTM3U\n/etc/passwd\n", "is not an MP4, MOV, WebM, Matroska or AVI file"),
        (good[:200], "is a broken video"),
        (good[: len(good) // 2], "is a broken video"),
    ]
    for bad, reason in cases:
        ds = clips(good, bad, frame=zero)
        with pytest.raises(rm.DataError, match=rf"row 1.*'clip': it {reason}"):
            list(ds.decode_video("clip", frame="frame"))
        kept = ds.decode_video("clip", frame="frame", size=16, errors="skip")
        assert [numbers_in(row["clip"][None]) for row in kept] == [[0]]
    for number in (5, -1):
        with pytest.raises(rm.DataError, match=f"5 frames; there is no frame {number}"):
            list(clips(good, frame=np.array([number])).decode_video("clip", frame="frame"))
    for time in (0.55, -0.2, np.nan):
        with pytest.raises(rm.DataError, match="frames from 0 to 0.5 s; there is none at"):
            list(clips(good, t=np.array([time])).decode_video("clip", timestamp="t"))
    paths = {
        b"../good.mp4": "does not lie in the folder",
        b"/etc/passwd": "does not lie in the folder",
        b"a\0b": "does not lie in the folder",
        b"\xff": "is not text",
        b"gone.mp4": "gone.mp4 does not exist",
        b"list.mp4": "list.mp4 is not an MP4",
    }
    for path, reason in paths.items():
        ds = clips(path, frame=zero[:1])
        with pytest.raises(rm.DataError, match=f"row 0.*'clip'.*{reason}"):
            list(ds.decode_video("clip", frame="frame", folder=tmp_path))


def test_options_are_checked() -> None:
    ds = clips(b"x", n=np.array([1]), x=np.array([1.0]), deep=np.zeros((1, 2, 2), np.int64))
    for options, reason in (
        ({"frame": "n", "timestamp": "x"}, "not both"),
        ({"frame": "x"}, "must have one or several integers"),
        ({"timestamp": "n"}, "must have one or several floats"),
        ({"frame": "deep"}, "must have one or several integers"),
        ({"size": (1, 2, 3)}, "give one number"),
        ({"size": 0}, "size"),
    ):
        with pytest.raises(rm.OptionError, match=reason):
            ds.decode_video("clip", **options)
    with pytest.raises(rm.OptionError, match=r"'n' is int64, not bytes"):
        ds.decode_video("n")
    with pytest.raises(rm.FieldNotFoundError, match="frames"):
        ds.decode_video("clip", frame="frames")


def test_a_stopped_epoch_resumes() -> None:
    one = video(10)
    ds = clips(*[one] * 10, frame=np.arange(10)).decode_video("clip", frame="frame", size=16)
    stream = ds.shuffle(seed=1).batch(3)
    batches = iter(stream)
    first = numbers_in(next(batches)["clip"])
    state = stream.state()
    rest = [numbers_in(batch["clip"]) for batch in batches]
    assert sorted(sum(rest, first)) == list(range(10))
    again = ds.shuffle(seed=1).batch(3).restore(state)
    assert [numbers_in(batch["clip"]) for batch in again] == rest
