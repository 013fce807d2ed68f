"""Small objects that are read one after another are fetched many at a time."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.dataset.dataset import opened_rows
from recmap.errors import AccessDeniedError, ObjectChangedError, StoreError
from recmap.model.fetching import Coming, Fetching
from recmap.store.fetch import LEAST_FETCH_MEMORY, bytes_ahead, fetching_within
from recmap.store.fetched_file import FetchedFile
from recmap.store.files_ahead import FilesAhead
from recmap.store.paths import expand
from tests.buckets import S3Bucket
from tests.faulty_proxy import Forever, Status
from tests.fetched import drop_ahead, held_bytes

# More files than objects that stay open.
FILES, ROWS = 26, 6
AT_ONCE = 6


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECMAP_CACHE_SIZE", "0")


def columns(rows: int, width: int) -> dict[str, Any]:
    values = np.random.default_rng(0).normal(size=(rows, width)).astype("f4")
    return {"x": values, "y": np.arange(rows)}


def put_files(
    bucket: S3Bucket,
    folder: Path,
    format: str,
    *,
    files: int = FILES,
    rows: int = ROWS,
    width: int = 16,
) -> str:
    """Write the same files to a folder and to a bucket, without indexes."""
    made: Any = columns(files * rows, width)
    format, _, compression = format.partition(".")
    options: dict[str, Any] = {"compression": "gzip"} if compression else {}
    rm.open(made["x"] if format == "npy" else made).save(
        f"{folder}/",
        format=format,
        shards=files,
        progress=False,
        options={"durable": False},
        **options,
    )
    written = sorted(folder.glob("data-*"))
    for other in set(folder.iterdir()) - set(written):
        other.unlink()
    for path in written:
        bucket.put(f"{folder.name}/{path.name}", path.read_bytes())
    return f"{bucket.url}/{folder.name}/"


def expect_many_at_once(bucket: S3Bucket) -> None:
    """Let the next requests wait for each other, so that a slow machine shows them together."""
    bucket.proxy.reset()
    bucket.proxy.enough_at_once, bucket.proxy.delay = AT_ONCE, 0.5


def expect_few_at_once(bucket: S3Bucket) -> None:
    bucket.proxy.reset()
    bucket.proxy.delay = 0.0


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def read_by_batches(ds: rm.Dataset) -> list[dict[str, Any]]:
    return list(ds.batches(5))


def read_slice(ds: rm.Dataset) -> list[dict[str, Any]]:
    return [ds[:]]


def read_in_pipeline(ds: rm.Dataset) -> list[dict[str, Any]]:
    return list(ds.batch(7))


def convert(ds: rm.Dataset) -> list[dict[str, Any]]:
    ds.save("converted.h5", overwrite=True, progress=False)
    converted = rm.open("converted.h5")
    return [converted[:]]


def joined(batches: list[dict[str, Any]]) -> dict[str, bytes]:
    names = batches[0]
    return {name: b"".join(batch[name].tobytes() for batch in batches) for name in names}


# Formats differ in how a file is fetched, and TFRecord also in how files follow each other.
FEW_WAYS = (read_by_batches, convert)
ALL_WAYS = (*FEW_WAYS, read_slice, read_in_pipeline)


@pytest.mark.parametrize(
    ("format", "ways"),
    [
        ("tfrecord", ALL_WAYS),
        ("tfrecord.gz", ALL_WAYS),
        ("npy", FEW_WAYS),
        ("npz", FEW_WAYS),
        ("parquet", ALL_WAYS),
        ("arrow", FEW_WAYS),
        ("hdf5", FEW_WAYS),
    ],
)
def test_every_way_to_read_in_order_has_many_requests_under_way(
    bucket: S3Bucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    format: str,
    ways: Sequence[Callable[[rm.Dataset], Any]],
) -> None:
    monkeypatch.chdir(tmp_path)
    url = put_files(bucket, tmp_path / "files", format)
    expected = joined([rm.open("files")[:]])
    proxy = bucket.proxy
    counted = format.startswith("tfrecord")
    expect_many_at_once(bucket)
    for way in ways:
        ds = rm.open(url, storage=bucket.storage)
        assert proxy.most_at_once >= AT_ONCE or way is not ways[0]  # some of it is kept
        expect_many_at_once(bucket) if counted else expect_few_at_once(bucket)
        assert len(ds) == FILES * ROWS
        assert (proxy.most_at_once >= AT_ONCE) == counted
        assert proxy.count() <= FILES
        expect_many_at_once(bucket)
        assert joined(way(ds)) == expected, way
        assert proxy.most_at_once >= AT_ONCE, way
        assert proxy.count() <= FILES + 12, way  # each object once, and a sample of 32 rows
        expect_few_at_once(bucket)
    expect_many_at_once(bucket)
    assert rm.verify(url, storage=bucket.storage).ok
    # Of a .npy file, only the header is checked, which was read before.
    assert proxy.most_at_once >= AT_ONCE or format == "npy"
    if counted:
        check_index(bucket, url, tmp_path / "files")


def check_index(bucket: S3Bucket, url: str, folder: Path) -> None:
    """Index many objects at a time, and read their records so."""
    expect_many_at_once(bucket)
    indexes = rm.index(url, storage=bucket.storage)
    assert bucket.proxy.most_at_once >= AT_ONCE
    assert indexes == [f"{url}.{name}.recmap" for name in names(folder)]
    expect_many_at_once(bucket)
    records = list(
        rm.tfrecord.records([f"{url}{name}" for name in names(folder)], storage=bucket.storage)
    )
    assert bucket.proxy.most_at_once >= AT_ONCE
    assert records == list(rm.tfrecord.records([folder / name for name in names(folder)]))


def test_bad_records_are_left_out_of_many_objects_at_a_time(
    bucket: S3Bucket, tmp_path: Path
) -> None:
    url = put_files(bucket, tmp_path / "files", "tfrecord")
    key = f"files/{names(tmp_path / 'files')[11]}"
    damaged = bytearray(bucket.get(key))
    damaged[-20] ^= 1
    bucket.put(key, bytes(damaged))
    expect_many_at_once(bucket)
    with pytest.warns(rm.errors.SkippedRecordsWarning):
        ds = rm.open(url, storage=bucket.storage, errors="skip")
    assert bucket.proxy.most_at_once >= AT_ONCE
    assert len(ds) == FILES * ROWS - 1


def test_objects_beyond_those_that_stay_open_are_fetched_ahead(
    bucket: S3Bucket, tmp_path: Path
) -> None:
    for number in range(FILES):
        np.save(tmp_path / "x.npy", np.full((2, 3), number))
        bucket.put(f"many/{number:02}.npy", (tmp_path / "x.npy").read_bytes())
    ds = rm.open(f"{bucket.url}/many/", storage=bucket.storage)
    expect_many_at_once(bucket)
    [found] = joined(list(ds.batches(3))).values()
    assert found == np.repeat(np.arange(FILES), 6).tobytes()
    assert bucket.proxy.most_at_once >= AT_ONCE
    assert bucket.proxy.count() <= FILES


def test_objects_of_a_list_are_looked_for_many_at_a_time(bucket: S3Bucket) -> None:
    for number in range(FILES):
        bucket.put(f"list/{number}.raw", b"")
    urls = [f"{bucket.url}/list/{number}.raw" for number in reversed(range(FILES))]
    expect_many_at_once(bucket)
    assert expand(urls, bucket.storage) == urls
    assert bucket.proxy.most_at_once >= AT_ONCE
    assert bucket.proxy.count() == bucket.proxy.count("HEAD") == FILES


def test_random_slices_and_batches_equal_those_of_local_files(
    bucket: S3Bucket, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    for end in (".tfrecord", ".tfrecord.gz", ".npz", ".parquet"):
        folder = tmp_path / f"random{end}"
        folder.mkdir()
        for number in range(5):
            path = folder / f"part-{number}{end}"
            rows = int(random.integers(1, 40))
            text = [b"x" * int(size) for size in random.integers(0, 300, rows)]
            made = {**columns(rows, 3), "text": np.array(text, object)}
            rm.open(made).save(path, progress=False, options={"durable": False})
            bucket.put(f"{folder.name}/{path.name}", path.read_bytes())
        local = rm.open(folder)
        total = len(local)
        ds = rm.open(f"{bucket.url}/{folder.name}/", storage=bucket.storage)
        size, start = int(random.integers(1, 50)), int(random.integers(0, total))
        stop = int(random.integers(start, total)) + 1
        assert joined_text([ds[start:stop]]) == joined_text([local[start:stop]])
        assert joined_text(ds.batches(size)) == joined_text(local.batches(size))


def joined_text(batches: Any) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for batch in batches:
        for name, column in batch.items():
            found.setdefault(name, []).extend(np.asarray(value).tobytes() for value in column)
    return found


@pytest.mark.parametrize("format", ["tfrecord", "npy", "parquet"])
def test_an_object_that_changed_raises_once_its_rows_are_read(
    bucket: S3Bucket, tmp_path: Path, format: str
) -> None:
    url = put_files(bucket, tmp_path / "files", format)
    name = names(tmp_path / "files")[12]
    ds = rm.open(url, storage=bucket.storage)
    drop_ahead()  # what the file was sampled from
    bucket.put(f"files/{name}", bucket.get(f"files/{name}") + b"\0")
    assert joined([ds[0 : 12 * ROWS]]) == joined([rm.open(tmp_path / "files")[0 : 12 * ROWS]])
    for read in (lambda: ds[0 : FILES * ROWS], lambda: list(ds.batches(ROWS))):
        with pytest.raises(ObjectChangedError, match=name):
            read()
    assert held_bytes() == 0


def test_an_object_that_could_not_be_fetched_ahead_is_tried_again(
    bucket: S3Bucket, tmp_path: Path
) -> None:
    url = put_files(bucket, tmp_path / "files", "npy")
    ds = rm.open(url, storage={**bucket.storage, "retries": 0})
    bucket.proxy.faults.extend([None, None, Status(403)])
    assert joined([ds[:]]) == joined([rm.open(tmp_path / "files")[:]])
    bucket.proxy.faults.append(Forever(Status(403)))
    with pytest.raises(AccessDeniedError, match="00000-of"):
        ds[:]


def test_what_is_broken_off_is_not_fetched(bucket: S3Bucket, tmp_path: Path) -> None:
    url = put_files(bucket, tmp_path / "files", "npy", rows=100, width=400)
    ds = rm.open(url, storage=bucket.storage)
    bucket.proxy.reset()
    batches = ds.batches(10)
    next(batches)
    del batches
    assert held_bytes() == 0
    assert bucket.proxy.count() < 20  # the first block has 1 MiB


@pytest.mark.parametrize("format", ["tfrecord.gz", "npy"])
def test_memory_for_what_is_fetched_ahead_is_bounded(
    bucket: S3Bucket, tmp_path: Path, format: str
) -> None:
    url = put_files(bucket, tmp_path / "files", format, files=18, rows=50, width=5000)  # 1 MB each
    most = 0
    with fetching_within(LEAST_FETCH_MEMORY):
        ds = rm.open(url, storage=bucket.storage)
        for _ in ds.batches(100):
            most = max(most, held_now())
    assert most <= LEAST_FETCH_MEMORY


def held_now() -> int:
    files = [each for each in gc.get_objects() if type(each) is FetchedFile]
    return sum(int(np.count_nonzero(file._users)) for file in files) * 4096


class Held:
    """Notes the bytes that files hold."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def coming(self, sizes: list[int]) -> Iterator[Coming]:
        return (
            Coming(self, size, partial(self.begin, size), partial(int, number))
            for number, size in enumerate(sizes, 1)
        )

    def begin(self, size: int) -> Fetching:
        self.now += size
        self.most = max(self.most, self.now)
        return Fetching(size, 1, [_Hold(self, size)])


