"""The parts of Ray Data that recmap uses. Importing this module imports Ray."""

from __future__ import annotations

from ray.data import DataContext, Datasink, Datasource, ReadTask, read_datasource
from ray.data.block import BlockAccessor, BlockMetadata
from ray.data.extensions import (
    ArrowTensorArray,
    ArrowVariableShapedTensorType,
    get_arrow_extension_tensor_types,
)

__all__ = [
    "ArrowTensorArray",
    "ArrowVariableShapedTensorType",
    "BlockAccessor",
    "BlockMetadata",
    "DataContext",
    "Datasink",
    "Datasource",
    "ReadTask",
    "get_arrow_extension_tensor_types",
    "read_datasource",
]
