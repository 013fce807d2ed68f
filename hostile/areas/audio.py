"""Columns of sound: every kind of file that libsndfile writes, some damaged, against soundfile."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import soundfile

import recmap as rm
from hostile.case import Case

__all__ = ["are_near", "case"]

_KINDS = {
    "WAV": ["PCM_16", "PCM_24", "PCM_32", "PCM_U8", "FLOAT", "DOUBLE", "ULAW", "ALAW"],
    "FLAC": ["PCM_S8", "PCM_16", "PCM_24"],
    "MP3": ["MPEG_LAYER_III"],
    "OGG": ["VORBIS", "OPUS"],
}


def case(case: Case) -> None:
    channels = case.between(1, 2)
    files = [_file(case, channels) for _ in range(case.between(1, 6))]
    options: dict[str, Any] = {
        "channels": case.pick([1, channels]),
        "dtype": case.pick(["float32", "float64", "int16"]),
        "rate": case.pick([None, 16_000]),
    }
    case.note(str(options))
    ds = rm.from_arrays({"audio": rm.Ragged.from_bytes(files), "row": np.arange(len(files))})
    wanted = [_reference(data, **options) for data in files]
    kept = ds.decode_audio("audio", errors="skip", **options)
    found = {int(row["row"]): row for row in kept}
    for row, samples in enumerate(wanted):
        if row not in found:
            continue  # damaged, or refused as such
        if samples is None:
            raise AssertionError(f"row {row} was decoded, and soundfile refuses it")
        if files[row] not in case_sound and len(found[row]["audio"]) != len(samples):
            continue  # where a damaged MP3 file ends depends on how much is asked for at a time
        if not are_near(found[row]["audio"], samples, options["dtype"]):
            raise AssertionError(f"row {row} differs from what soundfile reads")
    sound = [
        row for row, data in enumerate(files) if data in case_sound and wanted[row] is not None
    ]
    if missing := [row for row in sound if row not in found]:
        raise AssertionError(f"rows {missing} are sound, and were refused")
    if len(found) < len(files):
        try:
            list(ds.decode_audio("audio", **options).batch(2))
        except rm.DataError as e:
            case.note(f"refused: {e}")
            case.outcome = "refused"
            return
        raise AssertionError("a row was left out, but is not an error")
    whole = [batch["row"].tolist() for batch in kept.batch(2)]
    stopped = ds.decode_audio("audio", errors="skip", **options).batch(2)
    next(iter(stopped))
    again = ds.decode_audio("audio", errors="skip", **options).batch(2).restore(stopped.state())
    if len(whole) > 1 and [batch["row"].tolist() for batch in again] != whole[1:]:
        raise AssertionError("a resumed run differs")


def are_near(found: Any, wanted: Any, dtype: str) -> bool:
    """Return whether two decoders of the same file may have made these samples.

    libmpg123 rounds in another way if it is asked for another number of samples: a sum of float32
    values, of which damaged files have some that are far above 1.
    """
    peak = np.max(np.abs(wanted), initial=1, where=np.isfinite(wanted))
    near = 1 if dtype == "int16" else 1e-6 * peak
    return bool(np.allclose(found, wanted, atol=near, rtol=1e-6, equal_nan=True))


#: The files of this process that are not damaged.
case_sound: set[bytes] = set()


def _file(case: Case, channels: int) -> bytes:
    kind = case.pick(list(_KINDS))
    subtype = case.pick(_KINDS[kind])
    # MP3 is padded with silence, and files of no samples are not written by every encoder.
    samples = case.rng.uniform(-0.9, 0.9, (case.pick([1, 60, 5_000]), channels))
    out = io.BytesIO()
    rate = 48_000 if subtype == "OPUS" else case.pick([16_000, 44_100])
    soundfile.write(out, samples, rate, format=kind, subtype=subtype)
    data = bytearray(out.getvalue())
    if case.chance(0.6):
        case_sound.add(bytes(data))
        return bytes(data)
    if case.chance(0.5):
        return bytes(data[: case.between(0, len(data) - 1)])
    for _ in range(case.between(1, 20)):
        data[case.between(0, len(data) - 1)] = case.between(0, 255)
    return bytes(data)


def _reference(data: bytes, channels: int, dtype: str, rate: int | None) -> Any:
    """Return what soundfile reads, or None."""
    try:
        samples, found = soundfile.read(io.BytesIO(data), dtype=dtype, always_2d=True)
    except Exception:
        return None
    if rate is not None and found != rate:
        return None
    if channels == 1:
        mean = samples.mean(axis=1, dtype=np.float64)
        return np.rint(mean) if dtype == "int16" else mean
    return samples if samples.shape[1] == channels else None