class _Hold:
    def __init__(self, held: Held, size: int) -> None:
        self._held, self._size = held, size

    def close(self) -> None:
        self._held.now -= self._size


def test_files_ahead_never_take_more_than_their_share() -> None:
    random = np.random.default_rng(0)
    drop_ahead()
    for sure in (False, True):
        sizes = random.integers(1, 40 << 20, 300).tolist()
        sizes[7] = 1 << 40
        held = Held()
        with FilesAhead(held.coming(sizes), sure=sure) as ahead:
            for row in range(250):
                ahead.reach(held, row)
                assert held.now <= bytes_ahead(1)
            assert held.most > max(sizes[8:250])
        assert held.now == 0


def test_a_failing_file_does_not_keep_others_from_being_fetched() -> None:
    held = Held()

    def fail() -> Fetching:
        raise StoreError("away")

    files = [Coming(held, 10, fail, lambda: 1), *held.coming([10, 10])]
    with FilesAhead(iter(files), sure=True) as ahead:
        ahead.reach(held, 0)
        assert held.now == 20
    assert held.now == 0


def test_all_files_of_the_next_part_of_a_concatenation_come(
    bucket: S3Bucket, tmp_path: Path
) -> None:
    parts = []
    for name, format in {"a": "tfrecord", "b": "tfrecord", "c": "npy"}.items():
        (tmp_path / name).mkdir()
        url = put_files(bucket, tmp_path / name, format, files=3, rows=20)
        parts.append(rm.open(url, storage=bucket.storage))
    for some, files in ((parts[:2], 6), (parts[2:] * 2, 6)):
        joined = opened_rows(rm.concat(*some)).source
        assert len(list(joined.coming(0))) == files - 1
        assert len(list(joined.coming(21))) == files - 2
        assert len(list(joined.coming(0, 61))) == 3
    windows = [part.windows(2) for part in parts]
    assert len(list(opened_rows(rm.concat(*windows[:2])).source.coming(0))) == 5
