"""Write TFDS datasets with ``tensorflow_datasets`` itself, and what it reads from them."""

from __future__ import annotations

import importlib.resources
import importlib.resources.abc
import os
import pickle
import sys
from typing import Any

# Builders need this package, which tensorflow_datasets no longer depends on.
sys.modules.setdefault("importlib_resources", importlib.resources)
os.environ["NO_GCE_CHECK"] = "true"

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import tensorflow_datasets as tfds  # noqa: E402

tfds.core.utils.gcs_utils._is_gcs_disabled = True
F = tfds.features
IN_ORDER = tfds.ReadConfig(interleave_cycle_length=1)


def random(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def plain(i: int) -> dict[str, Any]:
    rng = random(1, i)
    return {
        "f32": rng.random((2, 3), "float32"),
        "f64": float(rng.random()),
        "f16": rng.random(3).astype("float16"),
        "u8": rng.integers(0, 256, (4, 5), "uint8"),
        "u64": np.uint64(2**64 - 1 - i),
        "i32": np.int32(-i),
        "flag": bool(i % 2),
        "raw": rng.random((3, 2)),
        "raw_f16": rng.random(4).astype("float16"),
        "packed": rng.integers(0, 9, (6, 2), "int16"),
        "any": rng.integers(0, 9, i % 4, "int64"),
        "pairs": rng.random((i % 3, 2), "float32"),
        "late": rng.random((2, i % 3), "float32"),
        "raw_any": rng.random(i % 3),
        "packed_any": rng.integers(0, 99, i % 5, "uint16"),
        "grid": rng.random((1 + i % 2, 2 + i % 3, 2), "float32"),
        "strings": [b"a" * i, b"\xff\x00"],
        "string": b"\xff%d" % i,
        "nested": {"x": i, "deep": {"y": rng.random(2, "float32")}},
    }


PLAIN = {
    "f32": F.Tensor(shape=(2, 3), dtype=np.float32),
    "f64": np.float64,
    "f16": F.Tensor(shape=(3,), dtype=np.float16),
    "u8": F.Tensor(shape=(4, 5), dtype=np.uint8),
    "u64": np.uint64,
    "i32": np.int32,
    "flag": np.bool_,
    "raw": F.Tensor(shape=(3, 2), dtype=np.float64, encoding="bytes"),
    "raw_f16": F.Tensor(shape=(4,), dtype=np.float16, encoding="bytes"),
    "packed": F.Tensor(shape=(6, 2), dtype=np.int16, encoding="zlib"),
    "any": F.Tensor(shape=(None,), dtype=np.int64),
    "pairs": F.Tensor(shape=(None, 2), dtype=np.float32),
    "late": F.Tensor(shape=(2, None), dtype=np.float32),
    "raw_any": F.Tensor(shape=(None,), dtype=np.float64, encoding="bytes"),
    "packed_any": F.Tensor(shape=(None,), dtype=np.uint16, encoding="zlib"),
    "grid": F.Tensor(shape=(None, None, 2), dtype=np.float32, encoding="zlib"),
    "strings": F.Tensor(shape=(2,), dtype=np.object_),
    "string": np.object_,
    "nested": {"x": np.int64, "deep": {"y": F.Tensor(shape=(2,), dtype=np.float32)}},
}


def media(i: int) -> dict[str, Any]:
    rng = random(2, i)
    return {
        "image": rng.integers(0, 256, (4 + i % 3, 5, 3), "uint8"),
        "label": i % 3,
        "caption": f"Katze Nr. {i} 🐈",
        "video": rng.integers(0, 256, (i % 3, 4, 4, 3), "uint8"),
        "audio": rng.integers(-99, 99, 5 + i, "int64"),
        "stereo": rng.random((4, 2), "float32"),
        "box": F.BBox(0.1, 0.2, 0.3, 0.5),
        "words": [f"w{k}" for k in range(i % 4)],
        "translation": {"en": f"cat {i}", "de": f"Katze {i}"},
        "many": {"en": ["a", "b"], "fr": "ç"},
        "note": None if i % 2 else b"seen",
        "score": None if i % 3 else 0.5,
    }


MEDIA = {
    "image": F.Image(shape=(None, 5, 3)),
    "label": F.ClassLabel(names=["cat", "dog", "Ente"]),
    "caption": F.Text(),
    "video": F.Video(shape=(None, 4, 4, 3)),
    "audio": F.Audio(sample_rate=16000),
    "stereo": F.Audio(shape=(None, 2), dtype=np.float32),
    "box": F.BBoxFeature(),
    "words": F.Sequence(F.Text()),
    "translation": F.Translation(languages=["en", "de"]),
    "many": F.TranslationVariableLanguages(languages=["en", "fr"]),
    "note": F.Scalar(dtype=np.object_, optional=True),
    "score": F.Scalar(dtype=np.float32, optional=True),
}


def nested(i: int) -> dict[str, Any]:
    rng = random(3, i)
    rows = [list(range(k)) for k in range(i % 4)]
    return {
        "objects": [
            {"bbox": rng.random(4, "float32"), "label": k % 2, "name": f"o{k}"}
            for k in range(i % 3)
        ],
        "tokens": rows,
        "deep": [[[float(k)] * (k + j) for k in range(j)] for j in range(i % 3)],
        "vectors": [[rng.random(2, "float32") for _ in row] for row in rows],
        "texts": [[f"{j}{k}ü" for k in row] for j, row in enumerate(rows)],
        "fixed": [i, i + 1, i + 2],
        "frames": [rng.random((2, 2)) for _ in range(i % 3)],
        "packed": [rng.integers(0, 9, 3, "int32") for _ in range(i % 3)],
        "groups": [{"ids": list(range(k)), "size": k} for k in range(i % 4)],
    }


NESTED = {
    "objects": F.Sequence(
        {
            "bbox": F.Tensor(shape=(4,), dtype=np.float32),
            "label": F.ClassLabel(names=["a", "b"]),
            "name": F.Text(),
        }
    ),
    "tokens": F.Sequence(F.Sequence(np.int32)),
    "deep": F.Sequence(F.Sequence(F.Sequence(np.float32))),
    "vectors": F.Sequence(F.Sequence(F.Tensor(shape=(2,), dtype=np.float32))),
    "texts": F.Sequence(F.Sequence(F.Text())),
    "fixed": F.Sequence(np.int64, length=3),
    "frames": F.Sequence(F.Tensor(shape=(2, 2), dtype=np.float64, encoding="bytes")),
    "packed": F.Sequence(F.Tensor(shape=(3,), dtype=np.int32, encoding="zlib")),
    "groups": F.Sequence({"ids": F.Sequence(np.int64), "size": np.int64}),
}


def episode(i: int) -> dict[str, Any]:
    rng = random(4, i)
    count = 1 + (7 * i) % 5
    return {
        "episode_metadata": {"file": f"/data/{i}.hdf5", "seed": i},
        "steps": [
            {
                "observation": {
                    "image": rng.integers(0, 256, (4, 4, 3), "uint8"),
                    "state": rng.random(7, "float32"),
                    "path": [float(k)] * (k % 3),
                },
                "action": rng.random(2),
                "reward": np.float32(k),
                "is_first": k == 0,
                "is_last": k == count - 1,
                "is_terminal": False,
                "language": f"pick {i} {k}",
                "codes": rng.integers(-5, 300, 3, "int64"),
            }
            for k in range(count)
        ],
    }


RLDS = {
    "episode_metadata": {"file": F.Text(), "seed": np.int64},
    "steps": F.Dataset(
        {
            "observation": {
                "image": F.Image(shape=(4, 4, 3)),
                "state": F.Tensor(shape=(7,), dtype=np.float32),
                "path": F.Sequence(np.float32),
            },
            "action": F.Tensor(shape=(2,), dtype=np.float64),
            "reward": np.float32,
            "is_first": np.bool_,
            "is_last": np.bool_,
            "is_terminal": np.bool_,
            "language": F.Text(),
            "codes": F.Tensor(shape=(3,), dtype=np.int64),
        }
    ),
}

DATASETS = {
    "plain": (PLAIN, plain, {"train": 23, "test": 7}),
    "media": (MEDIA, media, {"train": 9}),
    "nested": (NESTED, nested, {"train": 11}),
    "rlds": (RLDS, episode, {"train": 12, "val": 3}),
}
SPECS = ["train", "train[:80%]", "train[5:-3]", "test+train[10%:20%]", "all", "train[1shard:]"]


def write(folder: str) -> None:
    for name, (features, make, splits) in DATASETS.items():
        for file_format in ("tfrecord", "array_record"):
            if file_format == "array_record" and name not in ("plain", "rlds"):
                continue
            builder = tfds.dataset_builders.AdhocBuilder(
                name=name,
                version="1.2.0",
                features=F.FeaturesDict(features),
                split_datasets={
                    split: [(i, make(i)) for i in range(rows)] for split, rows in splits.items()
                },
                data_dir=os.path.join(folder, file_format),
                file_format=file_format,
                disable_shuffling=True,
            )
            shards = tfds.download.DownloadConfig(num_shards=3)
            builder.download_and_prepare(download_config=shards)
    expected: dict[str, Any] = {}
    for name in DATASETS:
        specs = SPECS if name == "plain" else ["train"]
        for spec in specs:
            expected[f"{name}:{spec}"] = read(f"{folder}/tfrecord/{name}/1.2.0", spec)
    with open(os.path.join(folder, "expected.pickle"), "wb") as file:
        pickle.dump(expected, file)


def read(folder: str, spec: str) -> list[Any]:
    """Return the rows that tensorflow_datasets reads, with images as stored."""
    root, name, version = folder.rsplit("/", 2)
    called = f"{name}:{version}"
    features = tfds.builder(called, data_dir=root).info.features
    skip = {name: tfds.decode.SkipDecoding() for name in ("image", "video") if name in features}
    rows = tfds.load(
        called, data_dir=root, split=spec, download=False, read_config=IN_ORDER,
        decoders=skip or None,
    )  # fmt: skip
    return [as_plain(row) for row in rows]


def as_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: as_plain(each) for key, each in value.items()}
    if isinstance(value, tf.RaggedTensor):
        return value.to_list()
    if isinstance(value, tf.data.Dataset):
        return [as_plain(each) for each in value]
    return value.numpy()
