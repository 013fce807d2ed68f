"""to_tf: datasets, functions, training; and parsing records with TensorFlow itself."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import recmap as rm
from tests.frameworks import tf
from tests.numbered import ids, numbered

ROWS = 53


@pytest.fixture
def ds() -> rm.Dataset:
    return numbered(ROWS)


def test_batches_equal_those_of_the_pipeline(ds: rm.Dataset) -> None:
    plain = list(ds.shuffle(seed=1).batch(10))
    batches = list(ds.shuffle(seed=1).batch(10).to_tf())
    assert len(batches) == 6
    for ours, theirs in zip(plain, batches, strict=True):
        assert set(ours) == set(theirs)
        assert theirs["x"].numpy().tolist() == ours["x"].tolist()
        assert theirs["t"].to_list() == ours["t"].tolist()
        assert theirs["name"].numpy().tolist() == ours["name"].tolist()


def test_the_element_spec_describes_the_batches(ds: rm.Dataset) -> None:
    dataset = ds.batch(10).to_tf()
    assert dataset.element_spec == {
        "id": tf.TensorSpec((None,), tf.int64),
        "x": tf.TensorSpec((None, 3), tf.float32),
        "y": tf.TensorSpec((None,), tf.float32),
        "t": tf.RaggedTensorSpec((None, None), tf.int64, 1, tf.int64),
        "u": tf.RaggedTensorSpec((None, None), tf.int64, 1, tf.int64),
        "name": tf.TensorSpec((None,), tf.string),
    }
    for batch in dataset:
        assert all(dataset.element_spec[name].is_compatible_with(batch[name]) for name in batch)


@pytest.mark.parametrize(
    ("pad", "shape"), [({"t": 3}, (None, 3)), ({"t": "longest"}, (None, None))]
)
def test_padded_columns_are_dense(ds: rm.Dataset, pad: Any, shape: tuple[int | None]) -> None:
    chain = ds.select("t").batch(2, pad=pad)
    dataset = chain.to_tf()
    assert dataset.element_spec["t"] == tf.TensorSpec(shape, tf.int64)
    plain = [batch["t"].tolist() for batch in ds.select("t").batch(2, pad=pad)]
    assert [batch["t"].numpy().tolist() for batch in dataset] == plain


STATIC: dict[str, Any] = {
    "plain": lambda ds: ds.batch(8, drop_last=True),
    "shuffled": lambda ds: ds.shuffle(seed=1).batch(8, drop_last=True),
    "padded": lambda ds: ds.batch(8, drop_last=True, pad={"t": 3, "u": "longest"}),
    "filtered": lambda ds: ds.filter(lambda row: row["id"] % 3 > 0).batch(8, drop_last=True),
    "bucketed": lambda ds: ds.bucket("t", [2]).batch(8, drop_last=True),
    "uneven": lambda ds: ds.batch(8, drop_last=True).shard(1, 3),
    "pad": lambda ds: ds.batch(8, drop_last=True).shard(1, 3, even="pad"),
    "drop": lambda ds: ds.batch(8, drop_last=True).shard(1, 3, even="drop"),
    "dense": lambda ds: ds.select("id", "x", "y").batch(8, drop_last=True),
    "repeated": lambda ds: ds.select("id", "x", "y").batch(8, drop_last=True).repeat(2),
}


@pytest.mark.parametrize("chain", STATIC)
def test_drop_last_gives_static_shapes(ds: rm.Dataset, chain: str) -> None:
    dataset = STATIC[chain](ds).to_tf()
    plain = list(STATIC[chain](ds))
    assert len(plain) > 0
    for name, spec in dataset.element_spec.items():
        assert spec.shape[0] == 8, name
    batches = list(dataset)
    assert ids(batches) == ids(plain)
    for batch in batches:
        assert all(dataset.element_spec[name].is_compatible_with(batch[name]) for name in batch)


def test_static_shapes_of_padded_columns_and_pairs(ds: rm.Dataset) -> None:
    padded = ds.batch(8, drop_last=True, pad={"t": 3, "u": "longest"})
    features, label = padded.to_tf(features=["t", "u", "x", "name"], label="y").element_spec
    assert features == {
        "t": tf.TensorSpec((8, 3), tf.int64),
        "u": tf.TensorSpec((8, None), tf.int64),
        "x": tf.TensorSpec((8, 3), tf.float32),
        "name": tf.TensorSpec((8,), tf.string),
    }
    assert label == tf.TensorSpec((8,), tf.float32)
    spec = ds.batch(8, drop_last=True).to_tf(features=["t"]).element_spec
    assert spec["t"] == tf.RaggedTensorSpec((8, None), tf.int64, 1, tf.int64)
    spec = ds.batch(8, drop_last=True).to_tf(features=["t"], ragged=False).element_spec
    assert spec["t"] == tf.TensorSpec((8, None), tf.int64)
    packed = ds.select("t").pack(4, ["t"]).batch(2, drop_last=True).to_tf()
    assert packed.element_spec["t"] == tf.TensorSpec((2, 4), tf.int64)


def test_shapes_are_not_static_if_batches_may_differ_in_size(ds: rm.Dataset) -> None:
    def odd(batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"][batch["id"] % 2 == 1]}

    several = ds.select("id", "t").bucket("t", [2]).batch([8, 4], drop_last=True)
    for chain in (ds.batch(8), ds.batch(8, drop_last=True).map(odd), several):
        assert chain.to_tf(features="id").element_spec.shape[0] is None
    found = ds.batch(8, drop_last=True).map(odd).to_tf()
    assert [number for batch in ids(found) for number in batch] == list(range(1, 48, 2))


@pytest.mark.parametrize("chain", ["dense", "padded"])
def test_a_function_of_static_batches_is_traced_once(ds: rm.Dataset, chain: str) -> None:
    total = tf.function(lambda batch: tf.reduce_sum(batch["x"]))
    train = STATIC[chain](ds.select("id", "x", "y", "t", "u")).to_tf(features=["id", "x"])
    for _ in range(2):
        for batch in train:
            assert batch["x"].shape == (8, 3)
            total(batch)
    assert total.experimental_get_tracing_count() == 1
    for batch in ds.batch(8).to_tf(features=["id", "x"]):
        total(batch)  # the last one is smaller
    assert total.experimental_get_tracing_count() == 2


def test_fit_never_traces_a_step_of_static_batches_again(ds: rm.Dataset) -> None:
    shapes = []

    class Model(tf.keras.Model):  # type: ignore[misc]  # untyped
        def __init__(self) -> None:
            super().__init__()
            self.dense = tf.keras.layers.Dense(1)

        def call(self, x: Any) -> Any:
            return self.dense(x)

        def train_step(self, data: Any) -> Any:  # Python runs it only when it is traced
            shapes.append(data[0].shape.as_list())
            return super().train_step(data)

    model = Model()
    model.compile("sgd", "mse")
    train = ds.shuffle(seed=1).batch(8, drop_last=True).to_tf(features="x", label="y")
    model.fit(train, epochs=1, verbose=0, shuffle=False)
    traced = len(shapes)  # twice: the first time it makes the variables
    model.fit(train, epochs=3, verbose=0, shuffle=False)
    assert len(shapes) == traced <= 2
    assert shapes[0] == [8, 3]


def test_ragged_false_pads_ragged_columns_with_zeros(ds: rm.Dataset) -> None:
    dataset = ds.select("t").batch(4).to_tf(ragged=False)
    assert dataset.element_spec["t"].shape.as_list() == [None, None]
    assert next(iter(dataset))["t"].numpy().tolist() == [[0, 0, 0], [1, 0, 0], [2, 3, 0], [3, 4, 5]]


def test_without_batch_the_dataset_holds_rows(ds: rm.Dataset) -> None:
    dataset = ds.to_tf()
    assert dataset.element_spec["x"] == tf.TensorSpec((3,), tf.float32)
    assert dataset.element_spec["t"] == tf.TensorSpec((None,), tf.int64)
    assert dataset.cardinality() == ROWS
    for number, row in enumerate(dataset):
        assert row["id"].numpy() == number
        assert row["t"].numpy().tolist() == list(range(number, number + number % 5))
        assert row["name"].numpy() == b"row %d" % number
    batch = next(iter(dataset.ragged_batch(4)))
    assert batch["t"].to_list() == [[], [1], [2, 3], [3, 4, 5]]


def test_cardinality_is_known_where_the_length_is(ds: rm.Dataset) -> None:
    assert ds.batch(10).to_tf().cardinality() == 6
    assert ds.batch(10, drop_last=True).to_tf().cardinality() == 5
    unknown = ds.filter(lambda row: row["id"] < 9).batch(2).to_tf()
    assert unknown.cardinality() == tf.data.UNKNOWN_CARDINALITY
    assert ids(unknown) == [[0, 1], [2, 3], [4, 5], [6, 7], [8]]


def test_every_iteration_is_an_epoch(ds: rm.Dataset) -> None:
    plain = ds.shuffle(seed=3).batch(10)
    dataset = ds.shuffle(seed=3).batch(10).to_tf()
    epochs = [ids(dataset) for _ in range(3)]
    assert epochs == [[b["id"].tolist() for b in plain] for _ in range(3)]
    assert epochs[0] != epochs[1]
    twice = ids(ds.shuffle(seed=3).batch(10).to_tf().repeat(2))
    assert twice == epochs[0] + epochs[1]


def test_iterations_may_be_left_early(ds: rm.Dataset) -> None:
    def number(row: dict[str, Any]) -> dict[str, Any]:
        return {"id": row["id"]}

    dataset = ds.map(number, workers=2).batch(2).to_tf()
    for _ in range(3):
        assert ids(dataset.take(3)) == [[0, 1], [2, 3], [4, 5]]
    assert sum(map(len, ids(dataset))) == ROWS


def test_a_restored_pipeline_continues(ds: rm.Dataset) -> None:
    chain = ds.shuffle(seed=1).batch(10)
    whole = [batch["id"].tolist() for batch in chain]
    chain.epoch = 0
    some = iter(chain)
    next(some), next(some)
    dataset = ds.shuffle(seed=1).batch(10).restore(chain.state()).to_tf()
    assert ids(dataset) == whole[2:]
    assert len(ids(dataset)) == 6


def test_a_dataset_can_be_iterated_inside_a_tf_function(ds: rm.Dataset) -> None:
    def total(dataset: Any) -> Any:
        sum_, lengths = tf.constant(0, tf.int64), tf.constant(0, tf.int64)
        for batch in dataset:
            sum_ += tf.reduce_sum(batch["id"])
            lengths += tf.reduce_sum(batch["t"].row_lengths())
        return sum_, lengths

    sum_, lengths = tf.function(total)(ds.batch(10).to_tf())
    assert sum_.numpy() == sum(range(ROWS))
    assert lengths.numpy() == sum(i % 5 for i in range(ROWS))


def test_a_model_learns(ds: rm.Dataset) -> None:
    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.05), "mse")
    dataset = ds.shuffle(seed=1).batch(8).to_tf(features="x", label="y")
    history = model.fit(dataset, epochs=4, verbose=0, shuffle=False, validation_data=dataset)
    losses = history.history["loss"]
    assert losses[-1] < losses[0] / 4


def test_a_model_with_padded_dict_inputs_learns(ds: rm.Dataset) -> None:
    keras = tf.keras
    keras.utils.set_random_seed(0)
    chain = ds.batch(8, pad={"t": 4}).to_tf(features=["t", "x"], label="y")
    t, x = keras.Input((4,), dtype="int64", name="t"), keras.Input((3,), name="x")
    pooled = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(64, 4)(t))
    out = keras.layers.Dense(1)(keras.layers.Concatenate()([pooled, x]))
    model = keras.Model({"t": t, "x": x}, out)
    model.compile(keras.optimizers.Adam(0.05), "mse")
    losses = model.fit(chain, epochs=4, verbose=0, shuffle=False).history["loss"]
    assert losses[-1] < losses[0] / 2


def test_features_and_labels(ds: rm.Dataset) -> None:
    features, label = ds.batch(4).to_tf(label="y").element_spec
    assert set(features) == {"id", "x", "t", "u", "name"}
    assert label == tf.TensorSpec((None,), tf.float32)
    with pytest.raises(rm.FieldNotFoundError, match="no column 'z'"):
        ds.batch(4).to_tf(label="z")
    with pytest.raises(rm.OptionError, match="no column is left"):
        ds.select("y").batch(4).to_tf(label="y")


DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "uint64", "float16", "float64",
          "complex64", ">i4", ">f8", ">u2", "bfloat16"]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_keeps_its_values(dtype: str) -> None:
    x = (np.arange(12).reshape(6, 2) % 2).astype(getattr(ml_dtypes, dtype, None) or dtype)
    batch = next(iter(rm.from_arrays({"x": x}).batch(6).to_tf()))["x"]
    name = x.dtype.name if x.dtype.kind == "V" else x.dtype.newbyteorder("=").name
    assert batch.dtype == tf.as_dtype(name)
    assert batch.numpy().astype(np.complex64).tolist() == x.astype(np.complex64).tolist()


def test_dates_are_integers_and_unknown_types_are_refused() -> None:
    when = np.array(["2024-01-01", "2024-01-02"], "M8[D]")
    batch = next(iter(rm.from_arrays({"d": when}).batch(2).to_tf()))
    assert batch["d"].numpy().tolist() == [19723, 19724]
    if np.dtype(np.longdouble).itemsize > 8:
        with pytest.raises(rm.OptionError, match="column 'q': TensorFlow has no type"):
            rm.from_arrays({"q": np.zeros(3, np.longdouble)}).batch(2).to_tf()


def test_ragged_columns_of_every_kind() -> None:
    columns: dict[str, Any] = {
        "points": rm.Ragged(np.arange(12.0).reshape(6, 2), [0, 1, 1, 6]),
        "nested": rm.Ragged(rm.Ragged.from_rows([[1], [2, 3], []]), [0, 2, 2, 3]),
        "words": rm.Ragged(rm.Ragged.from_bytes([b"a", b"", b"ccc"]), [0, 2, 2, 3]),
        "big": rm.Ragged(np.arange(3, dtype=">i2"), [0, 0, 1, 3]),
    }
    dataset = rm.from_arrays(columns).batch(2).to_tf()
    spec = dataset.element_spec
    assert spec["points"] == tf.RaggedTensorSpec((None, None, 2), tf.float64, 1, tf.int64)
    assert spec["nested"] == tf.RaggedTensorSpec((None, None, None), tf.int64, 2, tf.int64)
    assert spec["words"] == tf.RaggedTensorSpec((None, None), tf.string, 1, tf.int64)
    for name, column in columns.items():
        rows = [row for batch in dataset for row in batch[name].to_list()]
        assert rows == column.tolist()
    with pytest.raises(rm.OptionError, match="column 'nested'"):
        rm.from_arrays(columns).select("nested").batch(2).to_tf(ragged=False)
    row = next(iter(rm.from_arrays(columns).to_tf()))
    assert row["nested"].to_list() == [[1], [2, 3]]
    assert row["words"].numpy().tolist() == [b"a", b""]


def test_strings_along_fixed_axes_are_dense() -> None:
    with rm.TFRecordWriter("x.tfrecord", {"w": "bytes[2]"}) as w:
        w.write({"w": [[b"a", b"bb"], [b"", b"c"], [b"d", b"e"]]})
    dataset = rm.open("x.tfrecord", {"w": "bytes[2]"}).batch(2).to_tf()
    assert dataset.element_spec["w"] == tf.TensorSpec((None, 2), tf.string)
    batches = [batch["w"].numpy().tolist() for batch in dataset]
    assert batches == [[[b"a", b"bb"], [b"", b"c"]], [[b"d", b"e"]]]


def test_columns_made_by_a_map_of_batches_are_included(ds: rm.Dataset) -> None:
    def halves(batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"], "half": batch["x"][:, ::-1].astype(np.float16)}

    dataset = ds.batch(10).map(halves).to_tf()
    assert dataset.element_spec["half"] == tf.TensorSpec((None, 3), tf.float16)
    assert next(iter(dataset))["half"].shape == (10, 3)


def test_large_batches_keep_their_values_while_memory_is_reused() -> None:
    x = np.random.default_rng(0).standard_normal((400, 1024))
    held = list(rm.from_arrays({"x": x}).batch(40).to_tf())
    for _ in range(3):
        list(rm.from_arrays({"x": x + 1}).batch(40).to_tf())
    assert np.array_equal(np.concatenate([batch["x"].numpy() for batch in held]), x)


def test_aligned_memory_is_reused_only_when_no_view_is_left() -> None:
    from recmap.adapters.tf import aligned

    array = np.arange(100_001.0)[1:]
    first = aligned(array)
    assert first.ctypes.data % 64 == 0
    second = aligned(array)
    view, address = first[5:], first.ctypes.data
    del first
    assert aligned(array).ctypes.data not in (address, second.ctypes.data)
    del view
    assert address in [copy.ctypes.data for copy in (aligned(array), aligned(array))]
    small = array[:10]
    assert aligned(small) is small


@pytest.mark.slow
def test_a_strategy_splits_batches_among_its_replicas() -> None:
    program = """
