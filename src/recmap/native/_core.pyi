"""
The native core: TFRecord framing, tf.train.Example as columns, LZF, resizing.
"""

from collections.abc import Callable, Iterator, Sequence
import enum
from typing import Annotated, Any

import numpy
import numpy.typing
from numpy.typing import NDArray


from typing import TypeAlias
Decoded: TypeAlias = tuple[numpy.typing.NDArray[numpy.uint8], numpy.typing.NDArray[numpy.int64] | None, numpy.typing.NDArray[numpy.int64] | None, numpy.typing.NDArray[numpy.int64] | None]
Padded: TypeAlias = tuple[numpy.typing.NDArray[numpy.uint8], list[tuple[int, int]], numpy.typing.NDArray[numpy.int64]]
Unknown: TypeAlias = tuple[bool, bytes, Kind, int, int]

class ArrowField:
    """The type of a column as Arrow describes it."""

    def __init__(self, format: str, name: str, metadata: Sequence[tuple[bytes, bytes]], children: Sequence[ArrowField]) -> None: ...

class ArrowColumn:
    """Memory laid out as Arrow lays out a column."""

    def __init__(self, length: int, null_count: int, buffers: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None], children: Sequence[ArrowColumn]) -> None:
        """
        The arrays stay alive as long as the column, or whoever it is handed to.
        """

def export_arrow_schema(field: ArrowField) -> object:
    """Return a capsule for __arrow_c_schema__."""

def export_arrow_stream(field: ArrowField, batches: Iterator[ArrowColumn]) -> object:
    """
    Return a capsule for __arrow_c_stream__. `batches` gives structs of columns.
    """

class ArrowType:
    """The type of a column of another library."""

    @property
    def format(self) -> bytes: ...

    @property
    def name(self) -> bytes: ...

    @property
    def metadata(self) -> list[tuple[bytes, bytes]]: ...

    @property
    def nullable(self) -> bool: ...

    @property
    def children(self) -> list[ArrowType]: ...

    @property
    def dictionary(self) -> ArrowType | None: ...

class ArrowArray:
    """A column of another library, kept alive."""

    @property
    def length(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def null_count(self) -> int: ...

    @property
    def n_buffers(self) -> int: ...

    @property
    def n_children(self) -> int: ...

    @property
    def dictionary(self) -> ArrowArray | None: ...

    def child(self, number: int) -> ArrowArray: ...

    def has_buffer(self, number: int) -> bool: ...

    def buffer(self, number: int, size: int) -> numpy.typing.NDArray[numpy.uint8]:
        """
        Return the first `size` bytes of a buffer, as a view. Nobody can check that it has so many.
        """

class ArrowStream:
    """Batches of another library."""

    def __init__(self, capsule: object) -> None: ...

    def type(self) -> ArrowType: ...

    def next(self) -> ArrowArray | None:
        """Return the next batch, or None at the end."""

def import_arrow_array(schema: object, array: object) -> tuple[ArrowType, ArrowArray]:
    """Take over the array of two capsules."""

def import_arrow_schema(schema: object) -> ArrowType:
    """Take over the schema of a capsule."""

def read_arrow_views(views: numpy.typing.NDArray[numpy.uint8], buffers: list[numpy.typing.NDArray[numpy.uint8]], nulls: numpy.typing.NDArray[numpy.uint8] | None) -> tuple[numpy.typing.NDArray[numpy.uint8], numpy.typing.NDArray[numpy.int64], int | None]:
    """
    Return the bytes of strings in Arrow's view layout end to end, their offsets, and the number of the first string that lies outside of the buffers.
    """

def offsets_are_sound(offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], limit: int) -> bool:
    """Return whether offsets ascend from 0 or more to at most `limit`."""

class Memory:
    """
    Memory that is used again once the last array that looks into it is gone.
    """

    def __init__(self, size: int, locked: bool = False) -> None:
        """
        With `locked`, GPUs can copy from it by themselves, once prepare_to_lock_pages() has found one. Keep it until they are done.
        """

