"""Calls in the words of other libraries are answered with what to write here."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import recmap
from recmap.model.habits import _ATTRIBUTES, _COMPARISONS, _FUNCTIONS

# The calls below have the wrong arguments on purpose, so mypy must not check them.
rm: Any = recmap


def data() -> Any:
    return rm.from_arrays({"x": np.arange(6), "label": np.arange(6) % 2})


# Calls of a dataset in the words of other libraries, and what the answer says.
OPTIONS = {
    "ds.batch(batch_size=32)": "batch: .*'size'",
    "ds.batch(2, drop_remainder=True)": "'drop_last'",
    "ds.batch(2, num_workers=4)": "map.*workers=4",
    "ds.batch(2, collate_fn=f)": r"batch\(32\).map",
    "ds.batch(2, True)": "drop_last=, pad=",
    "ds.map(f, num_proc=4)": "'workers'",
    "ds.map(f, num_parallel_calls=4)": "'workers'",
    "ds.map(f, batched=True, batch_size=100)": r"ds.batch\(32\).map",
    "ds.map(f, remove_columns=['x'])": "function returns",
    "ds.map(f, 4)": "only fn without a name.*workers=",
    "ds.map(function=f)": "'fn'",
    "ds.filter(predicate=f)": "'fn'",
    "ds.filter(f, num_proc=2)": "in workers",
    "ds.filter(f, input_columns=['x'])": "dict of all columns",
    "ds.filter(f, btached=True)": "did you mean 'batched'",
    "ds.prefetch(buffer_size=3)": "'count'",
    "ds.shuffle(buffer_size=3)": "needs no buffer",
    "ds.shuffle(reshuffle_each_iteration=True)": "'reshuffle'",
    "ds.shuffle(random_state=3)": "'seed'",
    "ds.take(n=3)": "'count'",
    "ds.skip(n=3)": "'count'",
    "ds.repeat(epochs=3)": "'times'",
    "ds.bucket('x', bucket_boundaries=[3])": "'boundaries'",
    "ds.pack(max_length=8)": "'length'",
    "ds.shard(num_shards=2, index=0)": "'count'",
    "ds.shard(rank=0, world_size=2)": "'index'",
    "ds.select(columns=['x'])": 'select."x", "y"',
    "ds.rename(columns={'x': 'y'})": "old.*new",
    "ds.rename('x', 'y')": "a dict",
    "ds.cast(dtype={'x': 'f4'})": "'dtypes'",
    "ds.cast(x='f4')": r"write cast\({'x': 'f4'}\)",
    "ds.fill_null(x=0)": r"write fill_null\({'x': 0}\)",
    "ds.cast({'x': 'f4'}, castng='exact')": "did you mean 'casting'",
    "ds.split(test_size=0.2)": "train.*test",
    "ds.split({'a': 0.5}, random_state=1)": "'seed'",
    "ds.where(expr='x > 3')": "'condition'",
    "ds.sample(frac=0.1)": "number of rows",
    "ds.sample(k=3)": "'n'",
    "ds.sort(by='x')": "'column'",
    "ds.sort('x', ascending=False)": "descending=True",
    "ds.explode(column='x')": 'explode."x"',
    "ds.drop_null(subset=['x'])": 'drop_null."x"',
    "ds.fill_null(fill_value=0)": "'value'",
    "ds.decode_image('x', target_size=224)": "'size'",
    "ds.stats(columns=['x'])": "ds.select",
    "ds.head(rows=3)": "'n'",
    "ds.view(hieght=3)": "'height'",
    "ds.batches(batch_size=3)": "'size'",
    "ds.run(num_epochs=3)": "'epochs'",
    "ds.to_torch(batch_size=32)": r"ds.batch\(32\)",
    "ds.to_torch(shuffle=True)": "ds.shuffle",
    "ds.to_torch(num_workers=2)": "DataLoader",
    "ds.to_tf(batch_size=32)": r"ds.batch\(32\)",
    "ds.to_tf(labels='label')": "'label'",
    "ds.to_jax(num_workers=2)": "workers=4",
    "ds.to_keras(batch_size=2)": r"ds.batch\(32\)",
    "ds.to_pandas(columns=['x'])": "ds.select",
    "rm.mix(ds, ds, probabilities=[1, 2])": "'weights'",
    "rm.zip(ds, axis=1)": "ds.select",
    "rm.diff(ds, ds, columns=['x'])": "ds.select",
    "rm.verify('x', num_workers=2)": "'workers'",
    "rm.from_arrays(data={})": "columns",
    "rm.tfrecord.records('x', compression_type='GZIP')": "compression",
    "rm.TFRecordWriter('x.tfrecord', shard=3)": "'shards'",
    "rm.open('x.npy', streaming=True)": "leave it out",
    "rm.open('x.npy', usecols=['x'])": "'columns'",
    "rm.open('x.npy', filed=['x'])": "did you mean 'fields'|there are",
}


def test_options_of_other_libraries_are_answered_with_those_of_recmap() -> None:
    names = {"ds": data(), "rm": rm, "f": lambda row: row}
    for call, answer in OPTIONS.items():
        with pytest.raises(recmap.OptionTypeError, match=answer):
            eval(call, names)


def test_every_public_method_and_function_answers_unknown_options() -> None:
    found = [member for _, member in inspect.getmembers(rm.Dataset, inspect.isfunction)]
    found += [rm.mix, rm.zip, rm.diff, rm.verify, rm.index, rm.repair, rm.col, rm.open, rm.convert]
    for function in found:
        if function.__name__.startswith("_"):
            continue
        arguments = list(inspect.signature(function).parameters.values())
        needed = [None for p in arguments if p.default is p.empty and p.kind < p.VAR_POSITIONAL]
        with pytest.raises(recmap.OptionTypeError, match="no option 'no_such_option'"):
            function(*needed, no_such_option=1)


def test_signatures_are_what_they_were() -> None:
    assert list(inspect.signature(rm.Dataset.take).parameters) == ["self", "count"]
    assert rm.Dataset.take.__name__ == "take"
    assert "Keep the first rows" in rm.Dataset.take.__doc__
    options = inspect.signature(rm.Dataset.shuffle).parameters
    assert [name for name, p in options.items() if p.kind is p.KEYWORD_ONLY] == [
        "seed",
        "window",
        "reshuffle",
    ]


ATTRIBUTES = {
    "ds.to_numpy()": r'ds\["x"\]\[:\]',
    "ds.iloc[3]": r"ds\[7\]",
    "ds.shape": "ds.schema",
    "ds.column_names": "ds.columns",
    "ds.features": "ds.schema",
    "ds.num_rows": r"len\(ds\)",
    "ds.train_test_split(0.2)": "ds.split",
    "ds.interleave(ds)": "rm.mix",
    "ds.apply(len)": "ds.map",
    "ds.sort_values('x')": "ds.sort",
    "ds.query('x > 3')": "ds.where",
    "ds.drop('x')": "ds.select",
    "ds.dropna()": "ds.drop_null",
    "ds.padded_batch(3)": 'pad="longest"',
    "ds.with_format('torch')": "to_torch",
    "ds.save_to_disk('x')": "ds.save",
    "ds.label": r"ds\['label'\] is the column",
    "ds.select('x').x": r"ds\['x'\] is the column",
    "ds.heed()": "did you mean 'head'",
    "ds.batch(2).head()": "before batch",
    "ds.batch(2).save('x.npy')": "before batch",
    "ds.batch(2).where('x > 3')": "before batch",
    "ds.shard(0, 2).stats()": "before batch",
    "rm.load('x.npy')": "rm.open",
    "rm.load_dataset('x.npy')": "rm.open",
    "rm.concatenate_datasets([ds])": "rm.concat",
    "rm.from_tensor_slices(ds)": "rm.open",
    "rm.Pipeline": "rm.Stream",
}


def test_attributes_of_other_libraries_are_answered_with_those_of_recmap() -> None:
    names = {"ds": data(), "rm": rm}
    for call, answer in ATTRIBUTES.items():
        with pytest.raises(AttributeError, match=answer):
            eval(call, names)
    assert not [name for name in _ATTRIBUTES if hasattr(rm.Dataset, name)]
    assert not [name for name in _FUNCTIONS if name in rm.__all__]
    assert not [name for name in _COMPARISONS if hasattr(rm.col("x"), name)]


def test_columns_of_conditions_answer_in_the_words_of_other_libraries() -> None:
    column = rm.col("x")
    with pytest.raises(AttributeError, match=r"write col.is_in\(\[1, 2, 3\]\)"):
        column.isin([1])
    with pytest.raises(AttributeError, match=r"write col.is_null\(\), and ~col.is_null\(\)"):
        column.notnull()
    with pytest.raises(AttributeError, match="did you mean 'starts_with'"):
        column.starts_wiht("a")
    assert copy.deepcopy(column).column == pickle.loads(pickle.dumps(column)).column == "x"


def test_looking_for_an_attribute_calls_no_function() -> None:
    calls: list[int] = []

    def noted(row: dict[str, Any]) -> dict[str, Any]:
        calls.append(1)
        return row

    mapped = data().map(noted)
    assert not hasattr(mapped, "label")
    assert not hasattr(mapped, "_ipython_canary_method_should_not_exist_")
    assert not calls


def test_an_attribute_error_inside_a_property_is_not_hidden() -> None:
    class Odd(rm.Dataset):  # type: ignore[misc]  # of no type here
        @property
        def length(self) -> int:
            return int(getattr(np.arange(3), "no_such_thing"))  # noqa: B009

    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = Odd(rm.from_arrays({"x": np.arange(3)})._opened).length


def test_what_takes_a_function_says_what_takes_conditions() -> None:
    ds = data()
    for wrong, answer in (("x > 3", "where"), (np.arange(6) > 3, "select")):
        with pytest.raises(recmap.OptionError, match=answer):
            ds.filter(wrong)
    with pytest.raises(recmap.OptionError, match="filter"):
        ds.where(lambda row: row["x"] > 3)


def test_similar_names_of_columns_and_dtypes_are_suggested() -> None:
    ds = data()
    calls: list[Callable[[], Any]] = [
        lambda: ds["lable"],
        lambda: ds.select("lable"),
        lambda: ds.rename({"lable": "y"}),
        lambda: ds.cast({"lable": "f4"}),
        lambda: ds.sort("lable"),
        lambda: ds.explode("lable"),
        lambda: ds.where("lable == 3"),
        lambda: ds.where(rm.col("lable") == 3),
        lambda: ds.sample(balance="lable"),
        lambda: ds.sample(weights="Label"),
        lambda: ds.split({"a": 0.5}, by="lable"),
        lambda: ds.split({"a": 0.5}, stratify="lable"),
        lambda: ds.bucket("lable", [3]),
        lambda: ds.pack(3, ["lable"]),
        lambda: ds.batch(2, pad={"lable": 3}),
        lambda: ds.decode_image("lable"),
        lambda: ds.drop_null("lable"),
        lambda: ds.mask_null("lable"),
        lambda: ds.fill_null({"lable": 0}),
        lambda: ds.batch(2).select("lable"),
        lambda: ds.batch(2).to_torch(label="lable"),
        lambda: ds.schema["lable"],
        lambda: rm.open(ds, ["lable"]),
        # After a filter, the columns are still known.
        lambda: ds.filter(len).select("lable"),
        lambda: ds.filter(len).bucket("lable", [3]),
        lambda: ds.filter(len).pack(3, ["lable"]),
        lambda: ds.filter(len).batch(2, pad={"lable": 3}),
        lambda: ds.filter(len).decode_image("lable"),
        lambda: ds.filter(len).decode_image("lable", device="cuda"),
        lambda: ds.filter(len).sort("lable"),
    ]
    for call in calls:
        with pytest.raises(recmap.RecmapError, match="did you mean 'label'"):
            call()
    dtypes: list[Callable[[], Any]] = [
        lambda: ds.cast({"x": "flaot32"}),
        lambda: rm.Field("flaot32"),
        lambda: rm.open("x.bin", dtype="Float32", shape=(-1,)),
        lambda: rm.from_arrays({"x": np.arange(3)}).map(dict, fields={"x": "flaot32"}),
    ]
    for call in dtypes:
        with pytest.raises(recmap.OptionError, match="did you mean 'float32'"):
            call()


def test_no_option_has_a_value_that_contradicts_its_name() -> None:
    assert inspect.signature(rm.Dataset.shard).parameters["even"].default is None
    with pytest.raises(recmap.OptionError, match="even='uneven' is now even=None"):
        data().shard(0, 2, even="uneven")
