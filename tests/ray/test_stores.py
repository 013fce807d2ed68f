"""Data in object stores on a Ray cluster whose nodes share nothing but the store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster

import recmap as rm
from recmap.ray.cluster import Driver
from recmap.ray.parallel_index import find_records
from recmap.tfrecord.plain_file import PlainFile
from tests.buckets import S3Bucket
from tests.jobs import deadline

pytestmark = [
    # Ray leaves pipes and logs of its processes to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    # Ray reads settings that it has deprecated itself.
    pytest.mark.filterwarnings(r"ignore:.use_\w+. is deprecated:DeprecationWarning"),
]

ROWS = 3000
MEMORY = 80_000_000


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Start two nodes, each with a home, a cache and a temporary folder of its own.

    Yield their folders. The head node has no CPUs, so it runs no tasks.
    """
    with pytest.MonkeyPatch.context() as patch:
        # Ray would report usage over the network.
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        for name in list(os.environ):
            if name.startswith(("AWS_", "RECMAP_")) or name.upper().endswith("_PROXY"):
                patch.delenv(name)
        folders = [tmp_path_factory.mktemp(f"node-{i}") for i in range(2)]
        cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "object_store_memory": MEMORY,
                "include_dashboard": False,
            },
        )
        try:
            for folder in folders:
                (folder / "tmp").mkdir()
                own = {
                    "HOME": str(folder),
                    "RECMAP_CACHE": str(folder / "cache"),
                    "TMPDIR": str(folder / "tmp"),
                    "AWS_EC2_METADATA_DISABLED": "true",
                }
                cluster.add_node(num_cpus=1, object_store_memory=MEMORY, env_vars=own)
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
            context = ray.data.DataContext.get_current()
            context.enable_progress_bars = False
            context.execution_options.preserve_order = True
            yield folders
        finally:
            ray.shutdown()
            cluster.shutdown()


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    with deadline(120):
        yield


def columns(rows: int = ROWS) -> dict[str, Any]:
    n = np.arange(rows)
    return {
        "x": np.random.default_rng(rows).random((rows, 60), dtype=np.float32),
        "label": n % 7,
        "tokens": rm.Ragged.from_rows([np.arange(i % 5) for i in n]),
        "name": rm.Ragged.from_bytes([b"n%d" % i for i in n]),
    }


def numbers(rows: int = ROWS) -> dict[str, Any]:
    made = columns(rows)
    return {name: made[name] for name in ("x", "label")}


def put(bucket: S3Bucket, name: str, data: dict[str, Any]) -> str:
    """Write a file, copy it and what is beside it to the bucket, and return its URL."""
    folder = Path("made")
    rm.from_arrays(data).save(folder / name, options={})
    for path in folder.iterdir():
        bucket.put(f"in/{path.name}", path.read_bytes())
        path.unlink()
    return f"{bucket.url}/in/{name}"


