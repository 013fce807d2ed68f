"""Columns of sound, decoded into samples."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import numpy as np
import pytest

import recmap as rm

soundfile = pytest.importorskip("soundfile")


def encoded(
    samples: Any, rate: int = 8_000, kind: str = "WAV", subtype: str | None = None
) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=kind, subtype=subtype)
    return out.getvalue()


def tone(count: int, channels: int = 1) -> Any:
    """Return int16 samples that differ from channel to channel."""
    wave = (3_000 * np.sin(np.arange(count) / 7)).astype(np.int16)
    return wave if channels == 1 else np.stack([wave // (i + 1) for i in range(channels)], axis=1)


def sounds(*files: bytes) -> rm.Dataset:
    column = rm.Ragged.from_bytes(list(files))
    return rm.from_arrays({"audio": column, "row": np.arange(len(files))})


def rows(stream: Any) -> list[Any]:
    return [batch["audio"][i] for batch in stream for i in range(len(batch["audio"]))]


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_samples_are_those_that_were_written(kind: str) -> None:
    lengths = (1, 500, 0, 70_000) if kind == "WAV" else (1, 500, 70_000)
    for channels in (1, 2, 3):
        waves = [tone(n, channels) for n in lengths]
        ds = sounds(*(encoded(wave, kind=kind) for wave in waves))
        whole = ds.decode_audio("audio", rate=8_000, channels=channels, dtype="int16")
        shape = "int16[*]" if channels == 1 else f"int16[*,{channels}]"
        assert str(whole.schema["audio"]) == shape
        for found, wave in zip(rows(whole.batch(2)), waves, strict=True):
            assert np.array_equal(np.asarray(found).reshape(wave.shape), wave)
        mono = ds.decode_audio("audio", rate=8_000)
        assert str(mono.schema["audio"]) == "float32[*]"
        for found, wave in zip(rows(mono.batch(2)), waves, strict=True):
            mean = wave.reshape(len(wave), channels).mean(axis=1) / 32768
            assert np.allclose(found, mean, atol=1e-6)


def test_wide_samples_keep_their_values() -> None:
    wave = np.linspace(-1, 1, 999)
    for subtype in ("PCM_24", "PCM_32", "FLOAT", "DOUBLE"):
        ds = sounds(encoded(wave, subtype=subtype)).decode_audio("audio", dtype="float64")
        assert np.allclose(ds[0]["audio"], wave, atol=1e-6)


@pytest.mark.parametrize(("kind", "error"), [("MP3", 0.05), ("OGG", 0.05)])
def test_lossy_files_are_close_to_what_was_written(kind: str, error: float) -> None:
    wave = tone(20_000) / 32768
    [found] = rows(sounds(encoded(wave, 16_000, kind)).decode_audio("audio", rate=16_000).batch(1))
    assert len(found) == len(wave)
    assert np.abs(found - wave).max() < error


def test_rates_are_told_or_checked() -> None:
    ds = sounds(encoded(tone(9), 8_000), encoded(tone(9), 44_100))
    told = ds.decode_audio("audio")
    assert told.schema["audio/rate"] == rm.Field("int32")
    assert told["audio/rate"][:].tolist() == [8_000, 44_100]
    with pytest.raises(
        rm.DataError, match=r"row 1.*'audio' has 44,100 samples a second, not rate=8"
    ):
        list(ds.decode_audio("audio", rate=8_000).batch(2))
    kept = ds.decode_audio("audio", rate=8_000, errors="skip")
    assert [batch["row"].tolist() for batch in kept.batch(2)] == [[0]]


def test_channels_that_are_not_there_are_refused() -> None:
    ds = sounds(encoded(tone(9, 2)), encoded(tone(9)))
    with pytest.raises(rm.DataError, match="row 1.*'audio' has 1 channels, not channels=2"):
        list(ds.decode_audio("audio", channels=2).batch(2))


def _broken() -> dict[str, tuple[bytes, str]]:
    wav, flac, mp3 = (encoded(tone(5_000), 16_000, kind) for kind in ("WAV", "FLAC", "MP3"))
    flipped = bytearray(flac)
    flipped[len(flac) // 2] ^= 0xFF
    claims = bytearray(flac)
    claims[21:26] = bytes([claims[21] | 0x0F, 255, 255, 255, 255])  # 2**36 - 1 samples
    return {
        "empty": (b"", "is empty"),
        "text": (b"not a sound at all", "is not a WAV, FLAC, MP3 or Ogg file"),
        "half a WAV": (wav[:5_000], "ends after 4,956 of 10,000 bytes"),
        "the beginning of a WAV": (wav[:36], "without sound"),
        "a WAV without a format": (b"RIFF\0\0\0\0WAVEdata" + struct.pack("<I", 0), "broken WAV"),
        "most of a FLAC": (flac[:-3], "broken FLAC"),
        "a FLAC with a wrong byte": (bytes(flipped), "broken FLAC"),
        "a FLAC that claims a year": (bytes(claims), "FLAC file"),
        "half an MP3": (mp3[: len(mp3) // 2], "MP3 file"),
    }


def test_broken_files_are_refused_with_their_row() -> None:
    good = encoded(tone(5))
    for bad, says in _broken().values():
        ds = sounds(good, bad, good)
        with pytest.raises(rm.DataError, match=rf"row 1\b.*'audio' .*{says}") as caught:
            list(ds.decode_audio("audio").batch(3))
        assert caught.value.field == "audio"
        left = ds.decode_audio("audio", errors="skip").batch(3)
        assert [batch["row"].tolist() for batch in left] == [[0, 2]]


def test_a_wav_file_from_a_pipe_has_an_unknown_size() -> None:
    wav = encoded(tone(50))
    piped = wav[:40] + b"\xff\xff\xff\xff" + wav[44:]
    ds = sounds(piped).decode_audio("audio", dtype="int16")
    assert ds[0]["audio"].tolist() == tone(50).tolist()


@pytest.mark.parametrize("workers", [None, 2])
def test_runs_resume_on_any_rank_and_in_workers(workers: Any) -> None:
    ds = sounds(*(encoded(tone(n)) for n in range(1, 20)))

    def chain(rank: int = 0, world: int = 1) -> rm.Stream:
        made = ds.shuffle(seed=1).decode_audio("audio", rate=8_000)
        if workers is not None:
            made = made.map(_counted, workers=workers)
        return made.batch(cost="audio", limit=60, pad="longest").shard(rank, world)

    whole = [batch["row"].tolist() for batch in chain()]
    assert sorted(row for batch in whole for row in batch) == list(range(19))
    stopped = chain()
    loop = iter(stopped)
    next(loop)
    state = json.loads(json.dumps(stopped.state()))
    assert [batch["row"].tolist() for batch in chain().restore(state)] == whole[1:]
    ranks = [row for i in (0, 1) for b in chain(i, 2) for row in b["row"].tolist()]
    assert sorted(ranks) == list(range(19))


def _counted(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "count": len(row["audio"])}


def test_samples_reach_torch_and_files(tmp_path: Any) -> None:
    ds = sounds(encoded(tone(9)), encoded(tone(4))).decode_audio("audio", rate=8_000)
    ds.save(tmp_path / "x.npz", progress=False)
    assert rm.open(tmp_path / "x.npz")["audio"][1].tolist() == ds[1]["audio"].tolist()
    pytest.importorskip("torch")
    [batch] = ds.batch(2, pad="longest").to_torch()
    assert tuple(batch["audio"].shape) == (2, 9)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rate": 0}, "rate"),
        ({"channels": 0}, "channels"),
        ({"dtype": "uint8"}, "dtype"),
        ({"errors": "zero"}, "errors"),
        ({"column": "row"}, "not bytes"),
        ({"column": "sound"}, "sound"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(rm.RecmapError, match=says):
        sounds(encoded(tone(3))).decode_audio(**{"column": "audio", **options})
