"""Answers to calls in the words of tf.data, PyTorch, Hugging Face, pandas and NumPy.

``helpful`` wraps functions, and the methods of classes: an option that they do not have is an error
that says how it is called here. ``missing`` is the same for attributes.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from inspect import unwrap
from types import FunctionType
from typing import Any, TypeVar, cast

from recmap.errors import OptionTypeError
from recmap.model.arguments import unknown_option

_T = TypeVar("_T", bound=Callable[..., Any])

_WORKERS = ("workers",)
_COUNT = ("n", "count", "size", "times", "length")
_COLUMNS = ("columns", "column", "names", "by", "what", "features")
_FUNCTION = ("fn", "condition")

# What other libraries call an option, and the names that it may have here.
_SAME: dict[str, tuple[str, ...]] = {
    "batch_size": ("size",),
    "buffer_size": ("count",),
    "num_workers": _WORKERS,
    "num_proc": _WORKERS,
    "num_parallel_calls": _WORKERS,
    "num_threads": ("threads", *_WORKERS),
    "n_jobs": _WORKERS,
    "jobs": _WORKERS,
    "max_workers": _WORKERS,
    "use_multiprocessing": _WORKERS,
    "drop_remainder": ("drop_last",),
    "random_state": ("seed",),
    "random_seed": ("seed",),
    "generator": ("seed",),
    "rng": ("seed",),
    "reshuffle_each_iteration": ("reshuffle",),
    "function": _FUNCTION,
    "func": _FUNCTION,
    "f": _FUNCTION,
    "map_func": _FUNCTION,
    "predicate": _FUNCTION,
    "transform": _FUNCTION,
    "expr": ("condition",),
    "n": _COUNT,
    "k": _COUNT,
    "num": _COUNT,
    "size": _COUNT,
    "count": _COUNT,
    "rows": _COUNT,
    "num_rows": _COUNT,
    "num_samples": _COUNT,
    "epochs": ("times",),
    "num_epochs": ("epochs", "times"),
    "column": _COLUMNS,
    "columns": _COLUMNS,
    "column_names": _COLUMNS,
    "field": ("columns",),
    "fields": ("columns",),
    "usecols": ("columns",),
    "subset": ("columns",),
    "by": _COLUMNS,
    "key": _COLUMNS,
    "on": _COLUMNS,
    "group": ("by",),
    "groups": ("by",),
    "group_by": ("by",),
    "lengths": ("by",),
    "window": ("size",),
    "window_size": ("size",),
    "lookback": ("size",),
    "context_length": ("size",),
    "shift": ("stride",),
    "step": ("stride",),
    "prediction_length": ("horizon",),
    "bucket_boundaries": ("boundaries",),
    "features": ("fields", "columns"),
    "schema": ("fields", "columns"),
    "inputs": ("features",),
    "x": ("features",),
    "labels": ("label",),
    "label_cols": ("label",),
    "target": ("label",),
    "targets": ("label",),
    "y": ("label",),
    "dtype": ("dtypes",),
    "dtypes": ("dtype",),
    "types": ("dtypes",),
    "mapping": ("names",),
    "mapper": ("names",),
    "column_mapping": ("names",),
    "reverse": ("descending",),
    "ascending": ("descending",),
    "p": ("weights",),
    "probabilities": ("weights",),
    "stopping_strategy": ("until",),
    "replacement": ("replace",),
    "class_weight": ("balance",),
    "stratify_by_column": ("stratify",),
    "stratify": ("balance",),
    "target_size": ("size",),
    "image_size": ("size",),
    "resize": ("size",),
    "max_length": ("length",),
    "seq_length": ("length",),
    "padding": ("pad",),
    "padded_shapes": ("pad",),
    "fill_value": ("fill", "value"),
    "num_shards": ("count", "shards"),
    "world_size": ("count",),
    "num_replicas": ("count",),
    "rank": ("index",),
    "verbose": ("progress",),
    "show_progress": ("progress",),
    "desc": ("progress",),
    "filename": ("path", "dst"),
    "storage_options": ("storage",),
}

_LEAVE_OUT = "leave it out"
_LAZY = "everything is read only when you ask for it; leave it out"
_CACHED = "ds.map(f).cache() keeps the results on disk, and cache(memory=...) in memory"
_MAP = "ds.map(f, workers=4) calls a function in workers"
_SPLIT = 'ds.split({"train": 0.8, "test": 0.2}) divides the rows'

# What is another verb here.
_ELSEWHERE: dict[str, str] = {
    "batch_size": "ds.batch(32) makes batches",
    "num_workers": _MAP,
    "num_proc": _MAP,
    "num_parallel_calls": _MAP,
    "num_threads": _MAP,
    "n_jobs": _MAP,
    "shuffle": "use the verb ds.shuffle(seed=0)",
    "sampler": "use the verbs ds.shuffle(seed=0) and ds.sample(...)",
    "collate_fn": "ds.batch(32).map(f) calls a function with every batch",
    "drop_last": "it is an option of batch: ds.batch(32, drop_last=True)",
    "drop_remainder": "it is an option of batch: ds.batch(32, drop_last=True)",
    "prefetch_factor": "ds.batch(32).prefetch(4) prepares batches ahead of the loop",
    "persistent_workers": f"workers stay; {_LEAVE_OUT}",
    "pin_memory": "it is an option of to_torch",
    "transform": "ds.map(f) calls a function with every row",
    "batched": "it is an option of map and filter",
    "remove_columns": "map keeps the columns that the function returns; ds.select keeps some",
    "input_columns": 'the function gets a dict of all columns; ds.select("x") before it keeps some',
    "columns": 'ds.select("x", "y") keeps some columns',
    "with_indices": 'rm.zip(ds, rm.from_arrays({"index": numpy.arange(len(ds))})) numbers the rows',
    "fn_kwargs": "functools.partial(f, ...) fixes arguments of a function",
    "args": "functools.partial(f, ...) fixes arguments of a function",
    "deterministic": f"the order of rows never depends on workers; {_LEAVE_OUT}",
    "cache_file_name": _CACHED,
    "load_from_cache_file": _CACHED,
    "keep_in_memory": _CACHED,
    "inplace": "a verb returns another dataset, ds = ds.verb(...), and leaves this one as it is",
    "axis": 'columns are selected with ds.select("x"), rows with ds[:100]',
    "frac": "instead of frac=VALUE: give the number of rows, n",
    "test_size": _SPLIT,
    "train_size": _SPLIT,
    "stratify": "it is an option of split",
    "streaming": _LAZY,
    "lazy": _LAZY,
    "mmap": _LAZY,
    "mmap_mode": _LAZY,
    "memory_map": _LAZY,
    "mode": "rm.open only reads; ds.save writes",
    "nrows": "ds.take(1000) keeps the first rows",
    "skiprows": "ds.skip(1000) leaves out the first rows",
    "chunksize": "ds.batches(1000) reads 1,000 rows at a time",
    "max_len": 'ds.batch(32, pad={"tokens": 128}) pads and cuts',
    "boundaries": "use the verb ds.bucket(column, boundaries)",
    "compression_type": "compression is detected",
    "as_supervised": 'to_tf(label="label") makes pairs',
    "device": "it is an option of to_torch and to_jax",
}

# Where a word means something else.
_OF_VERB: dict[tuple[str, str], str] = {
    ("map", "batch_size"): "ds.batch(32).map(f) gives the function batches of 32 rows",
    ("filter", "batch_size"): "with batched=True, recmap chooses how many rows the function gets",
    ("filter", "workers"): "ds.map(f, workers=4).filter(g) calls both in workers",
    ("map", "drop_last"): "ds.batch(32, drop_last=True).map(f) gives the function whole batches",
    ("save", "batch_size"): f"memory bounds how many rows are held; {_LEAVE_OUT}",
    ("rm.convert", "batch_size"): f"memory bounds how many rows are held; {_LEAVE_OUT}",
    ("sort", "ascending"): "use descending=True for the other order",
    **{
        (verb, "columns"): f'write {verb}("x", "y")'
        for verb in ("select", "explode", "drop_null", "mask_null")
    },
    ("select", "indices"): "write select([7, 3, 5])",
    ("rename", "columns"): 'write rename({"old": "new"})',
    ("rename", ""): 'a dict: rename({"old": "new"})',
    ("cast", ""): 'a dict: cast({"x": "float32"})',
    ("split", ""): 'a dict: split({"train": 0.8, "test": 0.2})',
    ("split", "test_size"): 'write split({"train": 0.8, "test": 0.2})',
    ("split", "train_size"): 'write split({"train": 0.8, "test": 0.2})',
    ("split", "shuffle"): "rows are split at random; ds[:80] and ds[80:] are parts in order",
    ("to_keras", "use_multiprocessing"): 'it is now workers="processes:4"',
    ("to_torch", "num_workers"): "DataLoader has it, or ds.map(f, workers=4) before to_torch",
    ("prefetch", "batch_size"): "ds.batch(32).prefetch(4) prepares four batches ahead of the loop",
    ("shuffle", "buffer_size"): "the shuffle is exact and needs no buffer; write shuffle(seed=0)",
    ("repeat", "seed"): "shuffle has a seed, and gives every repetition a new order",
    ("where", "fn"): "where takes a condition such as rm.col('x') > 3; filter takes a function",
    ("decode_image", "num_workers"): f"images are decoded on all CPUs; {_LEAVE_OUT}",
    ("decode_image", "workers"): f"images are decoded on all CPUs; {_LEAVE_OUT}",
}


# The verbs whose argument says something of columns by name.
_OF_COLUMNS = ("cast", "rename", "fill_null")
# The flags of code that takes *args and **options.
_ANY_ARGUMENTS, _ANY_OPTIONS = 0x04, 0x08


def helpful(thing: _T) -> _T:
    """Make a function, or the public methods of a class, answer unknown options helpfully."""
    if not isinstance(thing, type):
        return cast("_T", _answering(cast("FunctionType", thing)))
    for name, member in list(vars(thing).items()):
        if isinstance(member, FunctionType) and not name.startswith("_"):
            setattr(thing, name, _answering(member))
    return cast("_T", thing)


def _answering(function: FunctionType) -> Callable[..., Any]:
    code = cast("FunctionType", unwrap(function)).__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    most = math.inf if code.co_flags & _ANY_ARGUMENTS else code.co_argcount
    if code.co_flags & _ANY_OPTIONS:
        return function

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if not options.keys() <= known:
            wrong = next(name for name in options if name not in known)
            raise no_option(function.__name__, wrong, known, options[wrong])
        if len(args) > most:
            raise _too_many(function.__name__, names, code.co_argcount)
        return function(*args, **options)

    known = frozenset(names) - {"self"}
    return call


def _too_many(verb: str, names: Sequence[str], positional: int) -> OptionTypeError:
    """Return the error for arguments that have to be given by name."""
    if (verb, "") in _OF_VERB:
        return OptionTypeError(f"{verb} takes {_OF_VERB[verb, '']}")
    first = [name for name in names[:positional] if name != "self"]
    by_name = [f"{name}=" for name in names[positional:]]
    taken = f"takes only {' and '.join(first)} without a name" if first else "takes names only"
    if not by_name:
        taken = f"takes {' and '.join(first)}" if first else "takes no arguments"
    others = f"; give the others by name: {', '.join(by_name)}" if by_name else ""
    return OptionTypeError(f"{verb} {taken}{others}")


def no_option(verb: str, name: str, known: Collection[str], value: Any = ...) -> OptionTypeError:
    """Return the error for an option that a verb does not have, with what to write instead."""
    words = (name, *_SAME.get(name, ()))
    advice = next((_OF_VERB[verb, word] for word in words if (verb, word) in _OF_VERB), None)
    same = next((f"use {word!r}" for word in words if word in known), None)
    advice = advice or same or _ELSEWHERE.get(name)
    if advice is None and verb in _OF_COLUMNS and not difflib.get_close_matches(name, known):
        advice = f"write {verb}({{{name!r}: VALUE}})"
    if advice is None:
        return unknown_option(name, known, f"{verb}: ", value)
    told = advice.replace("VALUE", repr(value))
    return OptionTypeError(f"{verb}: there is no option {name!r}; {told}")


_WHOLE = 'ds["x"][:] is a column as an array, and ds[:] has all of them'
_INDEXED = 'ds[7] is a row, ds[100:200] a batch, ds["x"] a column'
_TYPES = "ds.schema has the types and shapes of columns, len(ds) the number of rows"
_ROWS = "len(ds) is the number of rows"
_SAVE = 'ds.save("train.parquet") writes all rows; the end of the name chooses the format'
_RENAME = 'write ds.rename({"old": "new"})'
_CAST = 'write ds.cast({"x": "float32"})'
_SELECT = 'ds.select("x", "y") keeps some columns'
_STATS = 'ds.stats()["x"] has count, min, max, mean, std and common values of a column'
_ITERATE = "for row in ds: each row is a dict of NumPy values"
_JOIN = "rm.zip(a, b) puts the columns of datasets side by side, row by row"
_TABLE = "ds.to_polars() and ds.to_pandas() read all rows into a table that does"
_TRAIN = "ds.batch(32).to_torch(), to_tf(), to_keras() or to_jax() hands batches to a framework"
_SORT = 'write ds.sort("x")'
_STATE = "ds.state() returns the place in an epoch, and ds.restore(state) continues from it"
_NO_NULL = "ds.drop_null() leaves out rows with nulls, ds.fill_null(0) replaces them"
_CONCAT = "rm.concat(a, b) puts the rows of datasets one after another"

# The attributes of datasets elsewhere, and what to write here.
_ATTRIBUTES: dict[str, str] = {
    **dict.fromkeys(("to_numpy", "numpy", "values", "to_dict", "as_numpy", "asarray"), _WHOLE),
    **dict.fromkeys(("iloc", "loc", "at", "iat", "get", "row", "slice"), _INDEXED),
    **dict.fromkeys(("shape", "ndim", "size", "dtype", "dtypes"), _TYPES),
    **dict.fromkeys(("features", "element_spec", "fields"), _TYPES),
    **dict.fromkeys(("column_names", "names", "feature_names"), "ds.columns has the names"),
    **dict.fromkeys(("num_rows", "nrows", "cardinality", "num_examples", "count"), _ROWS),
    "num_columns": "len(ds.columns) is the number of columns",
    **dict.fromkeys(("train_test_split", "random_split"), _SPLIT),
    **dict.fromkeys(("interleave", "sample_from_datasets"), "rm.mix(a, b) mixes datasets"),
    "persist": "ds.cache() keeps rows on disk or in memory",
    **dict.fromkeys(("apply", "transform", "pipe"), "ds.map(f) calls a function with every row"),
    **dict.fromkeys(("sort_values", "order_by", "sort_by"), _SORT),
    "argsort": 'numpy.argsort(ds["x"][:]) is the order of rows by a column, and ds.sort sorts them',
    **dict.fromkeys(("query", "filter_by"), "write ds.where(\"x > 3 and y == 'a'\")"),
    "tail": "ds[-5:] has the last rows",
    **dict.fromkeys(("first", "last"), "ds[0] is the first row, ds[-1] the last"),
    **dict.fromkeys(("drop", "remove_columns", "drop_columns", "select_columns", "pop"), _SELECT),
    **dict.fromkeys(("rename_column", "rename_columns"), _RENAME),
    **dict.fromkeys(("astype", "cast_column", "with_columns_cast"), _CAST),
    **dict.fromkeys(
        ("add_column", "assign", "with_columns"),
        "rm.zip(ds, rm.from_arrays(columns)) adds columns, and ds.map(f) computes them",
    ),
    **dict.fromkeys(("to_list", "tolist"), "list(ds) is a list of all rows"),
    **dict.fromkeys(("to_csv", "to_parquet", "to_hdf", "to_feather", "to_json", "to_zarr"), _SAVE),
    **dict.fromkeys(("save_to_disk", "write", "export", "dump", "write_parquet", "savez"), _SAVE),
    "to_tf_dataset": "write ds.batch(32).to_tf()",
    **dict.fromkeys(("with_format", "set_format", "dataloader", "to_tensor"), _TRAIN),
    **dict.fromkeys(("unique", "value_counts", "nunique", "describe"), _STATS),
    **dict.fromkeys(("mean", "std", "min", "max", "sum", "var", "median"), _STATS),
    **dict.fromkeys(("groupby", "group_by", "pivot", "agg", "aggregate"), _TABLE),
    **dict.fromkeys(("merge", "join", "hstack", "zip"), _JOIN),
    **dict.fromkeys(("concatenate", "concat", "append", "extend", "vstack", "union"), _CONCAT),
    "unbatch": "the dataset before batch() gives rows",
    "padded_batch": 'write ds.batch(32, pad="longest")',
    "bucket_by_sequence_length": 'write ds.bucket("tokens", [32, 64]).batch(16, pad="longest")',
    "enumerate": "enumerate(ds) counts rows",
    "random_resized_crop": 'write ds.decode_image("image", 224, crop="random_resized")',
    "random_crop": 'write ds.decode_image("image", 224, crop="random")',
    "center_crop": 'write ds.decode_image("image", 224, crop="center")',
    **dict.fromkeys(
        ("flip", "random_horizontal_flip"), 'write ds.decode_image("image", 224, flip=True)'
    ),
    **dict.fromkeys(("as_numpy_iterator", "iterrows", "itertuples", "iter_rows", "rows"), _ITERATE),
    **dict.fromkeys(("iter_batches", "to_batches", "iter"), "ds.batches(1000) reads rows in order"),
    **dict.fromkeys(("dropna", "fillna", "drop_nulls"), _NO_NULL),
    **dict.fromkeys(("isna", "isnull", "notna"), 'ds.where("x is null") finds nulls'),
    **dict.fromkeys(("state_dict", "load_state_dict"), _STATE),
    "set_epoch": "write ds.epoch = 3",
    "close": "files are closed when the dataset is no longer used",
    **dict.fromkeys(("index", "set_index", "reset_index"), "rows are numbered: ds[7]"),
    **dict.fromkeys(
        ("with_options", "options"), "workers, seeds and the rest are options of verbs"
    ),
}

_STARTS = "write col.starts_with(text)"
_NULLS = "write col.is_null(), and ~col.is_null() for rows with a value"
_OPERATORS = "write ==, !=, <, <=, > or >="
_CALCULATED = "ds.filter(lambda row: ...) calls a function with every row"

# The same for the columns of conditions.
_COMPARISONS: dict[str, str] = {
    "isin": "write col.is_in([1, 2, 3])",
    **dict.fromkeys(("isnull", "isna", "is_none", "notnull", "notna"), _NULLS),
    **dict.fromkeys(("is_not_null", "is_valid", "drop_nulls", "isNull", "isNotNull"), _NULLS),
    "isnan": "write col.is_nan()",
    "is_between": "write col.between(low, high)",
    **dict.fromkeys(("startswith", "startsWith"), _STARTS),
    "str": f"{_STARTS} or col.contains(text)",
    **dict.fromkeys(("like", "match", "find"), "write col.contains(text)"),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "equals"), _OPERATORS),
    **dict.fromkeys(("map", "apply", "endswith", "ends_with", "cast", "astype"), _CALCULATED),
    **dict.fromkeys(("len", "abs", "lower", "upper", "dt", "list", "alias"), _CALCULATED),
}

# The same for the functions of modules.
_FUNCTIONS: dict[str, str] = {
    "Pipeline": "it is called rm.Stream",
    **dict.fromkeys(
        (
            "load",
            "read",
            "load_dataset",
            "loadtxt",
            "read_parquet",
            "read_hdf",
            "read_csv",
            "scan",
            "scan_parquet",
            "TFRecordDataset",
            "memmap",
            "File",
        ),
        "rm.open(path) opens files of any format",
    ),
    **dict.fromkeys(
        ("from_dict", "from_numpy", "from_pandas", "from_tensor_slices", "from_list", "array"),
        "rm.open(x) opens arrays, tables and lists of rows",
    ),
    "from_generator": "rm.from_batches(batches) takes a generator of batches",
    **dict.fromkeys(("save", "write", "savez"), "write ds.save(path)"),
    **dict.fromkeys(("interleave", "interleave_datasets"), "write rm.mix(a, b)"),
    **dict.fromkeys(("concatenate", "concatenate_datasets", "ConcatDataset"), _CONCAT),
    "DataLoader": "torch.utils.data.DataLoader(ds.batch(32).to_torch(), batch_size=None)",
    "random_split": _SPLIT,
}


def no_attribute(thing: object, name: str, columns: Collection[str] = ()) -> AttributeError:
    """Return the error for an attribute that a dataset or stream does not have."""
    kind = type(thing)
    advice = f"ds[{name!r}] is the column" if name in columns else _ATTRIBUTES.get(name)
    if advice is None and any(hasattr(each, name) for each in _kinds_of(kind)):
        advice = f"{name} is for rows: call it before batch, bucket, pack or shard"
    advice = advice or _nearest(name, thing)
    told = "" if advice is None else f"; {advice}"
    return AttributeError(f"{kind.__name__!r} object has no attribute {name!r}{told}")


def _nearest(name: str, thing: object) -> str | None:
    """Return the question whether an attribute with a similar name is meant."""
    near = [] if name[0] == "_" else difflib.get_close_matches(name, dir(thing), 1)
    return f"did you mean {near[0]!r}?" if near else None


def no_comparison(thing: object, name: str) -> AttributeError:
    """Return the error for an attribute that a column of a condition does not have."""
    advice = _COMPARISONS.get(name) or _nearest(name, thing)
    told = "" if advice is None else f"; {advice}"
    return AttributeError(f"a column of a condition has no attribute {name!r}{told}")


def _kinds_of(kind: type) -> list[type]:
    """Return the kinds that are made of another: datasets are streams that can do more."""
    below: list[type] = kind.__subclasses__()
    return [each for made in below for each in (made, *_kinds_of(made))]


def no_function(name: str) -> str:
    """Return what to write instead of a function that ``recmap`` does not have."""
    return f"; {_FUNCTIONS[name]}" if name in _FUNCTIONS else ""
