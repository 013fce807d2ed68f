"""The columns that ``features.json`` describes, and their descriptions for a new one.

The description is a tree. Its leaves are columns, named by their path: ``objects/bbox``. A leaf
is a tensor inside any number of sequences. The file has one of two spellings: that of protobuf,
``{"pythonClassName": ..., "tensor": {...}}``, or an older one, ``{"type": ..., "content": {...}}``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from recmap.errors import DataError
from recmap.formats.tfds.feature import Feature
from recmap.model.field import TEXT

ENCODINGS = ("none", "bytes", "zlib")
_PACKAGE = "tensorflow_datasets.core.features."
_NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
            "float16", "float32", "float64")  # fmt: skip
# Nesting beyond this is a damaged or hostile file.
_MOST_LEVELS = 64
# The most axes and values of one item that a description may claim.
_MOST_AXES, _MOST_VALUES = 32, 1 << 40


def parse_features(content: Mapping[str, Any], file: str) -> list[Feature]:
    """Return the columns in the order of the file."""
    try:
        features = list(_leaves(content, (), (), None, 0))
    except _DescriptionError as e:
        raise DataError(f"{file}: {e}", file=file) from None
    seen: set[str] = set()
    for name in (feature.name for feature in features):
        if not name or name in seen:
            raise DataError(f"{file}: {name!r} is not the name of exactly one feature", file=file)
        seen.add(name)
    return features


class _DescriptionError(Exception):
    """A description that cannot be read. The message names the feature."""


def _leaves(
    entry: Any,
    path: tuple[str, ...],
    lengths: tuple[int | None, ...],
    steps: str | None,
    level: int,
) -> Iterator[Feature]:
    name = "/".join(path)
    if level > _MOST_LEVELS:
        raise _DescriptionError(f"{name[:100]!r} is nested too deeply")
    kind, content = _kind_and_content(entry, name)
    if kind in ("FeaturesDict", "Translation"):
        for child, below in _children(kind, content, name).items():
            yield from _leaves(below, (*path, child), lengths, steps, level + 1)
        return
    if not path:
        raise _DescriptionError(f"the features are not a dict of columns but a {kind}")
    inner = content.get("feature")
    if kind in ("Sequence", "Dataset"):
        around = name if kind == "Dataset" and steps is None and not lengths else steps
        length = _length(content.get("length"), name)
        yield from _leaves(inner, path, (*lengths, length), around, level + 1)
    elif kind == "TranslationVariableLanguages":
        for child in ("language", "translation"):
            text = Feature((*path, child), TEXT, lengths=(*lengths, None), steps=steps)
            yield text
    elif kind == "Video":
        shape = _shape(content, name)
        frame = Feature(path, lengths=(*lengths, shape[0] if shape else None), steps=steps)
        yield replace(frame, note=_image_note("video of images", content, shape[1:]))
    else:
        entry = entry if "pythonClassName" in entry else None
        yield replace(_tensor(kind, content, path), lengths=lengths, steps=steps, entry=entry)


def _kind_and_content(entry: Any, name: str) -> tuple[str, dict[str, Any]]:
    """Return the class of a feature and its settings, with the names that JSON gives them."""
    if not isinstance(entry, dict):
        raise _DescriptionError(f"{name!r} is not described by an object")
    if isinstance(entry.get("type"), str):
        python, content = entry["type"], entry.get("content")
        if isinstance(content, str):
            content = _json(content, name)
    else:
        python = entry.get("pythonClassName", entry.get("python_class_name"))
        told = ("pythonClassName", "python_class_name", "description", "valueRange", "value_range")
        contents = [value for key, value in entry.items() if key not in told]
        content = contents[0] if contents else {}
        if isinstance(content, dict) and set(content) == {"json"}:
            content = _json(content["json"], name)
    if not isinstance(python, str) or not isinstance(content, dict | None):
        raise _DescriptionError(f"{name!r} does not say what it is")
    made = {_camel(str(key)): value for key, value in (content or {}).items()}
    kind = python.rpartition(".")[2]
    if kind in ("FeaturesDict", "Translation", "TranslationVariableLanguages"):
        made = dict(content or {})
    return (kind if python.startswith(_PACKAGE) else python), made


def _json(text: Any, name: str) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        raise _DescriptionError(f"{name!r} is not described by JSON") from None


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


def _children(kind: str, content: Mapping[str, Any], name: str) -> dict[str, Any]:
    if kind == "Translation":
        languages = content.get("languages", [])
        if not isinstance(languages, list):
            raise _DescriptionError(f"{name!r}: 'languages' is not a list")
        text = {"type": f"{_PACKAGE}text_feature.Text"}
        return dict.fromkeys(sorted(map(str, languages)), text)
    inside = content.get("features")
    # In the older spelling, the children are the content. One of them may be called "features",
    # and in either spelling, one may be called "type": only that of a feature is text.
    older = not isinstance(inside, dict) or isinstance(inside.get("type"), str)
    found = content if older else inside
    assert isinstance(found, Mapping)
    return {str(key): value for key, value in found.items()}


def _tensor(kind: str, content: Mapping[str, Any], path: tuple[str, ...]) -> Feature:
    name = "/".join(path)
    optional = content.get("optional") is True
    if kind == "Text":
        if "useEncoder" in content:
            return Feature(
                path, problem="is an encoded text, whose vocabulary recmap does not read"
            )
        return Feature(path, TEXT, optional=optional)
    if kind == "ClassLabel":
        count = content.get("numClasses")
        classes = int(str(count)) if re.fullmatch(r"\d{1,18}", str(count)) else None
        return Feature(path, np.dtype(np.int64), classes=classes)
    if kind == "BBoxFeature":
        form = content.get("bboxFormat")
        return Feature(path, np.dtype(np.float32), (4,), note=f"box, {form or 'yxyx'}")
    if kind in ("Image", "LabeledImage"):
        return Feature(path, note=_image_note("image", content, _shape(content, name)))
    if kind not in ("Tensor", "Scalar", "Audio"):
        return Feature(path, problem=f"is a {kind}, which recmap does not know")
    audio = _audio_note(content) if kind == "Audio" else ""
    if content.get("lazyDecode"):
        return Feature(path, note=f"{audio}, encoded")
    dtype, encoding = content.get("dtype", ""), content.get("encoding") or "none"
    shape = _shape(content, name)
    feature = Feature(path, shape=shape, optional=optional, note=audio)
    if not isinstance(encoding, str) or encoding.lower() not in ENCODINGS:
        return replace(feature, problem=f"has the encoding {encoding!r}")
    feature = replace(feature, encoding=encoding.lower())
    if dtype in ("string", "object"):
        return feature
    if dtype == "bfloat16" and feature.encoding == "none":
        return replace(feature, dtype=np.dtype(np.float32), note="bfloat16, kept as float32")
    if dtype not in _NUMBERS:
        return replace(feature, problem=f"has the dtype {dtype!r}")
    if feature.dynamic and feature.encoding == "none":
        return replace(feature, problem=f"has the shape {shape}, which records do not store")
    return replace(feature, dtype=np.dtype(dtype))


def _image_note(what: str, content: Mapping[str, Any], shape: tuple[int | None, ...]) -> str:
    axes = " x ".join("?" if axis is None else str(axis) for axis in shape)
    words = [what, content.get("encodingFormat"), axes, content.get("dtype")]
    return ", ".join(str(word) for word in words if word)


def _audio_note(content: Mapping[str, Any]) -> str:
    rate = content.get("sampleRate")
    words = ["audio", content.get("fileFormat"), f"{rate} Hz" if rate and rate != "0" else None]
    return ", ".join(str(word) for word in words if word)


def _shape(content: Mapping[str, Any], name: str) -> tuple[int | None, ...]:
    given = content.get("shape") or []
    axes = given.get("dimensions") or [] if isinstance(given, dict) else given
    if not isinstance(axes, list) or len(axes) > _MOST_AXES:
        raise _DescriptionError(f"{name!r}: {given!r} is not a shape")
    shape = tuple(_length(axis, name) for axis in axes)
    if math.prod(axis or 1 for axis in shape) > _MOST_VALUES:
        raise _DescriptionError(f"{name!r}: {shape} is not a shape that a record can have")
    return shape


def _length(value: Any, name: str) -> int | None:
    if value is None:
        return None
    # JSON made by protobuf has 64-bit numbers as text.
    if type(value) not in (int, str) or not re.fullmatch(r"-1|\d{1,18}", str(value)):
        raise _DescriptionError(f"{name!r}: {value!r} is not a length")
    return None if int(value) == -1 else int(value)


def feature_group(inner: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a group of columns, or of all of them."""
    return _class("features_dict.FeaturesDict", "featuresDict", {"features": inner})


