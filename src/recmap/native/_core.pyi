"""The native core: TFRecord framing, tf.train.Example as columns, LZF."""

from collections.abc import Callable, Sequence
import enum
from typing import Annotated

import numpy
import numpy.typing
from numpy.typing import NDArray


from typing import TypeAlias
Decoded: TypeAlias = tuple[numpy.typing.NDArray[numpy.uint8], numpy.typing.NDArray[numpy.int64] | None, numpy.typing.NDArray[numpy.int64] | None, numpy.typing.NDArray[numpy.int64] | None]
Padded: TypeAlias = tuple[list[numpy.typing.NDArray[numpy.uint8]], numpy.typing.NDArray[numpy.int64]]
Unknown: TypeAlias = tuple[bool, bytes, Kind, int, int]

class LzfFault(enum.Enum):
    none = 0

    cut = 1

    too_long = 2

    too_short = 3

    before_start = 4

LZF_MOST_GROWTH: int = 88

def lzf_expand(stream: numpy.typing.NDArray[numpy.uint8], out: numpy.typing.NDArray[numpy.uint8]) -> tuple[LzfFault, int]:
    """
    Fills `out` from an LZF stream; what is wrong with it, and how many bytes it made.
    """

class Mapping:
    """A file mapped read-only, which holds no descriptor."""

    def __init__(self, path: bytes, name: bytes) -> None: ...

    @property
    def contents(self) -> numpy.typing.NDArray[numpy.uint8]:
        """All of it, as a view that keeps it mapped."""

    def size_now(self) -> int:
        """How much of the file is still there, at most what was mapped."""

    def have_read(self, begin: int, end: int) -> None:
        """Gives back the pages of a stretch; the system keeps them cached."""

def first_shrunk(mappings: Sequence[Mapping], by_page: bool) -> int | None:
    """
    The first of several files that is shorter than when it was mapped, if any. By page is quicker, and does not notice if only a part of the last page is gone.
    """

def enter_guard() -> int:
    """
    From now on this thread survives that a mapped file is cut while it is read: what is missing reads as zeros. How often that has happened so far.
    """

def leave_guard() -> int:
    """The end of it, in the same thread. How often it has happened so far."""

def truncated_file(since: int) -> tuple[bytes, int, int] | None:
    """
    Name, size and end of the mapped file that was found to be cut last, but not before there were so many cuts.
    """

def reserve(file: int, offset: int, size: int) -> bool:
    """
    Reserves room on the disk behind the end of a file; False if that cannot be had.
    """

def will_need(mapped: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], row_bytes: int, rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> bool:
    """
    Asks for rows of a mapped file that are not in memory; whether there were such.
    """

def will_need_records(files: Files, owners: numpy.typing.NDArray[numpy.uint32] | None, rows: numpy.typing.NDArray[numpy.int64]) -> bool:
    """
    The same for records of several files, each with its number in the file its owner says.
    """

class FaultCode(enum.Enum):
    header_cut = 1

    length_crc = 2

    data_cut = 3

    data_crc = 4

    malformed = 5

    too_large = 6

    missing = 7

    wrong_kind = 8

    wrong_count = 9

    wrong_size = 10

    not_one_string = 11

    not_multiple = 12

    out_of_range = 13

    flat_not_nested = 14

    changed = 15

    no_features = 16

    unknown_feature = 17

class Fault:
    """What is wrong with a record, and where."""

    @property
    def code(self) -> FaultCode: ...

    @property
    def row(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def column(self) -> int | None: ...

    @property
    def expected(self) -> int: ...

    @property
    def found(self) -> int: ...

class Scan:
    """Records that lie end to end."""

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def records(self) -> int: ...

    @property
    def min_length(self) -> int: ...

    @property
    def max_length(self) -> int: ...

    @property
    def first_length(self) -> int: ...

    @property
    def mark_rows(self) -> numpy.typing.NDArray[numpy.uint64]: ...

    @property
    def mark_offsets(self) -> numpy.typing.NDArray[numpy.uint64]: ...

    @property
    def fault(self) -> Fault | None: ...

HEADER_SIZE: int = 12

FRAME_SIZE: int = 16

MAX_MESSAGE_SIZE: int = 2147483647

NO_LIMIT: int = 18446744073709551615

def crc32c(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], crc: int = 0) -> int:
    """CRC32C of the data, continued from `crc`."""

def crc32c_paths() -> list[str]:
    """The CRC implementations this CPU can run, best first."""

class Files:
    """Files whose rows are read together."""

    def __init__(self) -> None: ...

    def __len__(self) -> int: ...

    def add(self, file: numpy.typing.NDArray[numpy.uint8], stride: int, mark_rows: numpy.typing.NDArray[numpy.uint64], mark_offsets: numpy.typing.NDArray[numpy.uint64], lead: int = 0) -> None:
        """
        Adds a file, whose records are `stride` bytes apart, the first longer by `lead` bytes, or found by marks.
        """

def locate_in(files: Files, owners: numpy.typing.NDArray[numpy.uint32] | None, rows: numpy.typing.NDArray[numpy.int64], threads: int) -> tuple[numpy.typing.NDArray[numpy.uint64], Fault | None]:
    """
    Offsets of rows of several files, each with its number in the file its owner says, or in the only one.
    """

def scan(file: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], begin: int, stop: int, limit: int, every: int, verify: bool, threads: int) -> Scan:
    """Records that begin in [begin, stop), with a mark at every `every`-th."""

def find_record(file: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], begin: int, stop: int) -> int:
    """
    Offset of the first sound record that begins in [begin, stop), else `stop`.
    """