def prepare_to_lock_pages(gpu: int) -> bool:
    """
    Look for the GPU of this number. Return whether memory can be locked for it.
    """

def release_buffers() -> int:
    """
    Return memory that waits to be used again to the system. Return how many bytes.
    """

def most_kept_bytes() -> int:
    """Return the most bytes that wait to be used again."""

class CodecKind(enum.Enum):
    zlib = 0

    gzip = 1

    zstd = 2

    lz4 = 3

    hdf5_lz4 = 4

    blosc = 5

    lzf = 6

    shuffle = 7

    bitshuffle = 8

    fletcher32 = 9

    crc32c = 10

class ChunkCodec:
    """A codec that decode_chunks() undoes."""

    def __init__(self, kind: CodecKind, item_size: int = 1, block_items: int = 0, inner: CodecKind | None = None) -> None: ...

class ChunkPart:
    """The part of every row of an array that a chunk holds."""

    def __init__(self, axes: Sequence[tuple[int, int, int]], run: int, at: int, from_row: int, to_row: int, chunk_bytes: int) -> None: ...

class ChunkJob:
    """A chunk to decode, and where it goes."""

    def __init__(self, stored: bytes | numpy.typing.NDArray[numpy.uint8] | int, offset: int, size: int, mask: int, out: numpy.typing.NDArray[numpy.uint8], part: ChunkPart | None = None, rows: tuple[int, int, int] | tuple[numpy.typing.NDArray[numpy.int64], numpy.typing.NDArray[numpy.int64]] = (0, 0, 0)) -> None:
        """
        `stored` are the bytes, a descriptor of the file that has them, or the path of a file that is the chunk. Without `part`, the chunk fills `out`; with it, `rows` are the first row in the chunk, in `out`, and how many, or the numbers in both.
        """

def decode_chunks(codecs: Sequence[ChunkCodec], jobs: Sequence[ChunkJob], threads: int) -> list[int]:
    """
    Decode chunks and put them in their place. Return the numbers of those that failed.
    """

def use_codec_of(kind: CodecKind, library: str) -> bool:
    """Take a codec from a shared library. Return whether that is possible."""

def use_isal_of(library: str) -> bool:
    """
    Inflate with the ISA-L of a shared library. Return whether that is possible.
    """

def use_zlib_ng_of(library: str) -> bool:
    """
    Inflate with the zlib-ng of a shared library. Return whether that is possible.
    """