import numpy as np, recmap as rm, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
x = np.arange(30, dtype=np.float32).reshape(30, 1)
pipeline = rm.from_arrays({"x": x, "y": x * 2}).shuffle(seed=1).batch(8)
dataset = pipeline.to_tf(features="x", label="y")
seen = []
for batch, _ in strategy.experimental_distribute_dataset(dataset):
    parts = strategy.experimental_local_results(batch)
    assert len(parts) == 2
    seen += [value for part in parts for value in part.numpy().ravel().tolist()]
assert sorted(seen) == list(range(30))
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.001), "mse")
losses = model.fit(dataset, epochs=5, verbose=0).history["loss"]
assert losses[-1] < losses[0] / 4, losses
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]


def test_the_feature_spec_parses_what_recmap_wrote(ds: rm.Dataset) -> None:
    image = np.arange(ROWS * 6, dtype=np.uint8).reshape(ROWS, 2, 3)
    columns = {**ds[:], "image": image, "points": rm.Ragged(np.ones((ROWS, 2), np.float32),
               np.arange(ROWS + 1)), "label": np.arange(ROWS, dtype=np.int32)}  # fmt: skip
    with rm.TFRecordWriter("all.tfrecord") as w:
        w.write(columns)
    written = rm.open("all.tfrecord")
    schema: dict[str, Any] = {**written.schema, "missing": "int64[2] = 7"}
    parsed = tf.io.parse_example(
        list(rm.tfrecord.records("all.tfrecord")), rm.tf.feature_spec(schema)
    )
    assert parsed["x"].numpy().tolist() == columns["x"].tolist()
    assert parsed["label"].numpy().tolist() == list(range(ROWS))
    assert parsed["t"].to_list() == columns["t"].tolist()
    assert parsed["points"].to_list() == columns["points"].tolist()
    assert parsed["name"].numpy().tolist() == columns["name"].tolist()
    images = tf.io.decode_raw(parsed["image"], tf.uint8)
    assert images.numpy().reshape(image.shape).tolist() == image.tolist()
    assert parsed["missing"].numpy().tolist() == [[7, 7]] * ROWS


