"""``decode_audio``: turn a column of encoded sound into samples."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, MissingPackageError, OptionError
from recmap.model.arguments import as_whole, check_choice
from recmap.model.batch import Positions
from recmap.model.field import Field
from recmap.model.media import media_kind
from recmap.model.ragged import Ragged, offsets_of
from recmap.model.schema import Batch, Schema
from recmap.pipeline.transforms.base import Block, Transform

if TYPE_CHECKING:
    import soundfile

BadSound: TypeAlias = Literal["raise", "skip"]
SampleType: TypeAlias = Literal["float32", "float64", "int16"]
Samples: TypeAlias = npt.NDArray[Any]

_RATE = "/rate"
_KINDS = ("WAV", "FLAC", "MP3", "Ogg")
_MOST_CHANNELS, _MOST_RATE = 64, 10**7
# Frames to decode at a time, and the most samples of a row. A few bytes may claim any number.
_FRAMES, _MOST_SAMPLES = 1 << 16, 1 << 30
# Programs that write to a pipe do not know the size of what follows, and say this or more.
_UNKNOWN_SIZE = 0x7FFFF000


@dataclass(frozen=True)
class DecodeAudio(Transform):
    """Decodes a column of sound."""

    column: str
    rate: int | None
    channels: int
    dtype: SampleType
    errors: BadSound
    name = "decode_audio"

    @classmethod
    def checked(cls, column: Any, rate: Any, channels: Any, dtype: Any, errors: Any) -> DecodeAudio:
        """Check the user's arguments and return the transform."""
        rate = None if rate is None else as_whole("rate", rate, 1, _MOST_RATE)
        channels = as_whole("channels", channels, 1, _MOST_CHANNELS)
        kind = check_choice("dtype", np.dtype(dtype).name, get_args(SampleType))
        return cls(column, rate, channels, kind, check_choice("errors", errors, get_args(BadSound)))

    @property
    def drops(self) -> bool:
        return self.errors == "skip"

    def leaves(self, name: str) -> bool:
        return name not in (self.column, self.column + _RATE) and not self.drops

    def output(self, schema: Schema) -> Schema:
        field = schema[self.column]
        if field.has_nulls or field != Field("bytes"):
            hint = f"; leave out rows without sound: ds.drop_null({self.column!r})"
            raise OptionError(
                f"decode_audio: {self.column!r} is {field}, not bytes{hint * field.nullable}"
            )
        shape = (None,) if self.channels == 1 else (None, self.channels)
        made = {self.column: Field(self.dtype, shape)}
        if self.rate is None:
            if self.column + _RATE in schema:
                raise OptionError(
                    f"decode_audio adds a column {self.column + _RATE!r}; rename yours"
                )
            made[self.column + _RATE] = Field("int32")
        return Schema({**schema, **made})

    def apply(self, block: Block) -> Block:
        strings = block.batch[self.column]
        assert isinstance(strings, Ragged)
        good = np.ones(len(strings), bool)
        samples, rates = list[Samples](), list[int]()
        for row in range(len(strings)):
            try:
                decoded, rate = self._decoded(bytes(strings[row]))
            except DataError as e:
                if not self.drops:
                    raise DataError(
                        f"{block.origin(row)}: {self.column!r} {e}", field=self.column
                    ) from e
                good[row] = False
                continue
            samples.append(decoded)
            rates.append(rate)
        block = block.where(good)
        made: Batch = {self.column: self._joined(samples)}
        if self.rate is None:
            made[self.column + _RATE] = np.array(rates, np.int32)
        return replace(block, batch={**block.batch, **made})

    def _joined(self, samples: list[Samples]) -> Ragged:
        shape = (0,) if self.channels == 1 else (0, self.channels)
        lengths: Positions = np.array([len(each) for each in samples], np.int64)
        return Ragged(np.concatenate([np.empty(shape, self.dtype), *samples]), offsets_of(lengths))

    def _decoded(self, data: bytes) -> tuple[Samples, int]:
        """Return the samples of a file, and how many there are in a second."""
        kind = media_kind(data)
        if kind is None or kind.name not in _KINDS:
            told = "is empty" if not data else "is not a WAV, FLAC, MP3 or Ogg file"
            raise DataError(told)
        if kind.name == "WAV":
            _check_wav(data)
        with _opened(data, kind.name) as sound:
            if self.rate is not None and sound.samplerate != self.rate:
                raise DataError(
                    f"has {sound.samplerate:,} samples a second, not rate={self.rate:,}; resample "
                    "it before, or leave out rate="
                )
            if self.channels not in (1, sound.channels):
                raise DataError(f"has {sound.channels} channels, not channels={self.channels}")
            parts = list(_parts(sound, self.dtype, self.channels == 1))
            samples = np.concatenate([_none(sound, self.dtype, self.channels == 1), *parts])
            if len(samples) < sound.frames:
                raise DataError(
                    f"is a {kind.name} file that ends after {len(samples):,} of {sound.frames:,} "
                    "samples"
                )
            return samples, sound.samplerate


def _none(sound: soundfile.SoundFile, dtype: SampleType, mono: bool) -> Samples:
    return np.empty(0 if mono else (0, sound.channels), dtype)


def _parts(sound: soundfile.SoundFile, dtype: SampleType, mono: bool) -> Iterator[Samples]:
    """Yield the samples a few at a time, so that no claim in the file makes us allocate much."""
    left = _MOST_SAMPLES // sound.channels
    while True:
        try:
            some = sound.read(_FRAMES, dtype=dtype, always_2d=True)
        except Exception as e:
            raise DataError(f"is a broken {sound.format} file: {_reason(e)}") from e
        if not len(some):
            return
        left -= len(some)
        if left < 0:
            raise DataError(f"has more than {_MOST_SAMPLES:,} samples")
        yield _mixed(some, dtype) if mono else some


def _mixed(samples: Samples, dtype: SampleType) -> Samples:
    """Return the mean of all channels."""
    if samples.shape[1] == 1:
        return samples[:, 0]
    mean: Samples = samples.mean(axis=1, dtype=np.float64)
    return (np.rint(mean) if dtype == "int16" else mean).astype(dtype)


def _opened(data: bytes, kind: str) -> soundfile.SoundFile:
    try:
        import soundfile
    except ImportError as e:
        raise MissingPackageError("decode_audio needs soundfile", extra="audio") from e
    try:
        return soundfile.SoundFile(io.BytesIO(data))
    except Exception as e:
        raise DataError(f"is a broken {kind} file: {_reason(e)}") from e


def _reason(error: Exception) -> str:
    """Return what libsndfile says, without the address of what it reads."""
    return str(getattr(error, "error_string", error)).rstrip(".")


def _check_wav(data: bytes) -> None:
    """Refuse a WAV file that ends too early, of which libsndfile gives what is left."""
    at = 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if name == b"data":
            left = len(data) - at - 8
            if left < size < _UNKNOWN_SIZE:
                raise DataError(
                    f"is a WAV file that ends after {left:,} of {size:,} bytes of sound"
                )
            return
        at += 8 + size + size % 2
    raise DataError("is a WAV file without sound: it has no data chunk")