def inflate_parts(parts: Sequence[tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], int, bytes, Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], int, int]], threads: int) -> int:
    """
    Inflate parts of a stream: the bytes that are left of it, how many bits are unused of the byte before, with which they begin if any are, the plain bytes before, the room for those that follow, and the CRC-32C of all before and with them. Return how many there are before the first unsound one.
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

class RowLayout:
    """How the values of one row of a column are laid out."""

    def __init__(self, dtype: Dtype, itemsize: int, ragged: int, count: int, step: int, text: bool = False) -> None:
        """
        `ragged` axes come first, below them lie `count` values; a step of a feature list that fills a row without ragged axes has `step` values. Strings of `text` must be UTF-8.
        """

class Columns:
    """The columns to read from each record."""

    def __init__(self) -> None: ...

    def __len__(self) -> int: ...

    def add(self, key: str, place: Place, layout: RowLayout, fill: bytes | None, kind: Kind = Kind.none, nullable: bool = False) -> None:
        """
        Add a column. `kind` is the only list that may hold it, unless it is none. Without ragged axes, a `nullable` one needs a fill, for the rows that are null.
        """

    @property
    def count_unknown(self) -> bool:
        """Whether to count the features that no column reads."""

    @count_unknown.setter
    def count_unknown(self, arg: bool, /) -> None: ...

def cut_batches(costs: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], limit: float, most_rows: int, padded: bool, first: int, open: tuple[int, float, float]) -> tuple[object, tuple[int, float, float]]:
    """
    Return the rows that begin a new batch, and the rows, cost and largest cost of the last.
    """

def cut_buckets(costs: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], buckets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], count: int, limit: float, most_rows: int, padded: bool) -> tuple[object, object]:
    """
    Return the rows batch by batch, where those of a batch share a bucket, and where each batch ends.
    """

class Pad:
    """How the rows of a ragged column become rows of one length."""

    def __init__(self, width: int | None, multiple: int, fill: bytes, fill_left: bool, keep_last: bool) -> None:
        """
        `width` is in items; without it, the longest row, rounded up to `multiple`. `fill` is one item.
        """

class DecodeTarget:
    """Where decoded values go."""

    def __init__(self, dense: list[numpy.typing.NDArray[numpy.uint8] | None], allocate: Callable[[int], numpy.typing.NDArray[numpy.uint8]], pads: Sequence[Pad | None] = [], rows_per_array: int = 0, nulls: list[numpy.typing.NDArray[numpy.uint8] | None] = []) -> None:
        """
        `dense` has an array for each column of dense numbers; allocate() makes those of the others. A column with a pad gets an array for every `rows_per_array` rows. A nullable one needs a mask in `nulls`, all 0, which becomes 1 where a row is null.
        """

def decode(records: Records, columns: Columns, target: DecodeTarget, verify: bool, threads: int, steps: numpy.typing.NDArray[numpy.int64] | None = None, stepped: Sequence[bool] = []) -> tuple[list[Decoded | Padded | None], Fault | None, list[Unknown], list[tuple[bytes, int]]]:
    """
    Decode records into columns.

    With `steps`, decode one step of each record: its part of the lists of the columns that are `stepped`. Return for each column None if its values are in `target.dense`, (values, outer, steps, strings), or if it is padded (values, (start in bytes, width in items) of each array, outer); the first fault; the features that no column reads, if they are counted: (in the feature lists, key, kind, rows, first row); and the descriptions that records begin with: (content, first row).
    """

def check_records(records: Records, columns: Columns, verify: bool, threads: int) -> tuple[list[Fault], list[tuple[bytes, int]]]:
    """
    Return the faults of the records that do not decode, and the descriptions that records begin with: (content, first row).
    """

def draw_by_slots(slots: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], key: int, positions: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')], threads: int = 1) -> None:
    """Replace positions by the rows that an alias table draws there."""

class RaggedOffsets:
    """Where the rows, steps and strings of a column begin and end."""

    def __init__(self, outer: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, steps: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, strings: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None) -> None:
        """
        Each has one entry more than the column has such things, or is None if it has none.
        """

class Batch:
    """Columns to write. Add them sorted by key, feature lists last."""

    def __init__(self, rows: int) -> None: ...

    def add_dense(self, key: str, kind: Kind, in_lists: bool, layout: RowLayout, values: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), device='cpu', writable=False)], nulls: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None:
        """
        Add a column of numbers without ragged axes. Rows are left out where `nulls` is not 0.
        """

    def add_ragged(self, key: str, kind: Kind, in_lists: bool, layout: RowLayout, values: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: RaggedOffsets, nulls: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None:
        """Add a column of strings, or with ragged axes."""

    def encode(self, align: int, threads: int, lead: bytes = b'') -> tuple[numpy.typing.NDArray[numpy.uint8], numpy.typing.NDArray[numpy.uint64], Fault | None]:
        """
        Return the framed records, the offset of each and of their end, and the first fault. `lead` is put before the features of the first record.
        """

def end_with_parent(process: int) -> bool:
    """
    Kill this process as soon as `process` is no longer its parent, whatever it is doing.

    Return False if the thread that watches for that cannot be started.
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

    not_utf8 = 15

    changed = 16

    no_features = 17

    unknown_feature = 18

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

HEADER_SIZE: int = 12

FRAME_SIZE: int = 16

MAX_MESSAGE_SIZE: int = 2147483647

def crc32c(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], crc: int = 0) -> int:
    """Return the CRC32C of the data, continued from `crc`."""

