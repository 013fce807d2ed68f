"""Connect to a Ray cluster, run tasks, and check which files its nodes can see."""

from __future__ import annotations

import logging
import os
import pickle
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

from recmap.conversion.manifest import manifest_path
from recmap.conversion.plan import is_output_folder
from recmap.errors import (
    AccessDeniedError,
    Message,
    MissingPackageError,
    Option,
    OptionError,
    PathNotFoundError,
    RecmapError,
    StoreError,
    WorkerDiedError,
)
from recmap.local.local_path import located, working_folder
from recmap.local.temporary import Process, acting_for, remove, temporary_path, this_process
from recmap.machine.cpus import using_threads
from recmap.store.object_address import store_of
from recmap.store.storage import is_url

# CPUs that a task requests from Ray and uses.
TASK_CPUS = 1
# Seconds within which a cluster must answer.
_CONNECT_TIMEOUT = 10.0
_DENIED = "may not read it"
_GIVE_STORAGE = (
    "The environment of this process is not copied to the nodes: give the options of the store, "
    "with credentials, as storage={...}"
)


def load_ray() -> Any:
    """Import Ray, or raise an error that says how to install it."""
    try:
        import ray
    except ImportError as e:
        raise MissingPackageError("this needs Ray", extra="ray") from e
    return ray


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster, and disconnect at the end unless this program was connected before."""
    opens = not load_ray().is_initialized()
    ray = connect(address)
    try:
        yield ray
    finally:
        if opens:
            ray.shutdown()


def connect(address: str | None) -> Any:
    """Return Ray, connected as this program already is or to the cluster at ``address``.

    As in ``ray.init``, None means the cluster on this machine, or a new one if there is none.
    """
    ray = load_ray()
    if ray.is_initialized():
        connected = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", connected):
            raise OptionError(
                Message(
                    Option("engine", f"ray:{address}"),
                    f": this program is connected to {connected} already; leave the address out, "
                    "or call ray.shutdown() first",
                )
            )
        return ray
    try:
        _check_reachable(address)
        ray.init(
            address=address,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (OSError, RuntimeError, ValueError) as e:
        where = () if address is None else (Option("engine", f"ray:{address}"), ": ")
        raise OptionError(
            Message(
                *where,
                f"no Ray cluster could be reached ({e}); `ray start --head` on the first machine "
                "starts one and prints its address",
            )
        ) from e
    return ray


def _check_reachable(address: str | None) -> None:
    """Raise if nothing listens at the address. Ray itself would keep trying for minutes."""
    host, colon, port = (address or "").rpartition(":")
    if colon and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT).close()


@dataclass(frozen=True)
class Node:
    """A node that can run tasks."""

    id: str
    name: str
    cpus: float
    memory: float


def working_nodes(ray: Any) -> list[Node]:
    """Return the nodes with enough CPUs for a task."""
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
    """Return the total number of CPUs for tasks on all nodes, at least 1."""
    return max(1, int(sum(node.cpus for node in working_nodes(ray))))


@dataclass(frozen=True)
class Driver:
    """The driver's working directory and process.

    Relative paths start at the directory. The process owns the temporary files that tasks write.
    """

    folder: str
    process: Process

    @classmethod
    def here(cls) -> Driver:
        return cls(working_folder() or os.sep, this_process())

    @contextmanager
    def impersonated(self) -> Iterator[None]:
        """Make this process act for the driver, using the CPUs of one task."""
        with ExitStack() as stack:
            stack.enter_context(acting_for(self.process))
            stack.enter_context(using_threads(TASK_CPUS))
            # The folder may be missing on a node. Relative paths then fail the visibility check.
            if os.path.isdir(self.folder):
                stack.enter_context(chdir(self.folder))
            yield


def task_result(ray: Any, task: Any, purpose: str, retries: int) -> Any:
    """Return the result of a task, or raise its original error without Ray's wrapping.

    If the task died, and all of its ``retries`` too, the error names its ``purpose``.
    """
    try:
        return ray.get(task)
    except ray.exceptions.RayTaskError as e:
        if not isinstance(e.cause, Exception):
            raise
        error = e.cause
    except ray.exceptions.RayError as e:
        reason = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise WorkerDiedError(
            Message(
                f"{purpose}: its Ray task died {retries + 1} times in a row: {reason}",
                hint=("the node may be too small for it: ", Option("memory"), " is for each task"),
            )
        ) from e
    raise error


_Seen: TypeAlias = tuple[str, tuple[int, int | str] | None]


def _seen(path: str) -> _Seen:
    """Return a path, and what this process sees there.

    That is the size and modification time of a file, the size and version of an object, and None
    for a folder and for an object that does not exist.
    """
    now = located(path).anew()
    if now.is_folder():
        return now, None
    if not now.remote:
        found = now.stat()
        return now, (found.size, int(found.version) // 10**9)
    (there,) = now.stats([now])
    return now, None if there is None else (there.size, there.version)


def check_visible(ray: Any, driver: Driver, files: Sequence[str], dst: str | None = None) -> None:
    """Raise if a node does not see the same files, and the same folder of ``dst``, as the driver.

    To identify the folder, the driver puts a temporary file into it. Of a store, one object is
    enough: whoever reads another one later checks its version.
    """
    with nullcontext() if dst is None else _probe_file(dst) as probe:
        paths = [*_one_of_each_store(files), *([probe] if probe else [])]
        # Pickled here, so that the task itself reports what is wrong with the options of a store.
        seen = pickle.dumps(list(map(_seen, paths)))
        look = ray.remote(_find_difference)
        affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        asked = {
            look.options(num_cpus=0, scheduling_strategy=affinity(node.id, soft=False)).remote(
                driver, seen
            ): node
            for node in working_nodes(ray)
        }
        for ref, node in asked.items():
            difference = _difference_on(ray, ref, node)
            if difference is not None:
                raise _invisible(*difference, node, probe)


def _one_of_each_store(files: Sequence[str]) -> list[str]:
    """Return the local files, and one object of each store."""
    stores = {path: store_of(located(path)) for path in files}
    objects = {store.place: path for path, store in stores.items() if store is not None}
    return [path for path in files if stores[path] is None] + list(objects.values())


def _invisible(path: str, why: str, node: Node, probe: str | None) -> RecmapError:
    if is_url(path):
        kind = AccessDeniedError if why == _DENIED else StoreError
        return kind(f"{path}: node {node.name} {why}; nothing was done. {_GIVE_STORAGE}", url=path)
    shown = os.path.dirname(path) if path == probe else path
    return PathNotFoundError(
        f"{os.path.abspath(shown)}: node {node.name} {why}; nothing was done. "
        "Use storage that all nodes see under the same path"
    )


def _difference_on(ray: Any, ref: Any, node: Node) -> tuple[str, str] | None:
    try:
        answer: tuple[str, str] | None = ray.get(ref)
    except (ray.exceptions.NodeDiedError, ray.exceptions.TaskUnschedulableError):
        return None  # the node is gone, so it gets no tasks
    except ray.exceptions.RayTaskError as e:
        if not isinstance(e.cause, OptionError):
            raise _cannot_run(node, e) from e
        error = OptionError(f"node {node.name}: {e.cause}; nothing was done. {_GIVE_STORAGE}")
    except ray.exceptions.RayError as e:
        raise _cannot_run(node, e) from e
    else:
        return answer
    raise error


def _cannot_run(node: Node, error: Exception) -> WorkerDiedError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    return WorkerDiedError(
        f"node {node.name} cannot run recmap: {reason}; every node needs the same recmap and "
        "the same packages as the driver"
    )


def _find_difference(driver: Driver, pickled: bytes) -> tuple[str, str] | None:
    """Return the first path that looks different in this process, and why. Runs in a task."""
    with driver.impersonated():
        expected: list[_Seen] = pickle.loads(pickled)  # noqa: S301 - our own
        for there, wanted in expected:
            path = str(there)  # without the options of a store
            try:
                _, found = _seen(there)
            except FileNotFoundError:
                return path, "does not see it"
            except AccessDeniedError:
                return path, _DENIED
            except StoreError as e:
                return path, f"cannot read it ({str(e).removeprefix(path + ': ')})"
            except OSError as e:
                return path, f"cannot read it ({e.strerror})"
            if found != wanted:
                missing = found is None and located(there).remote
                return path, "does not see it" if missing else "sees another file under that name"
    return None


@contextmanager
def _probe_file(dst: str) -> Iterator[str]:
    """Create a temporary file in the output folder, and remove it on exit.

    In a store, that would show nothing that the run lock does not, so nothing is created.
    """
    if located(dst).remote:
        yield manifest_path(dst)
        return
    path = temporary_path(os.path.join(_folder_of(dst), "visible"))
    try:
        with open(path, "x", encoding="utf-8"):
            pass
        yield path
    finally:
        remove(path)


@contextmanager
def output_folder(dst: str) -> Iterator[None]:
    """Create the output folder. After a failure, remove the folders it created if empty.

    A store has no folders.
    """
    if located(dst).remote:
        yield
        return
    folder = _folder_of(dst)
    created = _missing_folders(folder)
    os.makedirs(folder, exist_ok=True)
    try:
        yield
    except BaseException:
        for made in created:
            if os.path.isdir(made) and not os.listdir(made):
                os.rmdir(made)
        raise


def _folder_of(dst: str) -> str:
    return os.path.join(
        ".", (dst if is_output_folder(dst) else os.path.dirname(dst)).rstrip(os.sep)
    )


def _missing_folders(folder: str) -> list[str]:
    """Return the folders that do not exist yet, innermost first."""
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing
