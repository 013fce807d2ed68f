"""rm.index writes the index of an object beside it."""

from __future__ import annotations

import numpy as np
import pytest

import recmap as rm
from tests.buckets import HttpFolder, S3Bucket


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
    ds = rm.open(url, storage=bucket.storage)
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
        assert bucket.get("d/.x.tfrecord.recmap") == file.read()


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