def crc32c_paths() -> list[str]:
    """
    Return the names of the CRC implementations this CPU can run, best first.
    """

def frame(records: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]]) -> bytes:
    """Return the records framed, end to end."""

def gather_rows(source: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], row_bytes: int, rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], threads: int, shift: int = 0, shifted: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')] | None = None) -> None:
    """Copy rows by number, and the same, `shift` bytes later, to `shifted`."""

def gather_offsets(offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> object:
    """
    Return the offsets of rows by number. Raise IndexError if there is no such row.
    """

def gather_ragged(values: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], item: int, to: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], threads: int) -> None:
    """
    Copy ragged rows by number, of items of `item` bytes, to the offsets `to` in the output.
    """

def prefetch_rows(mapped: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], row_bytes: int, rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> bool:
    """
    Ask the system for rows of a mapped array that are not in memory. Return whether there were any.
    """

def gather_boxes(sources: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]], owners: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], axes: Sequence[tuple[int, int, int]], run: int, out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], stride: int, at: int, threads: int) -> None:
    """
    Copy boxes of one shape, each to `at` in its row of `stride` bytes. An axis is a count and the bytes between its parts, before and after; offsets below 0 are left out.
    """

def prefetch_boxes(sources: Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]], owners: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], axes: Sequence[tuple[int, int, int]], run: int) -> bool:
    """
    Ask the system for boxes of mapped files that are not in memory. Return whether there were any.
    """

MAX_MEMBER_SIZE: int = 524288

def member_size(head: bytes) -> int | None:
    """
    Return the size that the gzip member states which begins with these bytes; None if it states none, or is too large to be inflated at once.
    """

def find_members(stored: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], most: int) -> list[tuple[int, int]]:
    """
    Return where the members end that `stored` begins with and that state their size, in `stored` and in the plain bytes, of which there are `most` at most.
    """

def inflate_members(stored: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Sequence[tuple[int, int]], out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], threads: int) -> int:
    """
    Inflate members into `out`. Return how many there are before the first unsound one.
    """

class FeatureFacts:
    """What the records seen hold under one key."""

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

def inspect(file: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], verify: bool) -> Facts:
    """Return facts about the features of these records."""

def use_jpeg_of(library: str) -> bool:
    """
    Take libjpeg-turbo from a shared library. Return whether that is possible.
    """

def read_jpeg_header(data: bytes) -> tuple[int, int, bool] | None:
    """
    Return the height and width of a JPEG, and whether it is grey or YCbCr.
    """

def decode_jpeg(data: bytes, by: int, corner: tuple[int, int], out: numpy.typing.NDArray[numpy.uint8]) -> bool:
    """
    Fill `out` with a part of a JPEG, at a `by`-th of its size; return whether it is sound.
    """

class Files:
    """Files whose records are read together."""

    def __init__(self) -> None: ...

    def __len__(self) -> int: ...

    def add(self, file: numpy.typing.NDArray[numpy.uint8], stride: int = 0, anchor_rows: numpy.typing.NDArray[numpy.uint64] | None = None, anchor_offsets: numpy.typing.NDArray[numpy.uint64] | None = None, lead: int = 0) -> None:
        """
        Add a file whose records are `stride` bytes apart, the first longer by `lead` bytes, or are reached from anchors.
        """

class Records:
    """Records of one or more files, by offset."""

    def __init__(self, files: Files, offsets: numpy.typing.NDArray[numpy.uint64], owners: numpy.typing.NDArray[numpy.uint32] | None = None) -> None:
        """
        `owners` has the number of each record's file, unless all lie in the first.
        """

    @staticmethod
    def of_file(file: numpy.typing.NDArray[numpy.uint8], offsets: numpy.typing.NDArray[numpy.uint64]) -> Records:
        """Return records of one file."""

    @staticmethod
    def strided(file: numpy.typing.NDArray[numpy.uint8], stride: int, lead: int, first: int, count: int) -> Records:
        """
        Return one or more consecutive records of a file whose records are `stride` bytes apart, the first longer by `lead` bytes.
        """

    def head(self, count: int) -> Records:
        """Return the first `count` of them."""

    def __len__(self) -> int: ...

