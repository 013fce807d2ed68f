"""LeRobot datasets that recmap writes of the steps of episodes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.buckets import S3Bucket
from tests.conversion.test_killed_overwrites import killed
from tests.formats.robot_steps import (
    FPS,
    LENGTHS,
    STEPS,
    TASKS,
    TOP,
    WRIST,
    columns,
    encoded,
    pixels_of,
)
from tests.formats.tfds.compare import plain

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

OPTIONS = {"fps": FPS}


def save(folder: Path, given: dict[str, Any] | None = None, **more: Any) -> Any:
    options = {**OPTIONS, **more.pop("options", {})}
    ds = rm.from_arrays(columns() if given is None else given)
    return ds.save(folder, format="lerobot", options=options, **more)


def info_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "meta/info.json").read_text())
    return found


def test_steps_become_frames_of_episodes(tmp_path: Path) -> None:
    given = columns()
    report = save(tmp_path / "out", verify="full", options={"robot_type": "arm"})
    assert [Path(file).name for file in report.files] == ["file-000.parquet"]
    ds = rm.open(tmp_path / "out")
    assert ds.info().format == "lerobot"
    assert {name: str(field) for name, field in ds.schema.items()} == {
        "observation.state": "float32[3]", "observation.images.top": "bytes",
        "observation.images.wrist": "bytes", "action": "float64[2]", "grid": "int64[2,3]",
        "reward": "float32", "is_terminal": "bool", "note": "text", "timestamp": "float32",
        "frame_index": "int64", "episode_index": "int64", "index": "int64",
        "task_index": "int64", "task": "text",
    }  # fmt: skip
    found = ds[:]
    for name in ("observation/state", TOP, WRIST, "action", "grid", "reward", "is_terminal",
                 "note"):  # fmt: skip
        assert plain(found[name.replace("/", ".")]) == plain(given[name])
    assert found["episode_index"].tolist() == given["episode"].tolist()
    assert found["frame_index"].tolist() == given["step"].tolist()
    assert found["index"].tolist() == list(range(STEPS))
    assert found["timestamp"].tolist() == (given["step"] / FPS).astype("float32").tolist()
    assert found["task"].tolist() == given["language_instruction"].tolist()
    assert sorted(set(found["task_index"].tolist())) == [0, 1, 2]
    info = info_of(tmp_path / "out")
    assert (info["robot_type"], info["fps"], info["codebase_version"]) == ("arm", FPS, "v3.0")
    assert (info["total_episodes"], info["total_frames"], info["total_tasks"]) == (4, STEPS, 3)
    assert info["features"]["observation.images.top"] == {
        "dtype": "image", "shape": [8, 12, 3], "names": ["height", "width", "channels"]
    }  # fmt: skip
    assert info["features"]["note"] == {"dtype": "string", "shape": [1], "names": None}


def test_statistics_are_those_of_numpy(tmp_path: Path) -> None:
    given = columns()
    save(tmp_path, shards=2)
    stats = json.loads((tmp_path / "meta/stats.json").read_text())
    assert "note" not in stats
    for name in ("observation/state", "action", "grid", "reward", "is_terminal"):
        found, values = stats[name.replace("/", ".")], given[name].astype(float)
        shape = values.shape[1:] or (1,)
        values = values.reshape(STEPS, *shape)
        for what in ("min", "max", "mean", "std"):
            assert np.allclose(found[what], getattr(values, what)(0)), (name, what)
        for share in (1, 10, 50, 90, 99):
            assert np.allclose(found[f"q{share:02}"], np.quantile(values, share / 100, 0)), name
        assert found["count"] == [STEPS]
    pixels = np.stack([pixels_of(each) for each in given[TOP]]) / 255
    found = stats["observation.images.top"]
    assert np.shape(found["mean"]) == (3, 1, 1)
    assert np.allclose(np.ravel(found["mean"]), pixels.mean((0, 1, 2)))
    assert np.allclose(np.ravel(found["std"]), pixels.std((0, 1, 2)))


def features_of(info: dict[str, Any]) -> Any:
    """Return the types that LeRobot gives to ``datasets``."""
    datasets = pytest.importorskip("datasets")
    made = {}
    for name, told in info["features"].items():
        shape, dtype = tuple(told["shape"]), told["dtype"]
        if dtype == "image":
            made[name] = datasets.Image()
        elif shape == (1,):
            made[name] = datasets.Value(dtype)
        elif len(shape) == 1:
            made[name] = datasets.Sequence(length=shape[0], feature=datasets.Value(dtype))
        else:
            made[name] = getattr(datasets, f"Array{len(shape)}D")(shape=shape, dtype=dtype)
    return datasets.Features(made)


@pytest.mark.slow
@pytest.mark.parametrize("told", [True, False], ids=["as LeRobot does", "a file alone"])
def test_the_libraries_of_lerobot_read_it(tmp_path: Path, told: bool) -> None:
    """LeRobot reads the frames and the episodes with ``datasets``, and the tasks with pandas."""
    datasets = pytest.importorskip("datasets")
    pandas = pytest.importorskip("pandas")
    given, out = columns(), tmp_path / "out"
    save(out, shards=3)
    info = info_of(out)
    files = sorted(map(str, (out / "data").glob("*/*.parquet")))
    cache = str(tmp_path / "cache")
    features = features_of(info) if told else None
    frames = datasets.Dataset.from_parquet(files, features=features, cache_dir=cache)
    assert len(frames) == STEPS
    for row, frame in enumerate(frames):
        top = pixels_of(given[TOP][row])
        assert (np.asarray(frame["observation.images.top"]) == top).all()
        assert frame["action"] == given["action"][row].tolist()
        assert np.asarray(frame["grid"]).tolist() == given["grid"][row].tolist()
        assert frame["note"] == given["note"][row]
        assert frame["is_terminal"] is bool(given["is_terminal"][row])
        assert frame["index"] == row
    meta = sorted(map(str, (out / "meta/episodes").glob("*/*.parquet")))
    episodes = datasets.Dataset.from_parquet(meta, cache_dir=cache)
    assert episodes["length"][:] == list(LENGTHS)
    assert episodes["tasks"][:] == [[task] for task in TASKS]
    for each in episodes:
        assert each["dataset_to_index"] - each["dataset_from_index"] == each["length"]
        place = info["data_path"].format(
            chunk_index=each["data/chunk_index"], file_index=each["data/file_index"]
        )
        inside = set(pq.read_table(out / place)["episode_index"].to_pylist())
        assert each["episode_index"] in inside
    tasks = pandas.read_parquet(out / "meta/tasks.parquet")
    assert tasks.loc["räum auf"].task_index == 1
    assert tasks.iloc[2].name == "stop"


def test_files_begin_with_an_episode(tmp_path: Path) -> None:
    report = save(tmp_path / "three", shards=3)
    names = [f"file-{number:03}.parquet" for number in range(3)]
    assert [Path(file).name for file in report.files] == names
    first = [pq.read_table(file)["frame_index"][0].as_py() for file in report.files]
    assert first == [0, 0, 0]
    # There are no more files than episodes.
    report = save(tmp_path / "many", shards="1 rows")
    assert [pq.read_table(file).num_rows for file in report.files] == list(LENGTHS)


def test_decoded_frames_become_png(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    frames = rng.integers(0, 256, (4, 6, 5, 3), "uint8")
    gray = rng.integers(0, 256, (4, 6, 5, 1), "uint8")
    given = {"camera": frames, "gray": gray, "episode_index": [7, 7, 3, 3], "one": np.ones((4, 1))}
    save(tmp_path / "out", given, options={"instruction": "look"}, verify="full")
    ds = rm.open(tmp_path / "out")
    assert str(ds.schema["one"]) == "float64"
    assert ds["episode_index"][:].tolist() == [0, 0, 1, 1]
    assert ds["task"][:].tolist() == ["look"] * 4
    decoded = (
        ds.decode_image("camera", (6, 5), dtype="uint8")
        .decode_image("gray", (6, 5), channels=1, dtype="uint8")
        .batch(4)
    )
    (batch,) = decoded
    assert (batch["camera"] == frames).all()
    assert (batch["gray"].reshape(gray.shape) == gray).all()


def test_rows_of_a_lerobot_dataset_are_numbered_again(tmp_path: Path) -> None:
    save(tmp_path / "a")
    ds = rm.open(tmp_path / "a")
    ds.where("episode_index != 1").save(tmp_path / "b", format="lerobot", options=OPTIONS)
    again = rm.open(tmp_path / "b")[:]
    assert again["episode_index"].tolist() == [0] * 5 + [1] * 9 + [2] * 3
    assert again["index"].tolist() == list(range(STEPS - 1))
    assert sorted(set(again["task_index"].tolist())) == [0, 1]
    rm.convert(tmp_path / "a", tmp_path / "c", format="lerobot", options=OPTIONS)
    assert rm.diff(tmp_path / "a", tmp_path / "c").same


@pytest.mark.parametrize(
    ("change", "options", "reason"),
    [
        ({}, {"fps": None}, r'needs options=\{"fps": 10\}'),
        ({}, {"fps": 0}, "fps=0: give the number"),
        ({}, {"fps": "ten"}, "fps='ten': give the number"),
        ({"episode": None}, {}, "needs the episode of each row, and there is no column"),
        ({}, {"episodes": "nope"}, "episodes='nope': no column 'nope'"),
        ({}, {"episodes": "action"}, "must have the number or the name"),
        ({}, {"episodes": 3}, "episodes=3: give text"),
        ({"language_instruction": None}, {}, 'if it is the same for all, give options={"instr'),
        ({}, {"task": "reward"}, "the column is float32, not text"),
        ({}, {"task": "note", "instruction": "go"}, "give task, the name of a column, or"),
        ({"episode": np.arange(STEPS) % 2}, {}, "episode 0 goes on here, after others"),
        ({"step": np.arange(STEPS)}, {}, "row 5: step is 5, but this is frame 0 of its episode"),
        ({"timestamp": np.arange(STEPS) / 30}, {}, "timestamp is .* at 0.1 s, with 10 frames"),
        ({"frame_index": np.zeros((STEPS, 2))}, {}, "'frame_index' is float64.2.: every LeRobot"),
        ({"index": np.arange(STEPS)}, {}, "column 'index' would be lost: every LeRobot"),
        ({"observation.state": np.arange(STEPS)}, {}, "would both be 'observation.state'"),
        ({"action": rm.Ragged.from_rows([[1]] * STEPS)}, {}, "has only rows of one shape"),
        ({"note": rm.Ragged.from_bytes([b"x"] * STEPS)}, {}, "is bytes, but not PNG or JPEG"),
        ({"reward": np.ones(STEPS, "complex64")}, {}, "has no such type .cast it, .*float32"),
        ({"reward": np.zeros(STEPS, "M8[s]")}, {}, "has no such type .cast it, .*int64"),
        ({WRIST: "one is larger"}, {}, "is an image of 5 x 4 pixels and 3 channels, but the first"),
        ({WRIST: "one is cut"}, {}, "is not a PNG or a JPEG"),
        ({"language_instruction": rm.Ragged.from_bytes([b"\xff"] * STEPS)}, {}, "is not UTF-8"),
        ({}, {"level": 3}, "level"),
    ],
)  # fmt: skip
def test_what_is_not_an_episode_is_refused(
    tmp_path: Path, change: dict[str, Any], options: dict[str, Any], reason: str
) -> None:
    given = {**columns(), **change}
    if isinstance(given[WRIST], str):
        other = encoded(np.zeros((4, 5, 3), "uint8")) if "larger" in given[WRIST] else b""
        images = columns()[WRIST].tolist()
        given[WRIST] = rm.Ragged.from_bytes([*images[:7], other, *images[8:]])
    kept = {name: column for name, column in given.items() if column is not None}
    with pytest.raises(rm.RecmapError, match=reason):
        save(tmp_path / "out", kept, options=options)
    assert not (tmp_path / "out/meta").exists()


def test_nothing_is_no_dataset(tmp_path: Path) -> None:
    empty = rm.from_arrays({name: column[:0] for name, column in columns().items()})
    with pytest.raises(rm.DataError, match="there are no rows, and a LeRobot dataset has"):
        empty.save(tmp_path / "out", format="lerobot", options=OPTIONS)
    with pytest.raises(rm.OptionError, match="does not add to a lerobot dataset"):
        rm.from_arrays(columns()).save(tmp_path, format="lerobot", append=True, options=OPTIONS)


def test_files_that_lerobot_would_read_too_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "out", shards=3)
    again = columns((6, 12))
    with pytest.raises(rm.OutputExistsError, match="already exists"):
        save(tmp_path / "out", again)
    save(tmp_path / "out", again, overwrite=True)
    names = sorted(path.name for path in (tmp_path / "out/data/chunk-000").glob("*.parquet"))
    assert names == ["file-000.parquet"]
    assert rm.open(tmp_path / "out")["episode_index"][:].tolist() == [0] * 6 + [1] * 12
    shutil.copy(tmp_path / "out/data/chunk-000/file-000.parquet",
                tmp_path / "out/data/chunk-000/file-007.parquet")  # fmt: skip
    with pytest.raises(rm.OutputExistsError, match=r"file-007\.parquet would be read together"):
        save(tmp_path / "out", again, overwrite=True)


@pytest.mark.usefixtures("in_time")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning")
@pytest.mark.slow
def test_a_killed_conversion_resumes(tmp_path: Path) -> None:
    rm.from_arrays(columns()).save(tmp_path / "steps.parquet")
    whole = tmp_path / "whole"

    def convert(folder: Path) -> Any:
        return rm.convert(
            tmp_path / "steps.parquet", folder, format="lerobot", shards=4, workers=1,
            options=OPTIONS,
        )  # fmt: skip

    convert(whole)
    at, resumed = 0, 0
    while True:
        at += 3
        folder = tmp_path / f"killed-{at}"
        if not killed(lambda: convert(folder), at):  # noqa: B023  # called at once
            break
        # LeRobot opens nothing before all is there.
        assert not (folder / "meta/info.json").exists() or rm.diff(folder, whole).same
        resumed += convert(folder).resumed
        assert rm.diff(folder, whole).same
        names = {path.name for path in folder.rglob("*") if path.suffix in (".parquet", ".json")}
        wanted = {path.name for path in whole.rglob("*") if path.suffix in (".parquet", ".json")}
        assert names == wanted
    assert at > 9
    assert resumed > 3


def test_a_bucket_has_datasets(bucket: S3Bucket) -> None:
    rm.from_arrays(columns()).save(
        f"{bucket.url}/robot", format="lerobot", shards=2, options=OPTIONS, storage=bucket.storage
    )
    ds = rm.open(f"{bucket.url}/robot", storage=bucket.storage)
    assert ds["action"][:].tolist() == columns()["action"].tolist()
    with pytest.raises(rm.OutputExistsError, match="already exists"):
        rm.from_arrays(columns((6,))).save(
            f"{bucket.url}/robot", format="lerobot", options=OPTIONS, storage=bucket.storage
        )
    rm.from_arrays(columns((6,))).save(
        f"{bucket.url}/robot", format="lerobot", options=OPTIONS, storage=bucket.storage,
        overwrite=True,
    )  # fmt: skip
    assert len(rm.open(f"{bucket.url}/robot", storage=bucket.storage)) == 6


@pytest.mark.parametrize("workers", ["threads:2", "processes:2"])
def test_workers_write_the_files(tmp_path: Path, workers: str) -> None:
    rm.from_arrays(columns()).save("steps.parquet")
    for folder, given in (("one", {"shards": 1}), ("some", {"shards": 3, "workers": workers})):
        rm.open("steps.parquet").save(tmp_path / folder, format="lerobot", options=OPTIONS, **given)
    assert rm.diff(tmp_path / "one", tmp_path / "some").same


def test_a_dataset_that_is_not_finished_is_refused(tmp_path: Path) -> None:
    save(tmp_path, shards=2)
    manifest = tmp_path / "data/chunk-000/.file.parquet.manifest.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**content, "complete": False}))
    with pytest.raises(rm.UnfinishedOutputError, match="its conversion is not finished"):
        rm.open(tmp_path)
