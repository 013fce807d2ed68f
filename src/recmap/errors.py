"""Every error recmap raises.

RecmapError
├── OptionError (ValueError)             an argument that cannot mean anything
│   ├── OptionTypeError (TypeError)      an argument of a type that makes no sense there
│   ├── FieldTextError                   a field such as "float32[10" that cannot be read
│   └── MemoryLimitError                 a row takes more memory than may be used
├── PathNotFoundError (FileNotFoundError)
├── OutputExistsError (FileExistsError)
├── OutputError (OSError)                the output could not be written: a full disk
├── MissingPackageError (ImportError)    something needs a package that is not installed
├── FieldNotFoundError (KeyError)        no such column
├── RowNotFoundError (IndexError)        no such row, or an index that does not fit
├── DataError (ValueError)               what a file holds is not what was asked for
│   ├── UnknownFormatError               not a format that recmap reads
│   ├── CorruptRecordError               framing or checksum is broken
│   ├── CompressionError                 a compressed stream is broken or mislabelled
│   ├── NotExampleError                  sound records, but no tf.train.Example in them
│   ├── FieldMismatchError               a feature does not fit the field asked for
│   ├── ImageError                       an image that cannot be decoded
│   ├── VerificationError                what was written is not what was read
│   └── IndexFileError                   an index file that cannot be read
├── ColumnError (ValueError)             a column handed to a writer does not fit
│   └── RecordTooLargeError (OverflowError)
├── MapError (RuntimeError)              a function given to map() raised
└── WorkerDiedError (RuntimeError)       a worker process was killed, or crashed

Each inherits the builtin a caller would expect, so `except FileNotFoundError`
works. The warnings are LeftOutWarning, OldStateWarning, SkippedRecordsWarning, SlowOrderWarning,
StaleIndexWarning, StalledWorkersWarning and UnknownFeatureWarning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

__all__ = [
    "ColumnError",
    "CompressionError",
    "CorruptRecordError",
    "DataError",
    "FieldMismatchError",
    "FieldNotFoundError",
    "FieldTextError",
    "ImageError",
    "IndexFileError",
    "LeftOutWarning",
    "MapError",
    "MemoryLimitError",
    "MissingPackageError",
    "NotExampleError",
    "OldStateWarning",
    "OptionError",
    "OptionTypeError",
    "OutputError",
    "OutputExistsError",
    "PathNotFoundError",
    "RecmapError",
    "RecordTooLargeError",
    "RowNotFoundError",
    "SkippedRecordsWarning",
    "SlowOrderWarning",
    "StaleIndexWarning",
    "StalledWorkersWarning",
    "UnknownFeatureWarning",
    "UnknownFormatError",
    "VerificationError",
    "WorkerDiedError",
]


class Option(NamedTuple):
    """An option that a message names, spelled as in Python: ``overwrite=True``.

    ``value`` is ``...`` where the reader has to choose one. ``of_input`` marks an option of
    ``rm.open``, for calls that have another one of the same name for the output.

    >>> print(Option("errors", "skip"), Option("fields", {"x": "int64 = 0", ...: None}))
    errors="skip" fields={"x": "int64 = 0", ...: None}
    """

    name: str
    value: Any = ...
    of_input: bool = False

    def __str__(self) -> str:
        return f"{self.name}={'' if self.value is ... else _spelled(self.value)}"


def _spelled(value: Any) -> str:
    if value is ...:
        return "..."
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return f"[{', '.join(map(_spelled, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_spelled(k)}: {_spelled(v)}' for k, v in value.items())}}}"
    return repr(value)


class Message(str):
    """Text that names options. The command line spells them its own way, from ``parts``.

    A hint comes last, in parentheses; ``text`` is the message without it.

    >>> Message("x.npy exists already", hint=("use ", Option("overwrite", True), " to replace it"))
    'x.npy exists already (use overwrite=True to replace it)'
    """

    __slots__ = ("parts", "text")
    parts: tuple[str | Option, ...]
    text: str

    def __new__(cls, *parts: str | Option, hint: Sequence[str | Option] = ()) -> Self:
        """Join texts and options; a message among them keeps its options."""
        every = (*parts, " (", *hint, ")") if hint else parts
        made = super().__new__(cls, "".join(map(str, every)))
        made.text = "".join(map(str, parts))
        made.parts = tuple(
            inner
            for part in every
            for inner in (part.parts if isinstance(part, Message) else (part,))
        )
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, self.parts


class RecmapError(Exception):
    """The root of all errors recmap raises."""

    def __str__(self) -> str:
        # KeyError would print the repr of the message, and the errors of the
        # operating system would look for a number.
        return str(self.args[0]) if self.args else ""

    @property
    def wording(self) -> str:
        """The text; a ``Message`` if it names options.

        It is not called ``message``: PyTorch passes ``message=`` to errors that have one.
        """
        return self.args[0] if self.args and isinstance(self.args[0], str) else str(self)

    @property
    def options(self) -> tuple[Option, ...]:
        """The options that the message names, to correct the call: ``overwrite=True``."""
        parts = self.wording.parts if isinstance(self.wording, Message) else ()
        return tuple(part for part in parts if isinstance(part, Option))


class OptionError(RecmapError, ValueError):
    """An argument that cannot mean anything."""


class OptionTypeError(OptionError, TypeError):
    """An argument of a type that makes no sense there."""


class FieldTextError(OptionError):
    """The text of a field, such as ``"float32[10]"``, that cannot be read."""


class MemoryLimitError(OptionError):
    """A row that takes more memory than may be used for it: ``size`` bytes, and
    ``limit`` were allowed.
    """

    def __init__(self, message: str, *, size: int = 0, limit: int = 0) -> None:
        super().__init__(message)
        self.size = size
        self.limit = limit


class PathNotFoundError(RecmapError, FileNotFoundError):
    """No file at a path, or none that a pattern matches."""


class OutputExistsError(RecmapError, FileExistsError):
    """The output is there already, and overwriting was not asked for."""


class OutputError(RecmapError, OSError):
    """The output could not be written."""


class MissingPackageError(RecmapError, ImportError):
    """What was asked for needs a package that is not installed."""


class FieldNotFoundError(RecmapError, KeyError):
    """No column of that name."""


class RowNotFoundError(RecmapError, IndexError):
    """No row of that number, or an index that does not fit the column."""


class DataError(RecmapError, ValueError):
    """What a file holds is not what was asked for.

    ``file``, ``record``, ``byte`` and ``field`` say where, as far as it is known.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        record: int | None = None,
        byte: int | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(message)
        self.file = file
        self.record = record
        self.byte = byte
        self.field = field


