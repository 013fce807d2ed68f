"""Every error recmap raises.

RecmapError
├── OptionError (ValueError)             an argument has an invalid value
│   ├── OptionTypeError (TypeError)      an argument has the wrong type
│   ├── FieldTextError                   a field such as "float32[10" cannot be parsed
│   ├── MemoryLimitError                 a row needs more memory than the limit allows
│   └── UnknownSchemeError               a URL that recmap does not read or write
├── PathNotFoundError (FileNotFoundError)
├── OutputExistsError (FileExistsError)
├── OutputError (OSError)                the output could not be written (disk full)
├── StoreError (OSError)                 a request to an object store failed
│   ├── AccessDeniedError (PermissionError)
│   ├── StoreTimeoutError (TimeoutError)
│   └── ObjectChangedError               an object changed while it was open
├── MissingPackageError (ImportError)    a package that is needed is not installed
├── FieldNotFoundError (KeyError)        no such column
├── RowNotFoundError (IndexError)        no such row, or an index that does not fit
├── DataError (ValueError)               a file's contents are not what was asked for
│   ├── UnknownFormatError               not a format that recmap reads
│   ├── CorruptRecordError               framing or checksum is broken
│   ├── CompressionError                 a compressed stream is broken or mislabelled
│   ├── FileChangedError                 a file was replaced or changed while it was open
│   ├── NotExampleError                  intact records that hold no tf.train.Example
│   ├── FieldMismatchError               a feature does not match the requested field
│   ├── ImageError                       an image cannot be decoded
│   ├── UnfinishedOutputError            a folder that a conversion has not finished
│   ├── VerificationError                the output differs from the input
│   └── IndexFileError                   an index file cannot be read
├── ColumnError (ValueError)             a column passed to a writer does not fit
│   └── RecordTooLargeError (OverflowError)
├── MapError (RuntimeError)              a function passed to map() raised
└── WorkerDiedError (RuntimeError)       a worker process was killed or crashed

Each error also inherits from the builtin exception you would expect, so
`except FileNotFoundError` works.

The warnings come last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

# Options that programs know by an earlier name.
_SPELLED = {"fields": "columns"}


class Option(NamedTuple):
    """An option that a message names, spelled as in Python: ``overwrite=True``.

    ``value`` is ``...`` if the reader has to choose one. ``of_input`` marks an option of
    ``rm.open``, for calls in which an output option has the same name. What is an option only on
    the command line is a ``verb`` in Python, or another ``call``.

    >>> print(Option("errors", "skip"), Option("fields", {"x": "int64 = 0", ...: None}))
    errors="skip" columns={"x": "int64 = 0", ...: None}
    >>> print(Option("rename", {"x": "pixels"}, verb=True))
    rename({"x": "pixels"})
    """

    name: str
    value: Any = ...
    of_input: bool = False
    verb: bool = False
    call: str = ""

    def __str__(self) -> str:
        if self.verb:
            return f"{self.name}({_spelled(self.value)})"
        name = _SPELLED.get(self.name, self.name)
        return self.call or f"{name}={'' if self.value is ... else _spelled(self.value)}"


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


class InPython(str):
    """Words of a message that the command line leaves out: it has no such thing."""

    __slots__ = ()


class Message(str):
    """Text that mentions options. The command line respells them its own way, from ``parts``.

    A hint comes last, in parentheses; ``text`` is the message without it.

    >>> Message("x.npy already exists", hint=("use ", Option("overwrite", True), " to replace it"))
    'x.npy already exists (use overwrite=True to replace it)'
    """

    __slots__ = ("parts", "text")
    parts: tuple[str | Option, ...]
    text: str

    def __new__(cls, *parts: str | Option, hint: Sequence[str | Option] = ()) -> Self:
        """Join strings and options; a nested message keeps its options."""
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


# What a URL has before its host, and a query with the signature or the token that makes it work.
_SCHEME = r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]*:/{1,2})"
_USER = re.compile(rf"{_SCHEME}[^/\s?#]+@")
# A password may have a slash in it. A port has only digits.
_PASSWORD = re.compile(rf"{_SCHEME}[^/\s?#:@\[]+:(?!\d*([/?#\s'\",;:)]|$))\S*")
_QUERY = re.compile(r"\?[^\s?\"'<>]*[^\s?\"'<>.,;:)]")
_SECRET_NAME = re.compile(
    r"[?&](x-amz-|x-goog-|[^=&]*(sig|signature|token|secret|passw|credential|api_?key|accesskey))"
    r"[^=&]*=",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """Return text without what is secret in the URLs and paths that it mentions.

    That is user and password, and all values of a query that has a signature, key or token.

    >>> without_secrets("no https://me:pass@host/x.npy?X-Amz-Signature=123&X-Amz-Date=1, sorry")
    'no https://host/x.npy?X-Amz-Signature=***&X-Amz-Date=***, sorry'
    """
    if "@" in text:
        text = _PASSWORD.sub(r"\1...", _USER.sub(r"\1", text))
    return _QUERY.sub(_without_values, text) if "?" in text else text


def _without_values(query: re.Match[str]) -> str:
    if _SECRET_NAME.search(query[0]) is None:
        return query[0]
    return re.sub(r"=[^&]*", "=***", query[0])


def shown_url(url: str) -> str:
    """Return a URL for messages, without what may be secret: user, password and query.

    >>> shown_url("https://me:secret@host/x.npy?X-Amz-Signature=123")
    'https://host/x.npy?...'
    """
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)", url, re.DOTALL)
    if found is None:
        return url
    scheme, host, path = found.groups()
    host = host.rpartition("@")[2]
    if not re.fullmatch(r"[^:]*(:\d*)?|\[.*\](:\d*)?", host):
        return f"{scheme}://..."  # perhaps a password with a slash in it
    if scheme.lower() != "file":
        path = re.sub(r"[?#].*", "?...", path, flags=re.DOTALL)
    return f"{scheme}://{host}{path}"


def _shown(argument: Any) -> Any:
    """Return an argument of an error as it is shown; the options of a message stay."""
    if isinstance(argument, Message):
        clean = [_shown(part) for part in argument.parts]
        return argument if clean == [*argument.parts] else Message(*clean)
    if not isinstance(argument, str):
        return argument
    # The name of a file may be no UTF-8, which could not be printed.
    return without_secrets(argument).encode(errors="backslashreplace").decode()


class RecmapError(Exception):
    """The root of all errors recmap raises. Messages contain no secrets, so they can be logged."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*(_shown(each) for each in args))

    def __str__(self) -> str:
        # KeyError would print the repr of the message, and OSError would look for an
        # error number.
        return str(self.args[0]) if self.args else ""

    @property
    def wording(self) -> str:
        """The text of the error; a ``Message`` if it mentions options.

        The name is not ``message``, because PyTorch passes ``message=`` to errors that have one.
        """
        return self.args[0] if self.args and isinstance(self.args[0], str) else str(self)

    @property
    def options(self) -> tuple[Option, ...]:
        """The options the message suggests to fix the call: ``overwrite=True``."""
        parts = self.wording.parts if isinstance(self.wording, Message) else ()
        return tuple(part for part in parts if isinstance(part, Option))


