"""recmap schema: print the fields as JSON, or code that reads the files.

The code uses TensorFlow alone, or is a PyTorch Dataset.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace
from typing import Any

from recmap.cli.arguments import add_source, add_verb, call_text, opened
from recmap.dataset.dataset import opened_rows
from recmap.errors import OptionError
from recmap.formats.tfrecord_partitions import RecordSource
from recmap.model.field import Field
from recmap.model.json_text import json_text
from recmap.model.schema import Schema
from recmap.model.source import Source
from recmap.native import _core
from recmap.tfrecord.embedded_schema import LISTS
from recmap.tfrecord.encoder import choose_encoding, parsing_of

_EXAMPLES = """  recmap schema train.tfrecord --as tf > features.py
  recmap schema train.npy --as torch
  recmap schema train.tfrecord           # JSON: {"label": "int64", ...}
"""
Kind = _core.Kind
_LISTS = {
    Kind.bytes: "tf.string",
    Kind.float: "tf.float32",
    Kind.int64: "tf.int64",
}
# The types that decode_raw returns, and those that need a bitcast from another type.
_DECODED = {
    "bool", "uint8", "uint16", "int8", "int16", "int32", "int64", "float16", "bfloat16",
    "float32", "float64", "complex64", "complex128",
}  # fmt: skip
_BITCAST = {"uint32": "int32", "uint64": "int64"}
_TORCH_TYPES = {
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
    "float16", "float32", "float64", "complex64", "complex128",
}  # fmt: skip


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "schema",
        run,
        help="print the columns as code for TensorFlow or PyTorch, or as JSON",
        description=(
            "Prints code that reads the same files: the features of tf.io.parse_example with a "
            "function that decodes them, or a torch Dataset; or the types of the columns as JSON."
        ),
        examples=_EXAMPLES,
    )
    add_source(parser)
    parser.add_argument(
        "--as",
        dest="form",
        choices=("tf", "torch", "json"),
        default="json",
        help="code for TensorFlow or PyTorch, or JSON (the default)",
    )


def run(args: argparse.Namespace) -> int:
    dataset = opened(args)
    if args.form == "json":
        print(json_text(dataset.schema))
    elif args.form == "torch":
        print(torch_code(dataset.schema, call_text(args)), end="")
    else:
        source = opened_rows(dataset).source
        if not isinstance(source, RecordSource):
            raise OptionError(
                f"--as tf reads TFRecord files, and {args.path[0]} is not one (recmap "
                "convert makes them, and --as torch reads any format)"
            )
        print(tf_code(source), end="")
    return 0


@dataclass(frozen=True)
class _StoredFeature:
    """How a field is stored in the records."""

    name: str
    field: Field
    kind: Kind
    in_lists: bool

    @property
    def key(self) -> str:
        return self.name.removeprefix(LISTS) if self.in_lists else self.name

    @property
    def raw(self) -> bool:
        """Whether the values are stored as raw bytes: one string, or one per step."""
        return self.kind == Kind.bytes and not self.field.is_bytes


def tf_code(source: Source) -> str:
    """Return code that parses the records of these files with TensorFlow alone."""
    features = [_feature(source, name, field) for name, field in source.schema.items()]
    flat = [feature for feature in features if not feature.in_lists]
    lists = [feature for feature in features if feature.in_lists]
    lines = ["import tensorflow as tf", ""]
    lines += _specs("context_features" if lists else "features", flat)
    if lists:
        lines += _specs("sequence_features", lists)
    lines += ["", "", "def parse(record):"]
    if lists:
        lines += [
            "    row, steps = tf.io.parse_single_sequence_example(",
            "        record, context_features, sequence_features",
            "    )",
        ]
        lines += [f"    row[{f.name!r}] = steps[{f.key!r}]" for f in lists]
    else:
        lines += ["    row = tf.io.parse_single_example(record, features)"]
    lines += [f"    row[{f.name!r}] = {text}" for f in features if (text := _decoding(f))]
    lines += ["    return row", "", "", f"dataset = {_dataset(source)}.map(parse)", ""]
    return "\n".join(lines)


def _feature(source: Source, name: str, field: Field) -> _StoredFeature:
    seen = source.features() if isinstance(source, RecordSource) else {}
    found = seen.get(name) or seen.get(name.removeprefix(LISTS))
    if found is not None and found.kinds:
        return _StoredFeature(name, field, next(iter(found.kinds)), found.in_lists)
    # The feature is rare and not in the sample. Assume that it is stored as recmap would.
    encoding = choose_encoding(name, field)
    return _StoredFeature(name, field, encoding.kind, encoding.in_lists)


def _specs(variable: str, features: list[_StoredFeature]) -> list[str]:
    if not features:
        return [f"{variable} = {{}}"]
    lines = [f"    {f.key!r}: {_spec(f)}," + _comment(f) for f in features]
    return [f"{variable} = {{", *lines, "}"]


def _comment(feature: _StoredFeature) -> str:
    raw = [f"raw bytes of {feature.field}"] if feature.raw else []
    null = "empty" if feature.field.ragged or feature.field.is_bytes else "0"
    nulls = [f"{null} where it is null"] if feature.field.nullable else []
    return f"  # {', '.join([*raw, *nulls])}" if raw or nulls else ""


def _spec(feature: _StoredFeature) -> str:
    parsing = parsing_of(_filled(feature.field), feature.kind, feature.in_lists)
    shape, dtype = list(parsing.shape), _LISTS[parsing.kind]
    if parsing.form == "steps":
        return f"tf.io.FixedLenSequenceFeature({shape}, {dtype}, allow_missing=True)"
    if parsing.form == "fixed":
        return f"tf.io.FixedLenFeature({shape}, {dtype}{_default(parsing.default)})"
    sizes = [f"tf.io.RaggedFeature.UniformRowLength({axis})" for axis in shape]
    partitions = f", partitions=[{', '.join(sizes)}]" if sizes else ""
    return f"tf.io.RaggedFeature({dtype}{partitions})"


def _filled(field: Field) -> Field:
    """Return what TensorFlow reads, which has no nulls."""
    if not field.nullable or field.ragged:
        return field.without_nulls()
    fill: Any = ("" if field.is_text else b"") if field.is_bytes else 0
    return replace(field, nullable=False, fill=fill)


def _default(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return f", default_value=[{_literal(value[0])}] * {len(value)}"
    return f", default_value={_literal(value)}"


def _literal(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _decoding(feature: _StoredFeature) -> str | None:
    """Return code that converts the parsed feature to the field; None if not needed."""
    field, value = feature.field, f"row[{feature.name!r}]"
    name = field.dtype.newbyteorder("=").name if field.dtype.kind != "V" else field.dtype.name
    if feature.raw:
        return _decoding_raw(feature, name, value)
    if field.is_bytes or f"tf.{name}" == _LISTS[feature.kind] or field.dtype.kind in "mM":
        return None
    return f"tf.cast({value}, tf.{name})"


def _decoding_raw(feature: _StoredFeature, name: str, value: str) -> str | None:
    field = feature.field
    # TensorFlow has no dates, so they stay integers.
    name = "int64" if field.dtype.kind in "mM" else name
    decoded = _BITCAST.get(name, name)
    if decoded not in _DECODED:
        return None
    order = "" if field.dtype.isnative else ", little_endian=False"

    def decode(text: str) -> str:
        made = f"tf.io.decode_raw({text}, tf.{decoded}{order})"
        return made if decoded == name else f"tf.bitcast({made}, tf.{name})"

    if feature.in_lists and field.ragged == 2:
        inner = [-1, *field.inner]
        shape = [None, *field.inner]
        return (
            f"tf.map_fn(lambda step: tf.reshape({decode('step')}, {inner}), {value}, "
            f"fn_output_signature=tf.RaggedTensorSpec({shape}, tf.{name}, 0))"
        )
    return f"tf.reshape({decode(value)}, {[-1] * (field.ragged > 0) + list(field.inner)})"


def _dataset(source: Source) -> str:
    facts = source.facts
    files = facts.files[0] if len(facts.files) == 1 else facts.files
    compression = facts.compressed_files.get(facts.files[0])
    option = f", compression_type={compression.upper()!r}" if compression else ""
    return f"tf.data.TFRecordDataset({files!r}{option})"


def torch_code(schema: Schema, call: str) -> str:
    """Return code that opens files with ``call`` and returns each row as a dict of tensors."""
    values = "".join(
        f"            {name!r}: {_torch_value(name, field)},  # {field}\n"
        for name, field in schema.items()
    )
    return f"""\
import numpy as np
import recmap as rm
import torch


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = {call}

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        return {{
{values}        }}
"""


def _torch_value(name: str, field: Field) -> str:
    row = f"row[{name!r}]"
    if field.nullable:
        return f"None if {row} is None else {_torch_value(name, replace(field, nullable=False))}"
    if field.null_items:
        return f"{row}.tolist()"  # tensors have no nulls
    if field.is_bytes:
        return row if not field.shape else f"{row}.tolist()"
    if field.ragged > 1:
        return f"[{_torch_tensor('step', field)} for step in {row}]"
    return _torch_tensor(row, field)


def _torch_tensor(value: str, field: Field) -> str:
    dtype = field.dtype.newbyteorder("=") if field.dtype.kind != "V" else field.dtype
    if dtype.name in _TORCH_TYPES:
        cast = "" if field.dtype.isnative else f", {dtype.name!r}"
        return f"torch.from_numpy(np.asarray({value}{cast}))"
    if dtype.name == "bfloat16":
        return f"torch.from_numpy(np.asarray({value}).view(np.int16)).view(torch.bfloat16)"
    if dtype.kind in "mM":
        return f"torch.from_numpy(np.asarray({value}).astype(np.int64))"
    return value  # torch has no such type