def locate(files: Files, owners: numpy.typing.NDArray[numpy.uint32] | None, rows: numpy.typing.NDArray[numpy.int64], threads: int) -> tuple[numpy.typing.NDArray[numpy.uint64], Fault | None]:
    """
    Return the offsets of rows, each numbered within the file of its owner, or within the first.
    """

def divide_among_files(starts: numpy.typing.NDArray[numpy.int64], rows: numpy.typing.NDArray[numpy.int64], threads: int) -> tuple[numpy.typing.NDArray[numpy.int64], numpy.typing.NDArray[numpy.uint32]]:
    """
    Return the number of each row within its file, and the number of the file. `starts` has the first row of each file and ends with the number of all rows.
    """

def prefetch_records(files: Files, owners: numpy.typing.NDArray[numpy.uint32] | None, rows: numpy.typing.NDArray[numpy.int64]) -> bool:
    """
    Ask the system for rows of mapped files that are not in memory. Return whether there were any.
    """

class LzfFault(enum.Enum):
    none = 0

    cut = 1

    too_long = 2

    too_short = 3

    before_start = 4

LZF_MOST_GROWTH: int = 88

def lzf_expand(stream: numpy.typing.NDArray[numpy.uint8], out: numpy.typing.NDArray[numpy.uint8]) -> tuple[LzfFault, int]:
    """
    Fill `out` from an LZF stream. Return what is wrong with it, and how many bytes it made.
    """

class Mapping:
    """A file mapped read-only, which holds no descriptor."""

    def __init__(self, path: bytes, name: bytes) -> None:
        """Map a file. `name` is what users call it."""

    @property
    def contents(self) -> numpy.typing.NDArray[numpy.uint8]:
        """The whole file, as a view that keeps it mapped."""

    def current_size(self) -> int:
        """Return how much of the file is still there, at most what was mapped."""

    def is_unchanged(self, since: int) -> bool:
        """
        Return whether the file has its size and was last changed at this time, in nanoseconds. One that was removed or replaced counts as unchanged.
        """

    def load_ahead(self, begin: int, end: int) -> None:
        """
        Note that a span is about to be read. If reads are in order, load pages that follow.
        """

    def release_pages(self, begin: int, end: int) -> None:
        """
        Unmap the pages of a span from this process. The system keeps them cached.
        """

    def begin_scattered_reads(self) -> None:
        """
        Let the system read only the pages that are touched, and nothing around them.
        """

    def end_scattered_reads(self) -> None:
        """End what begin_scattered_reads() began."""

def first_shrunk(mappings: Sequence[Mapping], by_page: bool) -> int | None:
    """
    Return the number of the first file that is shorter than when it was mapped, if any. `by_page` is quicker, but does not notice if only a part of the last page is gone.
    """

def enter_guard() -> int:
    """
    Let this thread survive the truncation of a mapped file that it reads: from now on, missing pages read as zeros. Return how many truncations were seen so far.
    """

def leave_guard() -> int:
    """
    End what enter_guard() began, on the same thread. Return how many truncations were seen so far.
    """

def last_found() -> int:
    """
    Return the number of the last truncation that this thread, or one that helped it, ran into.
    """

def truncated_files(since: int) -> list[tuple[bytes, int, int, int]]:
    """
    Return name, size, end and number of the mapped files whose truncation was seen after the first `since`, and of those that are truncated but were not seen, with the number 0.
    """

def find_moments(values: numpy.typing.NDArray[Any], inner: int, counts: numpy.typing.NDArray[numpy.int64], sums: numpy.typing.NDArray[numpy.float64], limits: numpy.typing.NDArray[Any], step: int, places: numpy.typing.NDArray[numpy.uint32], drawn: numpy.typing.NDArray[Any]) -> None:
    """
    Count finite, NaN, infinite and negative infinite values of each channel, find the mean, the squared distances from it, the least and the greatest, and copy the values at the places that were drawn.
    """