def step_group(inner: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a nested dataset, such as the steps of an episode."""
    content = {"feature": feature_group(inner), "length": _written(None)}
    return _class("dataset_feature.Dataset", "sequence", content)


def described_image(feature: Feature, kind: str) -> dict[str, Any]:
    """Return the description of a column of images of any size, encoded as png or jpeg."""
    image = {"shape": {"dimensions": ["-1", "-1", "3"]}, "dtype": "uint8", "encodingFormat": kind}
    return described(replace(feature, entry=_class("image_feature.Image", "image", image)))


def described(feature: Feature, classes: int = 0) -> dict[str, Any]:
    """Return the description of a column, as ``features.json`` has it."""
    if feature.entry is not None:
        made = dict(feature.entry)
    elif feature.dtype == TEXT:
        made = _class("text_feature.Text", "text", {})
    elif classes:
        count = {"numClasses": str(classes)}
        made = _class("class_label_feature.ClassLabel", "classLabel", count)
    else:
        tensor = {
            "shape": {"dimensions": [_written(axis) for axis in feature.shape]},
            "dtype": "string" if feature.is_string else feature.dtype.name,
            "encoding": feature.encoding,
        }
        made = _class("tensor_feature.Tensor", "tensor", tensor)
    for length in reversed(feature.lengths):
        sequence = {"feature": made, "length": _written(length)}
        made = _class("sequence_feature.Sequence", "sequence", sequence)
    return made


def _class(name: str, kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
    return {"pythonClassName": f"{_PACKAGE}{name}", kind: dict(content)}


def _written(length: int | None) -> str:
    return "-1" if length is None else str(length)
