"""SourceFacts: what a source knows about its rows, apart from the rows themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from recmap.errors import DataError
from recmap.model.batch import RowArray
from recmap.model.field import Field
from recmap.model.remembered import Remembered


@dataclass(frozen=True)
class Skipped:
    """A record that was left out. If ``inflated``, ``byte`` is a place in the inflated data."""

    file: str
    record: int
    byte: int
    reason: str
    inflated: bool = False

    def __str__(self) -> str:
        inflated = " of the inflated data" if self.inflated else ""
        place = f"record {self.record:,} at byte {self.byte:,}{inflated}"
        return f"{self.file}: {place}: {self.reason}"


def each_alone() -> int:
    """Return the ``chunk_rows`` of a source that reads any row alone."""
    return 1


def unknown_row(above: int) -> None:
    """Return the ``largest_row`` of a source that does not know it."""
    del above


class LargestChunk(NamedTuple):
    """The bytes that must be decoded to read any row, and where, if that is only in one place."""

    size: int = 0
    place: str = ""


#: What rows of several files must agree on to be of one dataset, such as units, by what it is.
Meaning = Mapping[str, str | bytes]


#: What else the values of a column may be read as: anything if all are null, small decimals as text
#: and large ones, which are text, as numbers.
Alternative = Literal["any", "text", "number"]


class Checksums(Protocol):
    """The checksums of a file, as far as ``read`` and ``gather`` do not verify them."""

    def check(self) -> None:
        """Verify those that were not verified yet, such as those of mapped columns."""
        ...

    def trust(self) -> None:
        """Skip those before the first read: they were verified when the file was last opened."""
        ...


class NotedType(NamedTuple):
    """A type of another library as a file notes it: its name, and what it is made with."""

    package: str
    text: str
    parts: Sequence[Any] = ()
    ordered: bool = False


class BadRecords(Sequence[Skipped]):
    """The records that are left out; they are found when somebody first needs to know."""

    def __init__(self, find: Callable[[], Sequence[Skipped]]) -> None:
        self._found = Remembered(lambda _: find(), 0, only=True)

    @property
    def found(self) -> bool:
        """Whether they have been looked for."""
        return self._found.known(0) is not None

    def find(self) -> Sequence[Skipped]:
        """Look for them, once."""
        return self._found.at(0)

    def __len__(self) -> int:
        return len(self.find())

    def __getitem__(self, number: Any) -> Any:
        return self.find()[number]


#: Begins the name of the Arrow type that pandas stores periods as.
PANDAS_PERIODS = "extension<pandas.period"


class IndexLevel(NamedTuple):
    """One level of the index of a DataFrame: its name, and what its values do not tell.

    ``step`` is that of a range, ``freq`` the frequency of dates.
    """

    name: str | float | None
    step: int | None = None
    freq: str | None = None


@dataclass(frozen=True)
class TableType:
    """The type of a column in a table of another library, and the field that it was read as.

    ``dtype`` is that of pandas, polars or pyarrow, the class of the objects in a column, or what a
    file notes of these. If there is a ``level``, the column is one of the index of a DataFrame.
    """

    field: Field
    dtype: Any
    level: IndexLevel | None = None

    def fits(self, field: Field) -> bool:
        """Return whether a column may still be of that type: nothing has changed its field."""
        return field.without_nulls() == self.field.without_nulls()

    @property
    def coded(self) -> bool:
        """Whether numbers are only codes of values of the type, as those of periods are."""
        text = self.dtype.text if isinstance(self.dtype, NotedType) else str(self.dtype)
        return text.startswith(("period[", PANDAS_PERIODS))


@dataclass(frozen=True)
class SourceFacts:
    """What a source knows about its rows. A wrapper returns ``with_facts(source.facts, ...)``.

    Facts that take a while to find out are functions. Ask for facts once per pass, not once per
    batch: a source of many files has to collect them.
    """

    #: The format, as ``info()`` shows it.
    format: str = "rows"
    #: The files, in the order of their rows.
    files: list[str] = field(default_factory=list)
    #: Where the schema comes from, in words.
    origin: str = "from the file"
    #: Returns the number of rows that are decoded together; 1 if any row can be read alone. If that
    #: is all of them, and they are not counted yet, it is more than there are. To find out may take
    #: reading some of them.
    chunk_rows: Callable[[], int] = each_alone
    #: Returns the largest chunk, which may take reading some of the file, too.
    largest_chunk: Callable[[], LargestChunk] = LargestChunk
    #: Whether rows are stored so that they are fast to read only in order. Unlike ``chunk_rows``,
    #: this is the same wherever the files are: orders depend on it.
    stored_in_order: bool = False
    #: Whether reading all rows in order reads every row of the files in file order.
    in_order: bool = True
    #: Whether rows can be read only once, in order.
    once: bool = False
    #: Whether every read returns new arrays, which the caller may keep and write to.
    owns_rows: bool = False
    #: Whether rows are fetched from a store. A process that is forked cannot do that.
    remote: bool = False
    #: Whether ``read_padded`` is worth trying.
    can_pad: bool = False
    #: Whether ``row_sizes`` looks at no rows, so that it takes far less time than to read them.
    sized: bool = False
    #: Whether rows never end, as after ``repeat()``.
    endless: bool = False
    #: Whether rows can be read in order before they are counted: ``up_to`` looks no further than it
    #: is asked to, and what it has looked at is read next without going back.
    open_ended: bool = False
    #: Whether it is known which rows there are; otherwise, the first read has to find out.
    searched: bool = True
    #: Whether rows differ from epoch to epoch, as after ``shuffle()``.
    varies: bool = False
    #: The user's functions that reading calls.
    functions: Sequence[Any] = ()
    #: The compression of each file that can only be read from the beginning.
    compressed_files: Mapping[str, str] = field(default_factory=dict)
    #: The records that ``errors="skip"`` left out.
    skipped: Sequence[Skipped] = ()
    #: The names of the classes, for columns of class numbers.
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: What a TFDS folder says about columns, to keep it in another.
    descriptions: Mapping[str, Any] = field(default_factory=dict)
    #: What columns were in the table that they come from, where that says more than their fields.
    table_types: Mapping[str, TableType] = field(default_factory=dict)
    #: The columns of an open file that may be read as another type, if other files have that.
    alternatives: Mapping[str, Alternative] = field(default_factory=dict)
    #: The index of the DataFrame that the rows are, if they are all of its rows in their order: one
    #: of pandas, or a source whose columns are its levels.
    table_index: Any = None
    #: Returns what other rows must agree on to be of one dataset with these.
    meaning: Callable[[], Meaning] = dict
    #: The checksums of the files.
    checksums: Sequence[Checksums] = ()
    #: The TFRecord files that the rows come from, so that several readers can index them at once.
    record_files: Sequence[Any] = ()
    #: Returns the number of rows before the damage, after ``len()`` has raised DataError for it, or
    #: None if no damage was found; None if damage makes the whole source unreadable.
    rows_before_damage: Callable[[], int | None] | None = None
    #: Counts the consecutive ones of some rows before a bad one; None if that is unknown.
    sound_rows: Callable[[RowArray], int] | None = None
    #: Returns the number and size of the largest row if it takes more than so many bytes of memory.
    #: Returns None if it is smaller, or if finding it would be slow.
    largest_row: Callable[[int], tuple[int, int] | None] = unknown_row
    #: Opens the same rows with the format's own library; None if they are read by no other.
    reference: Callable[[], Any] | None = None
    #: A digest of what was read of files that are not compared as a whole, such as labels.
    digest: str = ""

    def after_functions(self) -> SourceFacts:
        """Return these facts after functions of the user, which may have made other values."""
        types = {name: each for name, each in self.table_types.items() if not each.coded}
        return with_facts(self, table_types=types, labels={}, meaning=dict)

    @property
    def calls_user_code(self) -> bool:
        """Whether reading calls the user's functions, which not every thread may do."""
        return bool(self.functions)

    def row_name(self, row: int) -> str:
        """Say which row of the files this is, for error messages."""
        more = f" and {len(self.files) - 1:,} more" if len(self.files) > 1 else ""
        return f"row {row:,} of {self.files[0]}{more}" if self.files else f"row {row:,}"


def with_facts(facts: SourceFacts, **changes: Any) -> SourceFacts:
    """Return facts of which some are changed.

    To ``replace`` some of thirty facts took a sixth of the time of a loop over few rows.
    """
    made = object.__new__(SourceFacts)
    known = made.__dict__
    known.update(facts.__dict__)
    assert known.keys() >= changes.keys(), changes
    known.update(changes)
    return made


def check_meanings(files: Sequence[str], meanings: Sequence[Meaning], remedy: str) -> None:
    """Raise if what some files mean differs from what the first one means."""
    first, *others = meanings
    for file, found in zip(files[1:], others, strict=True):
        for what, meant in found.items():
            if what in first and first[what] != meant:
                both = f" ({meant!r}, not {first[what]!r})" if isinstance(meant, str) else ""
                raise DataError(
                    f"{file}: {what} are not those of {files[0]}{both}, so their rows do not "
                    f"belong together; {remedy}",
                    file=file,
                )
