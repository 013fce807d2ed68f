"""Frames of video files, decoded by TorchCodec, which uses FFmpeg.

Frames that are wanted of one file are decoded together, and files stay open until others have been
used since, so reading a recording in order opens it once.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, MissingPackageError
from recmap.local.local_path import located
from recmap.local.location import Location
from recmap.machine.cpus import thread_count
from recmap.machine.lru import Lru
from recmap.machine.threads import Threads
from recmap.native import _core

Images: TypeAlias = npt.NDArray[np.uint8]

# Decoders that stay open, and frames to decode at a time.
_OPEN, _FRAMES = 16, 32
# A few bytes may claim any size.
_MOST_PIXELS = 1 << 27
# Matroska and WebM; AVI; MP4 and QuickTime have one of these names in bytes 4 to 8.
_MATROSKA, _RIFF, _AVI = b"\x1a\x45\xdf\xa3", b"RIFF", b"AVI "
_BOXES = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")


@dataclass(frozen=True)
class WantedFrames:
    """Frames to decode of one file: its path or its bytes.

    ``which`` has their numbers, as integers, or their times in seconds; None stands for all of
    them. They are stored at ``places`` of an array.
    """

    file: Location | bytes
    which: npt.NDArray[Any]
    places: npt.NDArray[np.int64]


def decode_frames(
    wanted: Sequence[WantedFrames], out: Images, *, resize: bool = True
) -> dict[int, str]:
    """Decode frames into ``out``, (frames, height, width, 3), and return why others are missing.

    Frames of another size are resized, or missing without ``resize``. Several files are decoded at
    a time.
    """
    reasons: dict[int, str] = {}
    threads = max(1, thread_count() // max(1, len(wanted)))

    def decode(some: WantedFrames) -> None:
        try:
            found = _video(some.file, threads).store(some, out, resize=resize)
        except DataError as e:
            found = dict.fromkeys(some.places.tolist(), str(e))
        subject = "it" if isinstance(some.file, bytes) else some.file
        reasons.update({place: f"{subject} {reason}" for place, reason in found.items()})

    if len(wanted) == 1:
        decode(wanted[0])
    else:
        for task in [_pool(os.getpid()).submit(decode, some) for some in wanted]:
            task.result()
    return reasons


def frame_count(file: Location | bytes) -> int:
    """Return how many frames a video has."""
    return _video(file, 1).count


class VideoFile:
    """A video, opened when it is first used.

    Frames are counted by reading the whole file once, without decoding it.
    """

    def __init__(self, file: Location | bytes, threads: int) -> None:
        self._file, self._threads = file, threads
        self._lock = threading.RLock()
        self._decoder: Any = None

    @property
    def count(self) -> int:
        """How many frames there are."""
        with self._lock:
            if self._decoder is None:
                self._open()
            return self._count

    def _open(self) -> None:
        file = self._file
        opened: Any = file
        if isinstance(file, bytes):
            _check_kind(file[:12])
        else:
            with file.open() as head:
                _check_kind(head.pread(12, 0))
            opened = file.seekable() if file.remote else os.path.abspath(file)
        decoder = _decoder(opened, self._threads)
        told = decoder.metadata
        if not told.num_frames:
            raise DataError("is a video without frames")
        if not 0 < told.height * told.width <= _MOST_PIXELS:
            raise DataError(f"has frames of {told.height:,} x {told.width:,} pixels")
        self._count = int(told.num_frames)
        self._begin = float(told.begin_stream_seconds or 0.0)
        self._end = float(told.end_stream_seconds or 0.0)
        self._rate = float(told.average_fps or 0.0)
        self._decoder = decoder

    def store(self, wanted: WantedFrames, out: Images, *, resize: bool) -> dict[int, str]:
        """Decode frames into ``out``, and return why others are missing."""
        which, count = wanted.which, self.count
        by_time = which.dtype.kind == "f"
        there = self._near(which) if by_time else (which >= 0) & (which < count)
        reasons = {
            int(place): self._missing(each)
            for place, each in zip(wanted.places[~there], which[~there].tolist(), strict=True)
        }
        which, places = which[there], wanted.places[there]
        for start in range(0, len(which), _FRAMES):
            span = slice(start, start + _FRAMES)
            frames, begins = self._decoded(which[span], by_time=by_time)
            for place, frame, at, begin in zip(
                places[span].tolist(), frames, which[span].tolist(), begins, strict=True
            ):
                if by_time and abs(begin - at) > 0.51 / self._rate:
                    reasons[place] = f"has no frame at {at:g} s; the nearest is at {begin:g} s"
                elif frame.shape == out.shape[1:]:
                    out[place] = frame
                elif not resize:
                    sizes = [f"{side[0]} x {side[1]}" for side in (frame.shape, out.shape[1:])]
                    reasons[place] = f"has frames of {sizes[0]} pixels, not {sizes[1]}"
                else:
                    _core.resize_image(np.ascontiguousarray(frame), out[place])
        return reasons

    def _near(self, seconds: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        half = 0.5 / self._rate if self._rate else math.nan
        near: npt.NDArray[np.bool_] = (seconds > self._begin - half) & (seconds < self._end)
        return near

    def _missing(self, frame: float) -> str:
        if isinstance(frame, int):
            return f"has {self._count:,} frames; there is no frame {frame:,}"
        if not self._rate:
            return "has no frame rate; ask for frames by number"
        return f"has frames from {self._begin:g} to {self._end:g} s; there is none at {frame:g} s"

    def _decoded(
        self, which: npt.NDArray[Any], *, by_time: bool
    ) -> tuple[npt.NDArray[np.uint8], list[float]]:
        """Return frames, and when each is shown."""
        with self._lock:
            try:
                if by_time:
                    # The frame that begins nearest: rounded times may lie just before their frame.
                    seconds = which.astype(np.float64) + 0.5 / self._rate
                    last = np.nextafter(self._end, -math.inf)
                    seconds = np.clip(seconds, self._begin, last)
                    found = self._decoder.get_frames_played_at(seconds.tolist())
                else:
                    found = self._decoder.get_frames_at(which.astype(np.int64).tolist())
            except (RuntimeError, ValueError, IndexError) as e:
                raise DataError(f"is a broken video: {_reason(e)}") from e
        return found.data.numpy(), found.pts_seconds.tolist()


def _video(file: Location | bytes, threads: int) -> VideoFile:
    """Return a video, which may be open since this process last used it."""
    if isinstance(file, bytes):
        return VideoFile(file, threads)
    try:
        key = (os.getpid(), str(file), file.stat().version)
    except FileNotFoundError:
        raise DataError("does not exist") from None
    with _finding:
        video = _videos.get(key)
        if video is None:
            video = VideoFile(file, threads)
            _videos.put(key, video)
    return video


_finding = threading.Lock()
_videos = Lru[tuple[int, str, int | str], VideoFile](_OPEN)


def _check_kind(head: bytes) -> None:
    """Refuse what is not a video, such as a playlist, with which FFmpeg would open other files."""
    is_avi = head[:4] == _RIFF and head[8:12] == _AVI
    if not (is_avi or head[:4] == _MATROSKA or head[4:8] in _BOXES):
        raise DataError(
            "is not an MP4, MOV, WebM, Matroska or AVI file" if head else "is an empty file"
        )


def _decoder(opened: Any, threads: int) -> Any:
    try:
        from torchcodec.decoders import VideoDecoder
    except ImportError as e:
        raise MissingPackageError("decoding video needs TorchCodec", extra="video") from e
    except (OSError, RuntimeError) as e:
        raise MissingPackageError(
            "TorchCodec is installed, but does not load: it needs FFmpeg's shared libraries (on "
            f"Debian: apt install ffmpeg) and a build for this PyTorch: {_reason(e)}"
        ) from e
    try:
        return VideoDecoder(opened, dimension_order="NHWC", num_ffmpeg_threads=threads)
    except (RuntimeError, ValueError) as e:
        raise DataError(f"is a broken video: {_reason(e)}") from e


def _reason(error: Exception) -> str:
    """Return what FFmpeg says, without where in TorchCodec that was."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].rpartition(", ")[2].rstrip(".")


@lru_cache(maxsize=1)
def _pool(process: int) -> Threads:
    """Return the threads of this process. A fork starts its own."""
    return Threads(thread_count(), f"recmap-video-{process}")


def inside(folder: Location, path: str) -> Location:
    """Return the location of a path in a folder; raise if it leads out of it."""
    parts = path.split("/")
    if not path or "\0" in path or path.startswith("/") or ".." in parts or len(path) > 4096:
        raise DataError(f"the path {path[:200]!r} does not lie in the folder {folder}")
    return located(folder.child(path))


def each_file(files: Sequence[Location | bytes]) -> Iterator[tuple[Location | bytes, list[int]]]:
    """Yield each distinct file, and where it stands among all."""
    places: dict[Location | bytes, list[int]] = {}
    for place, file in enumerate(files):
        places.setdefault(file, []).append(place)
    yield from places.items()