def test_the_feature_spec_follows_another_encoding_and_refuses_feature_lists() -> None:
    spec = rm.tf.feature_spec({"x": "int32[100]"}, encoding={"x": "int64_list"})
    assert spec["x"].dtype == tf.int64
    with pytest.raises(rm.OptionError, match="column 'n': .* is a feature list"):
        rm.tf.feature_spec({"n": "int64[*,*]"})


def test_without_tensorflow_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules["tensorflow"] = None
import numpy as np, recmap as rm
ds = rm.from_arrays({"x": np.arange(3)})
for call in (lambda: ds.to_tf(), lambda: rm.tf.feature_spec({"x": "int64"})):
    try:
        call()
    except rm.MissingPackageError as e:
        print(e)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    wording = 'this needs TensorFlow: pip install "tensorflow>=2.20"'
    assert run.stdout.splitlines() == [wording] * 2


def test_a_tensor_is_opened_and_a_tf_dataset_says_what_to_do() -> None:
    assert rm.open(tf.constant([[1, 2], [3, 4]]))[1]["data"].tolist() == [3, 4]
    with pytest.raises(rm.OptionError, match="as_numpy_iterator"):
        rm.open(tf.data.Dataset.range(3))


def test_an_iterator_that_is_not_used_costs_no_epoch() -> None:
    pipeline = rm.from_arrays({"id": np.arange(20)}).shuffle(seed=1).batch(4)
    dataset = pipeline.to_tf()
    iter(dataset)
    assert pipeline.epoch == 0
    alone = rm.from_arrays({"id": np.arange(20)}).shuffle(seed=1).batch(4)
    assert [b["id"].numpy().tolist() for b in dataset] == [b["id"].tolist() for b in alone]


def test_a_sharded_dataset_is_not_divided_again() -> None:
    policy = tf.data.experimental.AutoShardPolicy
    batches = rm.from_arrays({"id": np.arange(20)}).batch(4)
    for pipeline, expected in ((batches, policy.AUTO), (batches.shard(0, 2), policy.OFF)):
        options = pipeline.to_tf().options()
        assert options.experimental_distribute.auto_shard_policy == expected


def test_null_dates_never_reach_a_model_as_numbers() -> None:
    dates = np.array(["2020-01-01", "NaT"], "M8[D]")
    ds = rm.from_arrays({"d": dates, "t": dates - dates[:1]})
    for name, what in (("d", "date"), ("t", "duration")):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=f"null {what}.*ds.fill_null.*ds.mask_null"
        ):
            list(ds.select(name).batch(2).to_tf())
    [batch] = ds.mask_null("d", "t").batch(2).to_tf()
    assert [int(each) for each in batch["d"]] == [18262, 0]
    assert [bool(each) for each in batch["d/is_null"]] == [False, True]
    [batch] = ds.fill_null({"d": 3, "t": 4}).batch(2).to_tf()
    assert [int(each) for each in batch["t"]] == [0, 4]