class OptionError(RecmapError, ValueError):
    """An argument has an invalid value."""


class OptionTypeError(OptionError, TypeError):
    """An argument has the wrong type."""


class FieldTextError(OptionError):
    """The text of a field, such as ``"float32[10"``, cannot be parsed."""


class MemoryLimitError(OptionError):
    """A row needs ``size`` bytes of memory, more than the ``limit`` allows."""

    def __init__(self, message: str, *, size: int = 0, limit: int = 0) -> None:
        super().__init__(message)
        self.size = size
        self.limit = limit


class UnknownSchemeError(OptionError):
    """A path is a URL with a ``scheme`` that recmap does not read or write."""

    def __init__(self, message: str, *, scheme: str | None = None) -> None:
        super().__init__(message)
        self.scheme = scheme


class PathNotFoundError(RecmapError, FileNotFoundError):
    """There is no file at a path, or a pattern matches none."""


class OutputExistsError(RecmapError, FileExistsError):
    """The output already exists, and ``overwrite=True`` was not given."""


class OutputError(RecmapError, OSError):
    """The output could not be written."""


class StoreError(RecmapError, OSError):
    """A request to an object store failed; ``status`` is the HTTP status of the answer, if any.

    ``transient`` is true if the same request may succeed later.
    """

    def __init__(
        self,
        message: str,
        *,
        url: str | None = None,
        status: int | None = None,
        transient: bool = False,
    ) -> None:
        super().__init__(message)
        self.url = url
        self.status = status
        self.transient = transient


class AccessDeniedError(StoreError, PermissionError):
    """A store refuses access, or there are no credentials."""


class StoreTimeoutError(StoreError, TimeoutError):
    """A store does not answer in time."""


class ObjectChangedError(StoreError):
    """An object changed while it was open."""


class MissingPackageError(RecmapError, ImportError):
    """A package that is needed is not installed.

    ``extra`` names the recmap extra that it belongs to. The message lists what the extra requires
    rather than the extra, so that the command works however recmap itself was installed.

    >>> print(MissingPackageError("HDF5 files need h5py", extra="hdf5"))
    HDF5 files need h5py: pip install "h5py>=3.11"
    """

    def __init__(self, message: str, *, extra: str | None = None) -> None:
        if extra:
            message += f": pip install {' '.join(_requirements(extra))}"
        super().__init__(message)
        self.extra = extra


