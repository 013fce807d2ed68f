"""rm.index writes the index of an object beside it."""

from __future__ import annotations

import time

import numpy as np
import pytest

import recmap as rm
from recmap.formats.tfrecord_source import TFRecordSource
from recmap.store.paths import expand
from tests.buckets import HttpFolder, S3Bucket, as_written_locally


def put(bucket: S3Bucket, rows: int) -> bytes:
    values = [np.arange(n % 7) for n in range(rows)]
    with rm.TFRecordWriter("x.tfrecord", index=False) as writer:
        writer.write({"v": values, "i": np.arange(rows)})
    with open("x.tfrecord", "rb") as file:
        data = file.read()
    bucket.put("d/x.tfrecord", data)
    return data


def test_an_indexed_object_is_opened_and_read_with_few_requests(
    bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(bucket, 5000)
    url = f"{bucket.url}/d/x.tfrecord"
    assert rm.index(url, storage=bucket.storage) == [f"{bucket.url}/d/.x.tfrecord.recmap"]
    monkeypatch.setenv("RECMAP_CACHE_SIZE", "0")
    bucket.proxy.reset()
    ds = rm.open(url, storage=bucket.storage)
    assert bucket.proxy.count() <= 6  # as docs/stores.md says
    assert ds.info().origin == "from the index"
    bucket.proxy.reset()
    assert len(ds) == 5000
    assert bucket.proxy.count() == 0
    row = ds[4321]
    assert bucket.proxy.count() <= 2
    assert row["i"] == 4321
    np.testing.assert_array_equal(row["v"], np.arange(4321 % 7))


def test_the_same_index_is_written_as_for_a_file(bucket: S3Bucket) -> None:
    put(bucket, 300)
    rm.index(f"{bucket.url}/d/x.tfrecord", storage=bucket.storage)
    rm.index("x.tfrecord")
    with open(".x.tfrecord.recmap", "rb") as file:
        found = as_written_locally(".recmap", bucket.get("d/.x.tfrecord.recmap"))
        assert found == file.read()


def test_a_text_index_is_the_same_as_for_a_file(bucket: S3Bucket) -> None:
    put(bucket, 300)
    url = f"{bucket.url}/d/x.tfrecord"
    assert rm.index(url, text=True, storage=bucket.storage) == [f"{url}.idx"]
    rm.index("x.tfrecord", text=True)
    with open("x.tfrecord.idx", "rb") as file:
        assert bucket.get("d/x.tfrecord.idx") == file.read()


def test_an_index_of_other_data_is_not_used(bucket: S3Bucket) -> None:
    data = put(bucket, 300)
    url = f"{bucket.url}/d/x.tfrecord"
    rm.index(url, storage=bucket.storage)
    bucket.put("d/x.tfrecord", data[: len(data) // 2])
    with pytest.warns(rm.StaleIndexWarning, match="the data changed"):
        ds = rm.open(url, storage=bucket.storage)
    with pytest.raises(rm.CorruptRecordError):
        len(ds)


def test_a_scanned_object_is_not_scanned_again(bucket: S3Bucket) -> None:
    put(bucket, 5000)
    url = f"{bucket.url}/d/x.tfrecord"
    assert len(rm.open(url, storage=bucket.storage)) == 5000
    ds = rm.open(url, storage=bucket.storage)
    bucket.proxy.reset()
    assert len(ds) == 5000
    assert bucket.proxy.count() == 0


def test_an_index_cannot_be_written_to_an_http_server(http_folder: HttpFolder) -> None:
    put_local = rm.TFRecordWriter("x.tfrecord", index=False)
    put_local.write({"i": [1]})
    put_local.close()
    with open("x.tfrecord", "rb") as file:
        http_folder.put("x.tfrecord", file.read())
    with pytest.raises(rm.OptionError, match="does not write"):
        rm.index(http_folder.url_of("x.tfrecord"), storage=http_folder.storage)


@pytest.mark.parametrize("verify", [True, False])
def test_a_record_that_is_longer_than_its_place_in_the_index_is_an_error(
    bucket: S3Bucket, verify: bool
) -> None:
    with rm.TFRecordWriter("x.tfrecord", index=False, describe=False) as writer:
        writer.write({"v": [b"a" * 5000, b"b" * 9000, b"c" * 5000, b"d" * 5000]})
    records = list(rm.tfrecord.records("x.tfrecord"))
    rm.index("x.tfrecord")
    # The same records in another order: the file has the same size.
    order = [0, 2, 1, 3]
    rm.tfrecord.write_records("y.tfrecord", [records[i] for i in order])
    for name, file in (("x.tfrecord", "y.tfrecord"), (".x.tfrecord.recmap", ".x.tfrecord.recmap")):
        with open(file, "rb") as data:
            bucket.put(name, data.read())
        time.sleep(1.1)  # so that the index is younger
    ds = rm.open(f"{bucket.url}/x.tfrecord", storage=bucket.storage, verify=verify)
    for read in (lambda: ds[[0, 1, 2]], lambda: ds[0:4], lambda: list(ds.batches(4))):
        with pytest.raises(rm.DataError):
            read()


def test_a_part_of_an_object_fetches_only_itself(
    bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECMAP_CACHE_SIZE", "0")
    rows = 2000
    random = np.random.default_rng(0)
    values = [random.bytes(int(n)) for n in random.integers(4000, 6000, rows)]
    with rm.TFRecordWriter("x.tfrecord") as writer:
        writer.write({"v": values})
    for name in ("x.tfrecord", ".x.tfrecord.recmap"):
        with open(name, "rb") as file:
            bucket.put(name, file.read())
    source = TFRecordSource(expand(f"{bucket.url}/x.tfrecord", bucket.storage))
    partitions = source.partitions(skip=False)
    assert partitions is not None
    part = partitions[0].part(0, 100)
    bucket.proxy.reset()
    found = part.open(["v"])(0, 100, None)
    assert list(found["v"]) == values[:100]
    assert bucket.proxy.body_bytes < 2_000_000