def locate(file: numpy.typing.NDArray[numpy.uint8], mark_rows: numpy.typing.NDArray[numpy.uint64], mark_offsets: numpy.typing.NDArray[numpy.uint64], rows: numpy.typing.NDArray[numpy.int64], threads: int) -> tuple[numpy.typing.NDArray[numpy.uint64], Fault | None]:
    """Offsets of the records with these numbers."""

def frame(records: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]]) -> bytes:
    """The records framed, end to end."""

def pad_rows(values: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], fill: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], fill_left: bool, keep_last: bool, out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """
    Writes ragged rows of items, each as large as fill, as rows of one length.
    """

def end_with_parent(process: int) -> bool:
    """
    Kill this process when `process` is no longer its parent, whatever it does then.

    Returns False if the thread that watches cannot be started.
    """

class Dtype(enum.Enum):
    bytes = 0

    opaque = 1

    bool = 2

    int8 = 3

    int16 = 4

    int32 = 5

    int64 = 6

    uint8 = 7

    uint16 = 8

    uint32 = 9

    uint64 = 10

    float32 = 11

    float64 = 12

class Kind(enum.Enum):
    none = 0

    bytes = 1

    float = 2

    int64 = 3

class Place(enum.Enum):
    any = 0

    features = 1

    lists = 2

class Columns:
    """What to read from each record."""

    def __init__(self) -> None: ...

    def __len__(self) -> int: ...

    def add(self, key: str, place: Place, dtype: Dtype, itemsize: int, ragged: int, count: int, step: int, fill: bytes | None, kind: Kind = Kind.none) -> None: ...

    @property
    def watch(self) -> bool:
        """Whether to count the features that no column reads."""

    @watch.setter
    def watch(self, arg: bool, /) -> None: ...

class FeatureFacts:
    @property
    def rows(self) -> int: ...

    @property
    def kinds(self) -> list[tuple[Kind, int]]:
        """The kinds seen, each with the first row that has it."""

    @property
    def values(self) -> tuple[int, int] | None: ...

    @property
    def steps(self) -> tuple[int, int] | None: ...

    @property
    def string_size(self) -> tuple[int, int] | None: ...

    @property
    def string_size_bits(self) -> int: ...

class Facts:
    """What the records seen hold."""

    @property
    def rows(self) -> int: ...

    @property
    def not_example(self) -> Fault | None: ...

    @property
    def features(self) -> list[tuple[bool, str, FeatureFacts]]:
        """(in the feature lists, key, facts), sorted."""

class Slot:
    """Where a payload lies in every record."""

    def __init__(self) -> None: ...

    @property
    def offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def kind(self) -> Kind: ...

class Pad:
    """How rows of a ragged column become rows of one length."""

    def __init__(self, width: int | None, multiple: int, fill: bytes, fill_left: bool, keep_last: bool) -> None: ...

def decode(files: Files, offsets: numpy.typing.NDArray[numpy.uint64], owners: numpy.typing.NDArray[numpy.uint32] | None, columns: Columns, verify: bool, threads: int, dense: list[numpy.typing.NDArray[numpy.uint8] | None], empty: Callable[[int], numpy.typing.NDArray[numpy.uint8]], pads: Sequence[Pad | None] = [], rows: int = 0) -> tuple[list[Decoded | Padded | None], Fault | None, list[Unknown], list[tuple[bytes, int]]]:
    """
    The records at these offsets, each of the file its owner says, or of the only one, as columns. Dense numeric columns are written into `dense`; the others come back as (values, outer, steps, strings), the values in an array that empty() makes; those with a pad as (arrays of `rows` rows each, outer). Then the features that no column reads, if the columns watch for them: (in the feature lists, key, kind, rows, first row). Last, the descriptions that records begin with: (content, first row).
    """

def check_rows(file: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: Columns, verify: bool, threads: int) -> tuple[list[Fault], list[tuple[bytes, int]]]:
    """
    The faults of the records that do not decode, and the descriptions that records begin with: (content, first row).
    """

def inspect(file: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], verify: bool) -> Facts:
    """Facts about the features of these records."""

def find_slots(file: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], offset: int, columns: Columns) -> list[Slot]:
    """Where each column's payload lies in one record."""

def check_slots(file: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], first: int, stride: int, lead: int, count: int, columns: Columns, slots: Sequence[Slot], verify: bool, threads: int) -> tuple[list[bool], Fault | None, list[tuple[bytes, int]]]:
    """
    Whether each column lies at its slot in all these records, the first fault, and the descriptions that records begin with: (content, first row).
    """

def permute(n: int, keys: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], back: bool, numbers: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Replaces positions by rows of a random order of n, or back."""

def gather_rows(source: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], row_bytes: int, rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], threads: int) -> None:
    """Copies rows by number."""

class Batch:
    """Columns to be written; add them sorted by key, lists last."""

    def __init__(self, rows: int) -> None: ...

    def add_dense(self, key: str, kind: Kind, in_lists: bool, dtype: Dtype, itemsize: int, count: int, step: int, values: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), device='cpu', writable=False)]) -> None: ...

    def add_ragged(self, key: str, kind: Kind, in_lists: bool, dtype: Dtype, itemsize: int, ragged: int, count: int, step: int, values: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], outer: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, steps: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, strings: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None) -> None: ...

    def encode(self, align: int, threads: int, lead: bytes = b'') -> tuple[numpy.typing.NDArray[numpy.uint8], numpy.typing.NDArray[numpy.uint64], Fault | None]: ...