class UnknownFormatError(DataError):
    """A file in none of the formats that recmap reads; the message says what it looks
    like, and how to get at its data.
    """


class CorruptRecordError(DataError):
    """A record whose framing or checksum is broken."""


class CompressionError(DataError):
    """A compressed stream that is broken, or not compressed as was said."""


class NotExampleError(DataError):
    """Records that are sound but hold no ``tf.train.Example``."""


class FieldMismatchError(DataError):
    """A feature that does not fit the field asked for."""


class ImageError(DataError):
    """An image that cannot be decoded; ``row`` is its place in the batch."""

    row: int | None = None


class VerificationError(DataError):
    """What was written is not what was read."""


class IndexFileError(DataError):
    """An index file that cannot be read."""


class ColumnError(RecmapError, ValueError):
    """A column handed to a writer that does not fit its schema or encoding."""


class RecordTooLargeError(ColumnError, OverflowError):
    """A row that would make a record no protobuf reader can read."""


class MapError(RecmapError, RuntimeError):
    """A user's function raised; ``cause_type`` is the name of its exception's type.

    The function's own traceback is in the notes if it ran in another process,
    else it is that of ``__cause__``.
    """

    def __init__(self, message: str, *, cause_type: str | None = None) -> None:
        super().__init__(message)
        self.cause_type = cause_type


class WorkerDiedError(RecmapError, RuntimeError):
    """A worker process was killed or crashed; ``exitcode`` is as in multiprocessing:
    minus the number of a signal.
    """

    def __init__(self, message: str, *, exitcode: int | None = None) -> None:
        super().__init__(message)
        self.exitcode = exitcode


class LeftOutWarning(UserWarning):
    """Datasets or members that do not fit beside the others were left out."""


class OldStateWarning(UserWarning):
    """A state of an older recmap does not say what data and functions it was saved from."""


class SkippedRecordsWarning(UserWarning):
    """Bad records were left out, as ``errors="skip"`` asks."""


class SlowOrderWarning(UserWarning):
    """Rows were asked for in an order in which they are read slowly."""


class StaleIndexWarning(UserWarning):
    """An index file does not belong to the data beside it and was not used."""


class StalledWorkersWarning(UserWarning):
    """No worker has answered for a long time: the function may hang."""


class UnknownFeatureWarning(UserWarning):
    """Records have features that the schema does not, and that were not read."""
