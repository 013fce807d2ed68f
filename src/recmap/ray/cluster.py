"""The nodes of a cluster, and whether they see the files that the driver sees."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from recmap.conversion.plan import is_folder
from recmap.errors import PathNotFoundError, WorkerDiedError
from recmap.files.temporary import remove, temporary_path
from recmap.ray.working_folder import TASK_CPUS, Home

__all__ = ["Node", "check_visible", "cpu_count", "output_folder", "working_nodes"]


@dataclass(frozen=True)
class Node:
    """A node that can run tasks."""

    id: str
    name: str
    cpus: float
    memory: float


def working_nodes(ray: Any) -> list[Node]:
    """Those that have processors for a task."""
    nodes = [
        Node(
            node["NodeID"],
            f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})",
            node["Resources"].get("CPU", 0),
            node["Resources"].get("memory", 0),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]
    return [node for node in nodes if node.cpus >= TASK_CPUS]


def cpu_count(ray: Any) -> int:
    """Processors for tasks, on all nodes; 1 at least."""
    return max(1, int(sum(node.cpus for node in working_nodes(ray))))


@dataclass(frozen=True)
class _Seen:
    """A file as the driver sees it; of a folder, only that it is one."""

    path: str
    state: tuple[int, int] | None

    @classmethod
    def here(cls, path: str) -> _Seen:
        if os.path.isdir(path):
            return cls(path, None)
        status = os.stat(path)
        return cls(path, (status.st_size, int(status.st_mtime)))


def check_visible(ray: Any, home: Home, files: Sequence[str], dst: str | None = None) -> None:
    """Refuses files that a node does not see, or sees otherwise, and a place for the output
    that is not that of the driver. It is looked for by a file that the driver puts there.
    """
    with nullcontext() if dst is None else _nonce(dst) as nonce:
        seen = [_Seen.here(path) for path in [*files, *([nonce] if nonce else [])]]
        look = ray.remote(_look)
        affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        asked = {
            look.options(num_cpus=0, scheduling_strategy=affinity(node.id, soft=False)).remote(
                home, seen
            ): node
            for node in working_nodes(ray)
        }
        for ref, node in asked.items():
            wrong = _answer(ray, ref, node)
            if wrong is not None:
                path, why = wrong
                shown = os.path.dirname(path) if path == nonce else path
                raise PathNotFoundError(
                    f"{os.path.abspath(shown)}: node {node.name} {why}; nothing was done: "
                    "use storage that all nodes see under the same path"
                )


def _answer(ray: Any, ref: Any, node: Node) -> tuple[str, str] | None:
    try:
        answer: tuple[str, str] | None = ray.get(ref)
    except (ray.exceptions.NodeDiedError, ray.exceptions.TaskUnschedulableError):
        return None  # it is gone, and gets no task
    except ray.exceptions.RayError as e:
        raise WorkerDiedError(
            f"node {node.name} cannot run recmap: {_last_line(e)}; every node needs the same "
            "recmap and the same packages as the driver"
        ) from e
    return answer


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


@contextmanager
def _nonce(dst: str) -> Iterator[str]:
    """A file where the output will be, for a moment."""
    path = temporary_path(os.path.join(_folder(dst), "visible"))
    try:
        with open(path, "x", encoding="utf-8"):
            pass
        yield path
    finally:
        remove(path)


@contextmanager
def output_folder(dst: str) -> Iterator[None]:
    """Makes the folder that the output will be in. After a failure it is gone again, unless
    something is in it.
    """
    made = _missing(_folder(dst))
    os.makedirs(_folder(dst), exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in made:
            if os.path.isdir(folder) and not os.listdir(folder):
                os.rmdir(folder)
        raise


def _folder(dst: str) -> str:
    return os.path.join(".", (dst if is_folder(dst) else os.path.dirname(dst)).rstrip(os.sep))


def _missing(folder: str) -> list[str]:
    """The folders that are not there yet, the innermost first."""
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing


def _look(home: Home, expected: Sequence[_Seen]) -> tuple[str, str] | None:
    """In a task: the first path that is not seen as expected, and why."""
    with home.entered():
        for wanted in expected:
            try:
                found = _Seen.here(wanted.path)
            except FileNotFoundError:
                return wanted.path, "does not see it"
            except OSError as e:
                return wanted.path, f"cannot look at it ({e.strerror})"
            if found != wanted:
                return wanted.path, "sees another file under that name"
    return None
