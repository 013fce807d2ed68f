"""Beyond one machine: conversion and reading on a Ray cluster."""

from recmap.ray.reading import read
from recmap.ray.writing import write

__all__ = ["read", "write"]
