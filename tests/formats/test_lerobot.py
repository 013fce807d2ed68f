"""LeRobot datasets of versions 2.0, 2.1 and 3.0: frames as rows, videos, hostile metadata."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.video_files import SIDE, numbers_in, video

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

LENGTHS, RATE, CAMERA = (5, 3, 7), 10, "observation.images.top"
TASKS = ("pick", "place")
FEATURES: dict[str, Any] = {
    CAMERA: {"dtype": "video", "shape": [3, SIDE, SIDE], "names": ["channels", "height", "width"]},
    "still": {"dtype": "image", "shape": [1, 1, 3], "names": None},
    "action": {"dtype": "float32", "shape": [2], "names": {"motors": ["x", "y"]}},
    "grid": {"dtype": "float32", "shape": [2, 3], "names": None},
    "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    **{
        name: {"dtype": "int64", "shape": [1], "names": None}
        for name in ("frame_index", "episode_index", "index", "task_index")
    },
}


def frames(episode: int) -> Any:
    """Return the Parquet table of an episode, typed as the library writes it."""
    first, count = sum(LENGTHS[:episode]), LENGTHS[episode]
    index = np.arange(first, first + count)
    number = np.arange(count)
    return pa.table({
        "still": pa.array([{"bytes": b"%d" % n, "path": None} for n in index]),
        "action": pa.array([[n, episode] for n in index], pa.list_(pa.float32(), 2)),
        "grid": pa.array([[[n] * 3] * 2 for n in index], pa.list_(pa.list_(pa.float32()))),
        "timestamp": pa.array((number / RATE).astype(np.float32)),
        "frame_index": number,
        "episode_index": np.full(count, episode),
        "index": index,
        "task_index": np.full(count, episode % 2),
    })  # fmt: skip


def write(file: Path, content: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        file.write_text(content)
    elif isinstance(content, bytes):
        file.write_bytes(content)
    else:
        pq.write_table(content, file)


def make(folder: Path, version: str) -> None:
    """Write a dataset of three episodes, in which frame N of the video shows N."""
    info: dict[str, Any] = {
        "codebase_version": version, "fps": RATE, "chunks_size": 2, "features": FEATURES,
        "total_episodes": len(LENGTHS), "total_frames": sum(LENGTHS), "total_tasks": 2,
    }  # fmt: skip
    tables = [frames(each) for each in range(len(LENGTHS))]
    if version == "v3.0":
        place = "chunk-{chunk_index:03d}/file-{file_index:03d}"
        info["data_path"] = f"data/{place}.parquet"
        info["video_path"] = f"videos/{{video_key}}/{place}.mp4"
        begins = [0.0, LENGTHS[0] / RATE, 0.0]
        write(folder / "data/chunk-000/file-000.parquet", pa.concat_tables(tables[:2]))
        write(folder / "data/chunk-000/file-001.parquet", tables[2])
        for file, (first, count) in enumerate(((0, 8), (8, 7))):
            name = f"videos/{CAMERA}/chunk-000/file-{file:03}.mp4"
            write(folder / name, video(count, first, RATE))
        key = f"videos/{CAMERA}"
        ends = [begin + n / RATE for begin, n in zip(begins, LENGTHS, strict=True)]
        episodes = pa.table({
            "episode_index": [0, 1, 2], "length": LENGTHS,
            "tasks": [[TASKS[i % 2]] for i in range(3)],
            "data/chunk_index": [0, 0, 0], "data/file_index": [0, 0, 1],
            f"{key}/chunk_index": [0, 0, 0], f"{key}/file_index": [0, 0, 1],
            f"{key}/from_timestamp": begins, f"{key}/to_timestamp": ends,
        })  # fmt: skip
        write(folder / "meta/episodes/chunk-000/file-000.parquet", episodes)
        tasks = pa.table({"task_index": [0, 1], "__index_level_0__": list(TASKS)})
        write(folder / "meta/tasks.parquet", tasks)
    else:
        name = "episode_{episode_index:06d}"
        info["data_path"] = f"data/chunk-{{episode_chunk:03d}}/{name}.parquet"
        info["video_path"] = f"videos/chunk-{{episode_chunk:03d}}/{{video_key}}/{name}.mp4"
        for episode, count in enumerate(LENGTHS):
            chunk, name = f"chunk-{episode // 2:03}", f"episode_{episode:06}"
            write(folder / f"data/{chunk}/{name}.parquet", tables[episode])
            first = sum(LENGTHS[:episode])
            write(folder / f"videos/{chunk}/{CAMERA}/{name}.mp4", video(count, first, RATE))
        lines = [{"episode_index": i, "tasks": [TASKS[i % 2]], "length": n}
                 for i, n in enumerate(LENGTHS)]  # fmt: skip
        write(folder / "meta/episodes.jsonl", "".join(json.dumps(each) + "\n" for each in lines))
        tasks = [{"task_index": i, "task": task} for i, task in enumerate(TASKS)]
        write(folder / "meta/tasks.jsonl", "".join(json.dumps(each) + "\n" for each in tasks))
    write(folder / "meta/info.json", json.dumps(info))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lerobot")
    for version in ("v2.0", "v2.1", "v3.0"):
        make(folder / version, version)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("version", ["v2.0", "v2.1", "v3.0"])
def test_frames_are_rows(made: Path, version: str) -> None:
    ds = rm.open(made / version)
    assert ds.info().format == "lerobot"
    assert {name: str(field) for name, field in ds.schema.items()} == {
        "action": "float32[2]", "grid": "float32[2,3]", "timestamp": "float32",
        "frame_index": "int64", "episode_index": "int64", "index": "int64",
        "task_index": "int64", "still": "bytes", CAMERA: f"uint8[{SIDE},{SIDE},3]", "task": "text",
    }  # fmt: skip
    everything = ds[:]
    assert numbers_in(everything[CAMERA]) == everything["index"].tolist() == list(range(15))
    assert (
        everything["action"][:, 0].tolist() == everything["grid"][:, 1, 2].tolist() == [*range(15)]
    )
    assert [row["task"] for row in ds.select("task")] == ["pick"] * 5 + ["place"] * 3 + ["pick"] * 7
    assert bytes(everything["still"][14]) == b"14"
    picked = ds[[14, 0, 7, 14]]
    assert numbers_in(picked[CAMERA]) == [14, 0, 7, 14]
    assert ds.select("task", CAMERA)[3]["task"] == "pick"
    pairs = ds.windows({CAMERA: [-1, 0], "action": range(2)}, within="episode_index")
    shown = [numbers_in(row[CAMERA]) for row in pairs]
    assert shown == [[n, n + 1] for n in range(14) if n + 1 in (1, 2, 3, 6, 9, 10, 11, 12, 13)]


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "twice": 2 * row["index"]}


@pytest.mark.parametrize("workers", ["threads:2", "processes:1"])
def test_workers_decode_frames(made: Path, workers: str) -> None:
    ds = rm.open(made / "v3.0").select("index", CAMERA)
    assert numbers_in(ds[3:4][CAMERA]) == [3]
    stream = ds.shuffle(seed=1, window=8).map(doubled, workers=workers).batch(4)
    found = [(batch["index"].tolist(), numbers_in(batch[CAMERA])) for batch in stream]
    assert all(index == shown for index, shown in found)
    assert sorted(row for index, _ in found for row in index) == list(range(15))


def test_the_numbers_need_no_videos_and_are_converted(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "v3.0", tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy/videos")
    ds = rm.open(tmp_path / "copy")
    assert ds.select("action", "task")[6]["action"].tolist() == [6, 1]
    with pytest.raises(rm.DataError, match=r"row 0 .*file-000\.mp4 does not exist"):
        ds[0]
    rm.convert(made / "v3.0", tmp_path / "rows.tfrecord")
    assert rm.diff(made / "v3.0", tmp_path / "rows.tfrecord").same


def edited(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        file = folder / "meta/info.json"
        info = json.loads(file.read_text())
        change(info)
        file.write_text(json.dumps(info))

    return edit


def shorter_video(folder: Path) -> None:
    write(folder / f"videos/chunk-000/{CAMERA}/episode_000000.mp4", video(3, 0, RATE))


def other_size(info: dict[str, Any]) -> None:
    info["features"][CAMERA]["shape"] = [3, SIDE, SIDE // 2]


def lost_episode(folder: Path) -> None:
    file = folder / "meta/episodes.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))


def swapped_files(folder: Path) -> None:
    a, b = (folder / f"data/chunk-000/episode_00000{n}.parquet" for n in (0, 1))
    pq.write_table(pa.concat_tables([frames(1), frames(0).slice(0, 2)]), a)
    pq.write_table(frames(0).slice(2), b)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (edited(lambda i: i.update(data_path="../{episode_index}.parquet")), "does not lie in the"),
        (edited(lambda i: i.update(data_path="/etc/passwd")), "does not lie in the folder"),
        (edited(lambda i: i.update(data_path="{episode_index.real}")), "exist|Parquet|found|such"),
        (edited(lambda i: i.update(video_path="{video_key}/{other:03d}")), "video_path is"),
        (edited(lambda i: i.update(video_path=None)), "has no video_path"),
        (edited(lambda i: i.update(codebase_version="v1.6")), "recmap reads v2.0, v2.1, v3.0"),
        (edited(lambda i: i.update(total_frames=16)), "total_frames is 16, but"),
        (edited(lambda i: i.update(fps="x")), "fps is x"),
        (edited(lambda i: i.pop("features")), "has no features"),
        (edited(lambda i: i["features"].update(a=3)), "'a' has no dtype or no shape"),
        (edited(lambda i: i["features"]["action"].update(shape=[-1])), "has the shape"),
        (edited(lambda i: i["features"]["action"].update(shape=[3])), "lists that are not|not"),
        (edited(lambda i: i["features"]["grid"].update(shape=[2, 4])), "lists that are not 4 long"),
        (edited(other_size), "has frames of 64 x 64 pixels, not 64 x 32"),
        (shorter_video, "frames from 0 to 0.3 s; there is none at"),
        (lost_episode, "total_episodes is 3, but the episodes add up to 2"),
        (swapped_files, "episode_index is 1, but by the lengths in meta it is 0"),
        (lambda f: write(f / "meta/info.json", "[" * 10_000), "is not JSON"),
        (lambda f: write(f / "meta/episodes.jsonl", '{"episode_index": -1}'), "index is -1"),
        (lambda f: write(f / "meta/tasks.jsonl", ""), "there is no task 0"),
        (lambda f: (f / "meta/tasks.jsonl").unlink(), "tasks.jsonl does not exist"),
        (lambda f: (f / "data/chunk-001/episode_000002.parquet").unlink(), "episode_000002"),
    ],
)  # fmt: skip
def test_hostile_metadata_is_refused(
    made: Path, tmp_path: Path, damage: Callable[[Path], Any], reason: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(made / "v2.1", folder)
    damage(folder)
    with pytest.raises((rm.DataError, rm.PathNotFoundError), match=reason):
        rm.open(folder)[:]