def _requirements(extra: str) -> list[str]:
    """Return what an extra of the installed recmap requires, quoted for a shell."""
    from importlib import metadata

    try:
        every = metadata.requires("recmap") or []
    except metadata.PackageNotFoundError:  # run from a folder that pip knows nothing of
        return [f'"recmap[{extra}]"']
    listed = [text.replace("'", '"').partition(";") for text in every]
    return [f'"{needed.strip()}"' for needed, _, when in listed if f'extra == "{extra}"' in when]


class FieldNotFoundError(RecmapError, KeyError):
    """There is no column with that name."""


class RowNotFoundError(RecmapError, IndexError):
    """There is no row with that number, or the index does not fit the column."""


class LeftOut(NamedTuple):
    """A part of a file that is not a column: why, and what it is, such as its type and shape."""

    why: str
    what: str = ""


class DataError(RecmapError, ValueError):
    """The contents of a file are not what was asked for.

    ``file``, ``record``, ``byte`` and ``field`` say where, as far as that is known. If a
    file is sound, but nothing in it can be a column, ``left_out`` says of each part why, by name.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        record: int | None = None,
        byte: int | None = None,
        field: str | None = None,
        left_out: Mapping[str, LeftOut] | None = None,
    ) -> None:
        super().__init__(message)
        self.file = file
        self.record = record
        self.byte = byte
        self.field = field
        self.left_out = None if left_out is None else dict(left_out)


class UnknownFormatError(DataError):
    """A file is not in a format that recmap reads.

    The message says what the file looks like and how to read it instead.
    """


class CorruptRecordError(DataError):
    """The framing or checksum of a record is broken."""


class CompressionError(DataError):
    """A compressed stream is broken, or its compression is not the one given."""


class FileChangedError(DataError):
    """A file was replaced, changed or removed while it was open."""


class NotExampleError(DataError):
    """Records are intact, but they are not ``tf.train.Example`` messages."""


class FieldMismatchError(DataError):
    """A feature does not match the requested field."""


class ImageError(DataError):
    """An image cannot be decoded; ``row`` is its index in the batch."""

    row: int | None = None


class UnfinishedOutputError(DataError):
    """A folder has only some of the files of a conversion, which is running or was interrupted."""


class VerificationError(DataError):
    """The output differs from the input."""


class IndexFileError(DataError):
    """An index file cannot be read."""


class ColumnError(RecmapError, ValueError):
    """A column passed to a writer does not fit its schema or encoding."""


class RecordTooLargeError(ColumnError, OverflowError):
    """A row would make a record that is too large for any protobuf reader."""


class MapError(RecmapError, RuntimeError):
    """A user's function raised; ``cause_type`` is the name of its exception's type.

    If the function ran in another process, its traceback is in the notes; otherwise it is
    that of ``__cause__``.
    """

    def __init__(self, message: str, *, cause_type: str | None = None) -> None:
        super().__init__(message)
        self.cause_type = cause_type


class WorkerDiedError(RecmapError, RuntimeError):
    """A worker process was killed or crashed.

    ``exitcode`` is as in ``multiprocessing``: the negative signal number if a signal killed it.
    """

    def __init__(self, message: str, *, exitcode: int | None = None) -> None:
        super().__init__(message)
        self.exitcode = exitcode


class LeftOutWarning(UserWarning):
    """Datasets or members that do not match the others were left out.

    ``left_out`` has the reasons by name.
    """

    def __init__(self, message: str, left_out: Mapping[str, LeftOut] | None = None) -> None:
        super().__init__(message)
        self.left_out = dict(left_out or {})


class MissingShardsWarning(UserWarning):
    """Shards are missing from a folder or pattern, going by the names of those that exist."""


class StoreWaitWarning(UserWarning):
    """A store does not answer or fails; its requests are repeated until it answers."""


class NoCacheWarning(UserWarning):
    """The disk cache has no room or cannot be used, so data is fetched or made again each time."""


class NotResumableWarning(UserWarning):
    """A trainer does not save where it is in the data, so a resumed epoch would start over."""


class SkippedRecordsWarning(UserWarning):
    """Bad records were left out, as ``errors="skip"`` asks."""


class SlowOrderWarning(UserWarning):
    """Rows were requested in an order that is slow to read."""


class StaleIndexWarning(UserWarning):
    """An index file, or a note of the columns, does not match the data and was not used."""


class StalledWorkersWarning(UserWarning):
    """No worker has answered for a long time; the function may be hanging."""


class UnknownFeatureWarning(UserWarning):
    """Records have features that are not in the schema; they were not read."""


class UnshardedWarning(UserWarning):
    """Every rank reads every row, because ``shard`` was not called."""


# ``recmap`` has all errors and warnings.
__all__ = [
    name
    for name, each in sorted(vars().items())
    if isinstance(each, type) and issubclass(each, RecmapError | UserWarning)
]