def files_in(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def objects_in(bucket: S3Bucket, folder: str) -> dict[str, bytes]:
    keys = [key for key in bucket.keys() if key.startswith(f"{folder}/")]  # noqa: SIM118
    return {key.removeprefix(f"{folder}/"): bucket.get(key) for key in keys}


def assert_same(bucket: S3Bucket, folder: str, local: str) -> None:
    """Compare the objects of a folder with files. Manifests hold times or ETags."""
    found, wanted = objects_in(bucket, folder), files_in(local)
    assert sorted(found) == sorted(wanted)
    for name, data in wanted.items():
        if "manifest.json" not in name:
            assert found[name] == data, name
    assert bucket.uploads() == []


def test_both_nodes_are_used_and_share_no_folder(nodes: list[Path]) -> None:
    home = ray.remote(lambda: (os.environ["HOME"], os.environ["RECMAP_CACHE"]))
    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    asked = [
        home.options(scheduling_strategy=affinity(node["NodeID"], soft=False)).remote()
        for node in ray.nodes()
        if node["Resources"].get("CPU")
    ]
    assert sorted(ray.get(asked)) == [(str(f), str(f / "cache")) for f in nodes]


@pytest.mark.parametrize("dst", ["", "x.tfrecord.gz", "x.npz", "x.bin"])
@pytest.mark.usefixtures("nodes")
def test_a_conversion_in_a_store_has_the_bytes_of_the_local_engine(
    bucket: S3Bucket, dst: str
) -> None:
    data = numbers() if dst == "x.bin" else columns()
    src = put(bucket, "x.tfrecord", data)
    options: dict[str, Any] = {"shards": 3, "rows": slice(10, None)}
    rm.convert(src, f"local/{dst}", storage=bucket.storage, **options)
    report = rm.convert(
        src, f"{bucket.url}/out/{dst}", storage=bucket.storage, engine="ray", **options
    )
    assert_same(bucket, "out", "local")
    assert report.rows == ROWS - 10
    assert len(report.files) == 3
    # Either engine resumes what the other has started.
    again = rm.convert(src, f"{bucket.url}/out/{dst}", storage=bucket.storage, **options)
    assert again.resumed == 3


@pytest.mark.parametrize("name", ["x.tfrecord", "x.npy", "x.bin"])
def test_a_store_is_read_on_nodes_that_share_nothing(
    nodes: list[Path], bucket: S3Bucket, name: str
) -> None:
    data = columns() if name == "x.tfrecord" else numbers()
    url = put(bucket, name, data)
    for source in (
        rm.ray.read(url, storage=bucket.storage, override_num_blocks=4),
        rm.ray.read(rm.open(f"{bucket.url}/in/", storage=bucket.storage)),
    ):
        batch = source.take_batch(ROWS)
        assert np.array_equal(batch["x"], data["x"])
        assert np.array_equal(batch["label"], data["label"])
        if "tokens" in data:
            assert [t.tolist() for t in batch["tokens"]] == [t.tolist() for t in data["tokens"]]
            assert list(batch["name"]) == list(data["name"])
        assert source.input_files() == [url]
        assert type(source.input_files()[0]) is str
    assert os.listdir() == ["made"]
    assert all((folder / "cache").exists() for folder in nodes)


@pytest.mark.usefixtures("nodes")
def test_columns_from_several_objects_are_read(bucket: S3Bucket) -> None:
    data = numbers()
    x = put(bucket, "x.npy", {"x": data["x"]})
    y = put(bucket, "y.npy", {"y": data["label"]})
    ds = rm.open({"x": x, "y": y}, storage=bucket.storage)
    read = rm.ray.read(ds, override_num_blocks=2)
    assert np.array_equal(read.take_batch(ROWS)["y"], data["label"])
    put(bucket, "y.npy", {"y": data["label"] + 1})
    with pytest.raises(rm.ObjectChangedError, match=r"y\.npy: changed while it was open"):
        rm.ray.read(ds).take_all()


@pytest.mark.parametrize("name", ["x.tfrecord", "x.npy"])
@pytest.mark.usefixtures("nodes")
def test_an_object_that_was_replaced_is_not_read(bucket: S3Bucket, name: str) -> None:
    url = put(bucket, name, numbers(500))
    ds = rm.ray.read(url, storage=bucket.storage)
    changed = numbers(500)
    changed["x"] += 1
    put(bucket, name, changed)
    with pytest.raises(rm.ObjectChangedError, match=r"changed while it was open; open it again"):
        ds.take_all()
    # What a user gives is looked up again.
    files = rm.open(url, storage=bucket.storage).files
    put(bucket, name, numbers(400))
    assert rm.ray.read(files).count() == 400
    assert len(rm.open(files)) == 400


@pytest.mark.usefixtures("nodes")
def test_all_nodes_find_the_records_of_one_object(bucket: S3Bucket) -> None:
    words = [bytes(i % 97) for i in range(3000)]
    rm.from_arrays({"word": words}).save("x.tfrecord", options={"index": False})
    bucket.put("x.tfrecord", Path("x.tfrecord").read_bytes())
    local = PlainFile("x.tfrecord", verify=True)
    source = rm.open(f"{bucket.url}/x.tfrecord", storage=bucket.storage)._source
    find_records(ray, Driver.here(), source, span_bytes=40_000)
    (shard,) = source.record_files  # type: ignore[attr-defined]
    assert shard.known_count() == local.count() == len(words)
    rows = np.arange(local.count())
    data = np.fromfile("x.tfrecord", np.uint8)
    assert np.array_equal(
        shard.index.offsets(data, rows, 1)[0], local.index.offsets(data, rows, 1)[0]
    )


@pytest.mark.usefixtures("nodes")
def test_one_of_input_and_output_may_be_a_file(bucket: S3Bucket) -> None:
    data = numbers()
    rm.from_arrays(data).save("x.npy")
    rm.convert("x.npy", f"{bucket.url}/out/", shards=2, storage=bucket.storage, engine="ray")
    rm.convert(f"{bucket.url}/out/", "back/", shards=2, storage=bucket.storage, engine="ray")
    assert_same(bucket, "out", "back")
    assert np.array_equal(rm.open("back/")["x"][:], data["x"])