def count_bytes(values: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], inner: int, counts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Add how often each byte occurs in each channel."""

def thin_lanes(rows: numpy.typing.NDArray[Any], first: numpy.typing.NDArray[numpy.uint8], step: int, out: numpy.typing.NDArray[Any]) -> None:
    """
    Sort each lane of 256 runs of lanes, and keep one of every ``step`` values of it.
    """

class RowFitter:
    """Finds the rows that short sequences are packed into."""

    def __init__(self, length: int, open_rows: int) -> None: ...

    def place(self, sizes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None) -> tuple[object, object, object, object]:
        """
        Return the row of each sequence, where it begins there, its number among those of the row, and the rows that are finished: number, items, and how many sequences were placed by then. With `ends`, the longest of each window are placed first.
        """

    def finish(self) -> object:
        """Close the rows that are open, and return how many items each has."""

    def restore(self, free: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], sequences: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """
        Open rows again, in which so many items are free, with so many sequences.
        """

def copy_sequences(values: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], starts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], to: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], sizes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], item: int, out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], threads: int) -> None:
    """Copy sequences of items of `item` bytes to places in the output."""

def number_items(to: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], sizes: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], numbers: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], positions: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], segments: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], threads: int) -> None:
    """
    Write the place of every item in its sequence, and the number of the sequence.
    """

def pad_rows(values: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], fill: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], fill_left: bool, keep_last: bool, out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """
    Write ragged rows as rows of one length. `fill` is one item; all have its size.
    """

def parquet_chunks(footer: numpy.typing.NDArray[numpy.uint8]) -> numpy.typing.NDArray[numpy.int64]:
    """
    Read the column chunks of a Parquet footer: for each a row of group, type, codec, values, size, begin, end, has_dictionary, text.
    """

def parquet_page(bytes: numpy.typing.NDArray[numpy.uint8]) -> tuple[int, int, int, int, int, int, int]:
    """
    Read the header of a Parquet page: its own size, kind, size, stored, values, rows, encoding.
    """

def count_zero_levels(levels: numpy.typing.NDArray[numpy.uint8], count: int, bits: int) -> int:
    """
    Count the zeros among the levels of a Parquet page; -1 if it has fewer levels.
    """

def snappy_front(stream: numpy.typing.NDArray[numpy.uint8], out: numpy.typing.NDArray[numpy.uint8]) -> int:
    """
    Fill `out` with the beginning of a Snappy stream. Return how many bytes were made.
    """

def permute(n: int, keys: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], back: bool, numbers: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')], threads: int = 1) -> None:
    """Replace positions by row numbers in a random order of n rows, or back."""

def resize_image(pixels: numpy.typing.NDArray[numpy.uint8], out: numpy.typing.NDArray[Any], values: numpy.typing.NDArray[Any] | None = None, box: tuple[int, int, int, int] | None = None, flip: bool = False, planes: bool = False) -> None:
    """
    Fill `out` with a resized image, or a box of it, its levels looked up in 256 values.
    """

def crop_images(images: numpy.typing.NDArray[numpy.uint8], rows: numpy.typing.NDArray[numpy.int64], boxes: numpy.typing.NDArray[numpy.int64], flips: numpy.typing.NDArray[numpy.uint8] | None, out: numpy.typing.NDArray[Any], values: numpy.typing.NDArray[Any] | None, planes: bool, threads: int) -> None:
    """Fill `out` with a box of each of some images, resized."""

def random_boxes(key: tuple[int, int], epoch: int, positions: numpy.typing.NDArray[numpy.int64], height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]) -> numpy.typing.NDArray[numpy.int64]:
    """
    Return a box of a random area and ratio for each row: top, left, height, width.
    """

def random_windows(key: tuple[int, int], epoch: int, positions: numpy.typing.NDArray[numpy.int64], height: int, width: int, box_height: int, box_width: int) -> numpy.typing.NDArray[numpy.int64]:
    """Return a box of this size in a random place for each row."""

def random_flips(key: tuple[int, int], epoch: int, positions: numpy.typing.NDArray[numpy.int64]) -> numpy.typing.NDArray[numpy.uint8]:
    """
    Return 1 for each row whose image is to be mirrored, and 0 for the others.
    """

def reserve(file: int, offset: int, size: int) -> bool:
    """
    Reserve room on the disk behind the end of a file. Return False if that is not possible.
    """

NO_LIMIT: int = 18446744073709551615

class ScanRequest:
    """Which records to scan, and how."""

    def __init__(self, begin: int = 0, stop: int = 18446744073709551615, *, limit: int = 18446744073709551615, anchor_every: int = 0, verify: bool = False, threads: int = 1) -> None:
        """
        Records that begin in [begin, stop), at most `limit`, with an anchor at every `anchor_every`-th (0 for none). `verify` also checks the CRC of the data.
        """

class Scan:
    """Records that lie end to end."""

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int:
        """Where the next record would begin."""

    @property
    def records(self) -> int: ...

    @property
    def min_length(self) -> int: ...

    @property
    def max_length(self) -> int: ...

    @property
    def first_length(self) -> int: ...

    @property
    def anchor_rows(self) -> numpy.typing.NDArray[numpy.uint64]: ...

    @property
    def anchor_offsets(self) -> numpy.typing.NDArray[numpy.uint64]: ...

    @property
    def fault(self) -> Fault | None:
        """Why the scan ended early, if it did."""

def scan(file: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], request: ScanRequest) -> Scan:
    """Find records one by one."""

def find_record(file: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], begin: int, stop: int, *, verify: bool = True) -> int:
    """
    Return the offset of the first sound record that begins in [begin, stop), else `stop`. Unless `verify`, only its length is checked.
    """

def unshuffle(planes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], item_size: int, items: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Undo the shuffle filter of HDF5."""

