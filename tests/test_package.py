"""The package as a whole: its names, its imports, and its columns in other libraries."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap import errors
from recmap.conversion.options import OutputOptions, SaveOptions
from recmap.formats.open_spec import OpenOptions
from recmap.formats.registry import FORMATS
from recmap.pipeline.verbs import Verbs
from tests.docs.pages import ROOT
from tests.frameworks import jax, torch


def test_exported_names_are_sorted_and_exist() -> None:
    for module in (rm, errors, rm.tfrecord):
        assert module.__all__ == sorted(module.__all__)
        assert all(hasattr(module, name) for name in module.__all__)
    assert set(errors.__all__) <= set(rm.__all__)


def test_every_error_is_a_recmap_error_and_a_builtin() -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        if name.endswith("Warning"):
            assert issubclass(kind, UserWarning)
        elif kind is not errors.RecmapError:
            assert issubclass(kind, errors.RecmapError)
            assert issubclass(kind, ValueError | OSError | LookupError | ImportError | RuntimeError)
            assert str(kind("what is wrong")) == "what is wrong"


def packages(program: str) -> set[str]:
    """Return the packages of others that a program imports."""
    shown = "; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    run = subprocess.run(
        [sys.executable, "-c", f"import sys, recmap{program}{shown}"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = set(run.stdout.split()) - set(sys.stdlib_module_names)
    return {name for name in found if name[0] != "_"}


def test_importing_recmap_imports_no_other_package() -> None:
    assert packages("") == {"recmap"}
    everything = "; [getattr(recmap, name) for name in recmap.__all__]"
    assert packages(everything) == {"isal", "numpy", "recmap", "zlib_ng"}


def public(thing: object) -> set[str]:
    """Return the names that completion offers, without dunders."""
    return {name for name in dir(thing) if not name.startswith("__")}


def documented(name: str) -> set[str]:
    """Return the members of a class that docs/api.md shows."""
    text = (ROOT / "docs" / "api.md").read_text()
    block = text.split(f"::: {name}\n")[1].split(":::")[0]
    inline = re.search(r"members: \[(.*)\]", block)
    if inline is not None:
        return set(inline[1].replace(",", " ").split())
    return set(re.findall(r"^ {8}- (\w+)$", block, re.MULTILINE))


def verbs() -> set[str]:
    return {name for name in dir(Verbs) if not name.startswith("_")}


def test_completion_of_the_module_offers_what_is_documented() -> None:
    assert public(rm) == set(rm.__all__)
    assert {"errors", "ray", "tf", "tfrecord"} <= set(rm.__all__)


def test_completion_of_a_dataset_offers_what_is_documented() -> None:
    own = documented("recmap.Dataset") | documented("recmap.Stream")
    assert public(rm.from_arrays({"x": np.arange(3)})) == own | verbs()


def test_completion_of_a_pipeline_offers_what_is_documented() -> None:
    pipeline = rm.from_arrays({"x": np.arange(3)}).batch(2)
    assert public(pipeline) == documented("recmap.Stream") | verbs()


def keywords(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the keyword arguments of a function, and their defaults."""
    parameters = inspect.signature(function).parameters
    return {name: p.default for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}


def options(kind: type) -> dict[str, Any]:
    """Return the names and defaults of options."""
    return {field.name: field.default for field in dataclasses.fields(kind)}


def test_the_arguments_of_functions_are_their_options() -> None:
    storage: dict[str, Any] = {"storage": None}
    assert keywords(rm.open) == options(OpenOptions) | storage
    assert keywords(rm.Dataset.save) == options(SaveOptions) | storage
    assert keywords(rm.convert) == options(SaveOptions) | storage
    written = keywords(rm.ray.write)
    shared = options(OutputOptions)
    assert {name: written[name] for name in shared} == shared
    types = inspect.get_annotations(rm.convert)
    saved = inspect.get_annotations(rm.Dataset.save)
    assert saved.items() - {("unknown", "Never")} <= types.items()


def test_every_option_is_documented() -> None:
    for function in (rm.open, rm.convert, rm.ray.write):
        documented = set(re.findall(r"\w+", inspect.getdoc(function) or ""))
        assert keywords(function).keys() <= documented


def test_the_help_of_open_lists_every_format() -> None:
    assert all(f'``"{name}"``' in (rm.open.__doc__ or "") for name in FORMATS)


def test_errors_name_the_options_that_help() -> None:
    np.save("x.npy", np.arange(3))
    rm.convert("x.npy", "y.npz")
    with pytest.raises(rm.OutputExistsError) as caught:
        rm.convert("x.npy", "y.npz", resume=False)
    assert caught.value.options == (errors.Option("overwrite", True),)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.options) == (str(caught.value), caught.value.options)


def test_late_names_are_found_and_unknown_ones_get_a_suggestion() -> None:
    assert rm.open is rm.open
    run = subprocess.run(
        [sys.executable, "-c", "import recmap; recmap.conver"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "has no attribute 'conver'. Did you mean: 'convert'?" in run.stderr


PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {path.name: path.read_text() for path in (ROOT / ".github" / "workflows").iterdir()}


def test_the_version_stands_in_one_place_and_others_agree() -> None:
    assert "version" in PROJECT["dynamic"]
    assert "version" not in PROJECT
    assert f"\nversion: {rm.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == rm.__version__


def test_every_python_that_is_promised_is_tested_before_a_release() -> None:
    known = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert PROJECT["requires-python"] == f">={known[0]}"
    tested = re.search(r"python: \[(.*)\]", WORKFLOWS["ci.yml"])
    assert tested is not None
    assert re.findall(r"[\d.]+", tested[1]) == known
    assert "branches: [main]" in WORKFLOWS["ci.yml"]
    assert "pull_request:" in WORKFLOWS["ci.yml"]


def test_actions_are_pinned_to_commits_that_comments_name() -> None:
    used = re.findall(r"uses: *(.*)", "\n".join(WORKFLOWS.values()))
    assert len(used) > 5
    assert [use for use in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", use)] == []


def test_pytorch_and_jax_accept_columns() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    with rm.TFRecordWriter("x.tfrecord", align=64) as w:
        w.write({"x": x})
    batch = rm.open("x.tfrecord")[:]
    tensor = torch.from_numpy(batch["x"])
    assert tensor.data_ptr() == batch["x"].ctypes.data
    assert tensor.tolist() == x.tolist()
    assert np.array_equal(jax.numpy.asarray(rm.open("x.tfrecord")["x"]), x)