def unbitshuffle(planes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], item_size: int, block_items: int, items: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Undo bitshuffle, in blocks of so many items."""

def fletcher32(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> int:
    """Return the checksum of HDF5."""

class Slot:
    """The place of a payload in every record."""

    def __init__(self) -> None: ...

    @property
    def offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def kind(self) -> Kind: ...

class UniformRecords:
    """Records of one size that fill a file end to end."""

    def __init__(self, count: int, stride: int, lead: int = 0) -> None:
        """The first is longer by `lead` bytes."""

def find_slots(file: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], offset: int, columns: Columns) -> list[Slot]:
    """Return where the payload of each column lies in one record."""

def check_slots(file: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], records: UniformRecords, columns: Columns, slots: Sequence[Slot], verify: bool, threads: int) -> tuple[list[bool], Fault | None, list[tuple[bytes, int]]]:
    """
    Return whether each column lies at its slot in all records, the first fault, and the descriptions that records begin with: (content, first row).
    """

class RowFault(enum.Enum):
    none = 0

    quote = 1

    carriage_return = 2

class TextFaultCode(enum.Enum):
    few_fields = 1

    many_fields = 2

    quote = 3

    unclosed = 4

    null = 5

    not_number = 6

    not_whole = 7

    out_of_range = 8

    inexact = 9

    not_bool = 10

    not_text = 11

    not_list = 12

    not_utf8_text = 13

    not_object = 14

    not_json = 15

    escape = 16

    duplicate = 17

    unknown_key = 18

    too_deep = 19

class TextFault:
    """What is wrong with a row of text, and where in the text."""

    @property
    def code(self) -> TextFaultCode: ...

    @property
    def row(self) -> int: ...

    @property
    def row_offset(self) -> int: ...

    @property
    def begin(self) -> int:
        """Where the value begins, or the key."""

    @property
    def end(self) -> int: ...

    @property
    def column(self) -> int:
        """-1 if it is of no column."""

    @property
    def found(self) -> int: ...

class RowSyntax:
    """How rows of text are told apart."""

    def __init__(self, quote: int = 0, delimiter: int = 0) -> None:
        """Without quotes (0), every line is a row."""

class RowState:
    """What is known at a place between two bytes of text."""

    def __init__(self) -> None: ...

    @property
    def quoted(self) -> bool: ...

class RowScan:
    """Rows that begin in a text."""

    @property
    def rows(self) -> int: ...

    @property
    def state(self) -> RowState: ...

    @property
    def fault(self) -> RowFault: ...

    @property
    def fault_offset(self) -> int: ...

    @property
    def anchor_rows(self) -> numpy.typing.NDArray[numpy.uint64]: ...

    @property
    def anchor_offsets(self) -> numpy.typing.NDArray[numpy.uint64]: ...

def scan_text_rows(text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], next: int, state: RowState, syntax: RowSyntax, step: int, threads: int) -> RowScan:
    """
    Find the rows that begin in a text, and the first of each step of bytes. `next` is the byte after it, -1 at the end of the file.
    """

def walk_text_rows(text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], syntax: RowSyntax, rows: int, most: int) -> tuple[int, int]:
    """
    Return how many rows have at most `most` bytes together, but at least one and at most `rows`, and where they end.
    """

def locate_text_rows(text: numpy.typing.NDArray[numpy.uint8], syntax: RowSyntax, offsets: numpy.typing.NDArray[numpy.uint64], steps: numpy.typing.NDArray[numpy.uint64]) -> tuple[numpy.typing.NDArray[numpy.uint64], numpy.typing.NDArray[numpy.uint64]]:
    """
    Return where rows begin and end, each so many rows after one that begins at an offset.
    """

def gather_text_rows(text: numpy.typing.NDArray[numpy.uint8], begins: numpy.typing.NDArray[numpy.uint64], ends: numpy.typing.NDArray[numpy.uint64]) -> tuple[numpy.typing.NDArray[numpy.uint8], numpy.typing.NDArray[numpy.uint64]]:
    """Return rows one after the other, and where each begins."""

LOOKS_EMPTY: int = 1

LOOKS_WHOLE: int = 2

LOOKS_DECIMAL: int = 4

LOOKS_EXPONENT: int = 8

LOOKS_OTHER: int = 16

LOOKS_QUOTED: int = 32

LOOKS_BARE: int = 64

class TextColumns:
    """The columns to parse from text."""

    def __init__(self) -> None: ...

    @property
    def strict(self) -> bool:
        """Whether keys that no column has are faults."""

    @strict.setter
    def strict(self, arg: bool, /) -> None: ...

    def add(self, path: Sequence[str], dtype: Dtype, *, text: bool, depth: int, given: bool, nullable: bool, null_items: bool, wanted: bool) -> None:
        """
        Add a column. `path` has the keys that lead to it, `depth` is that of its lists. `given` types allow more ways to write a number.
        """

def parse_csv(text: numpy.typing.NDArray[numpy.uint8], syntax: RowSyntax, columns: TextColumns) -> tuple[int, list[object], TextFault | None]:
    """
    Parse whole rows. Return their number, for each wanted column its values and its levels, and what is wrong, if anything.
    """

def parse_json_rows(text: numpy.typing.NDArray[numpy.uint8], columns: TextColumns) -> tuple[int, list[object], TextFault | None]:
    """
    Parse whole rows. Return their number, for each wanted column its values and its levels, and what is wrong, if anything.
    """

def first_csv_row(text: numpy.typing.NDArray[numpy.uint8], syntax: RowSyntax) -> list[bytes]:
    """Return the fields of the first row."""

def survey_csv(text: numpy.typing.NDArray[numpy.uint8], syntax: RowSyntax, columns: int) -> tuple[numpy.typing.NDArray[numpy.uint8], TextFault | None]:
    """
    Return how the fields of each column look, as bits, and what is wrong, if anything.
    """

def first_invalid_utf8(values: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> int:
    """Return the first row that is not UTF-8 by itself; -1 if all rows are."""
