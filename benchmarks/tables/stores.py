"""Datasets in a bucket of an S3 server on this machine, with and without latency."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.relay import Relay
from benchmarks.report import Row, Table, compare
from benchmarks.seaweedfs import ACCESS_KEY, SECRET_KEY, seaweedfs
from benchmarks.timing import Entrant, Measure, Runner, Timing
from benchmarks.workloads import MB, Workload

__all__ = ["measure"]

_NOTE = (
    "Datasets of {size} MB on a SeaweedFS server on this machine, which shares its CPUs; rows of "
    "float32, in {shards} TFRecord objects with an index each. A relay counts requests and bytes "
    "of every entrant; with 30 ms, it holds each request back for that long. Datasets are opened "
    "before the clock starts. In order: batch(n), with the disk cache off. Shuffled: "
    "shuffle(seed=1).batch(n), an exact shuffle; the first epoch begins with an empty cache, and "
    "the second reads what the first has kept. Amplification: bytes fetched by the size of the "
    "objects. Raw gets: all bytes with obstore, in ranges of 8 MB, thrown away, with the number of "
    "requests at a time that a trial found fastest. s3fs: the same with cat_ranges, 16 at a time. "
    "Lance: a scan, or take of a batch in random order. datasets: streaming of Parquet. "
    'WebDataset: tar files through "pipe:curl". LitData: a DataLoader over a StreamingDataset with '
    "an empty folder for chunks; its shuffle is not exact. Slow peers get fewer rows, the first "
    "ones. The best of {rounds} runs counts. Memory: peak of RssAnon during one run in a new "
    "process, above that after its imports."
)
_BUCKET = "public"
_SHARDS = 4
_ROUNDS = 3
_LATENCY = 0.03
_NAMES = ("200KB", "4KB")
_BATCHES = {"4KB": 256, "200KB": 32}
# Peers that take a second or more for all rows get so many MB.
_FEW = 64
# What recmap may hold: 128 MiB of requests, and 96 MiB around the place that is read, in one
# object and ahead in the next.
_MEMORY = 512 * MB
_ROW_REQUESTS = 2


@dataclass(frozen=True)
class _Server:
    """A server, and a relay to it without latency and one with it."""

    near: Relay
    far: Relay

    def storage(self, relay: Relay) -> dict[str, Any]:
        return {
            "endpoint": relay.url,
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
            "region": "us-east-1",
        }


class _Counted:
    """Runs jobs, and remembers the requests and bytes of the one that took most requests."""

    def __init__(self, runner: Runner, relay: Relay) -> None:
        self._runner, self._relay = runner, relay
        self.requests = self.received = 0

    def call(self, job: str, **options: Any) -> Measure:
        requests, received = self._relay.counts()
        run = self._runner.call(job, **options)
        now = self._relay.counts()
        counted = (now[0] - requests, now[1] - received)
        self.requests, self.received = max((self.requests, self.received), counted)
        return run


def measure(bench: Bench) -> Table:
    chosen = [bench.workloads[name] for name in _NAMES]
    size = chosen[0].rows * chosen[0].row_bytes / MB
    table = Table("Object stores", _NOTE.format(size=round(size), shards=_SHARDS, rounds=_ROUNDS))
    if bench.worker("obstore").missing:
        table.note += " Not measured: obstore is not installed."
        return table
    with _serving(bench.folder / "seaweedfs") as server:
        for workload in chosen:
            table.rows += _Case(bench, server, workload).rows()
    return table


@contextmanager
def _serving(folder: Path) -> Iterator[_Server]:
    folder.mkdir()
    with ExitStack() as stack:
        url = stack.enter_context(seaweedfs(folder))
        near, far = (stack.enter_context(Relay(url, delay)) for delay in (0, _LATENCY))
        yield _Server(near, far)


class _Case:
    """One workload in the bucket, and the races over it."""

    def __init__(self, bench: Bench, server: _Server, workload: Workload) -> None:
        self._bench, self._server, self._workload = bench, server, workload
        self._batch = _BATCHES[workload.name]
        self._cache = str(bench.folder / "store-cache")
        Path(self._cache).mkdir(exist_ok=True)
        self._local = self._make()
        self._upload(self._local, workload.name, "*")
        objects = [path for path in Path(self._local).glob("*.tfrecord") if path.is_file()]
        self._size = sum(path.stat().st_size for path in objects)
        self._url = f"s3://{_BUCKET}/{workload.name}/*.tfrecord"
        self._few = min(workload.rows, int(_FEW * MB / workload.row_bytes))

    def rows(self) -> list[Row]:
        rows = self._in_order()
        rows += self._shuffled()
        rows += self._again()
        rows += self._one_row()
        return rows + self._memory()

    # -- data ------------------------------------------------------------------------------------

    def _make(self) -> str:
        source = self._bench.source(self._workload)
        folder = Path(source, "in_a_bucket")
        folder.mkdir()
        self._bench.worker("recmap").call(
            "make", source=source, form="float", path=str(folder / "rows.tfrecord"),
            rows=self._workload.rows, shards=_SHARDS, index=True,
        )  # fmt: skip
        return str(folder)

    def _upload(self, folder: str, prefix: str, pattern: str) -> None:
        self._bench.worker("obstore").call(
            "upload", folder=folder, pattern=pattern, bucket=_BUCKET, prefix=prefix,
            storage=self._server.storage(self._server.near),
        )  # fmt: skip

    # -- races -----------------------------------------------------------------------------------

    def _in_order(self) -> list[Row]:
        title = f"{self._workload.title}, in order"
        near, far = self._server.near, self._server.far
        entrants = [
            *self._ours("recmap", "read", near),
            *self._ours("recmap, 30 ms", "read", far),
            *self._raw("raw gets", near),
            *self._raw("raw gets, 30 ms", far),
            *self._readers(),
        ]
        timings = self._race(title, entrants)
        ours, late = timings.pop("recmap"), timings.pop("recmap, 30 ms")
        late_gets = timings.pop("raw gets, 30 ms")
        rows = [compare(title, ours, timings.pop("raw gets"), 0.8)]
        rows += [compare(title, ours, peer) for peer in timings.values()]
        rows.append(compare(f"{title}, 30 ms", late, late_gets))
        rows.append(compare(f"{title}, 30 ms", late, _named(ours, "recmap, 0 ms"), 0.9))
        return rows

    def _shuffled(self) -> list[Row]:
        title = f"{self._workload.title}, shuffled"
        near, far = self._server.near, self._server.far
        entrants = [
            *self._ours("recmap", "shuffle", near, cache=self._cache),
            *self._ours("recmap, 30 ms", "shuffle", far, cache=self._cache),
            *self._ours("recmap, in order", "read", near),
        ]
        # Small rows without a cache are bound by requests.
        if self._workload.name == "200KB":
            entrants += self._ours("recmap, no cache", "shuffle", near)
            entrants += self._ours("recmap, no cache, 30 ms", "shuffle", far)
        timings = self._race(title, [*entrants, *self._shufflers()])
        ours, late = timings.pop("recmap"), timings.pop("recmap, 30 ms")
        bare, late_bare = timings.pop("recmap, no cache", None), None
        if bare is not None:
            late_bare = timings.pop("recmap, no cache, 30 ms")
        in_order = timings.pop("recmap, in order")
        first = f"{title}, first epoch"
        rows = [
            compare(first, ours, in_order, 0.6),
            compare(f"{first}, 30 ms", late, in_order),
            self._amplified(first, _runner(entrants, "recmap"), 2),
        ]
        if bare is not None and late_bare is not None:
            rows += [
                compare(f"{title}, no cache", bare, in_order),
                compare(f"{title}, no cache, 30 ms", late_bare, in_order),
                self._amplified(f"{title}, no cache", _runner(entrants, "recmap, no cache"), 2),
            ]
        rows += [
            compare(first, ours, peer, 1.0 if peer.name == "Lance" else None)
            for peer in timings.values()
        ]
        return rows

    def _again(self) -> list[Row]:
        title = f"{self._workload.title}, shuffled, second epoch"
        entrants = [
            *self._ours("recmap", "second_epoch", self._server.near, cache=self._cache),
            *self._bench.entrants(
                "stores", "recmap, local files", "second_epoch",
                path=f"{self._local}/*.tfrecord", batch=self._batch, checked=True,
            ),
        ]  # fmt: skip
        timings = self._race(title, entrants)
        return [compare(title, timings["recmap"], timings["recmap, local files"], 0.9)]

    def _one_row(self) -> list[Row]:
        """Count the requests for opening one object, and for the length and one row of it."""
        path = self._url.replace("*", "rows-00000-of-00004")
        opening = {"storage": self._server.storage(self._server.far)}
        reading = {"row": self._workload.rows // _SHARDS - 2}
        titles = {"open_one": "open one object", "one_row": "len and one row"}
        limits = {"open_one": None, "one_row": _ROW_REQUESTS}
        rows = []
        worker = self._bench.fresh_worker(name="stores")
        try:
            for job, options in (("open_one", opening), ("one_row", reading)):
                runner = _Counted(worker, self._server.far)
                # The first also imports packages and connects.
                runs = [runner.call(job, path=path, **options) for _ in range(_ROUNDS)]
                title = f"{self._workload.title}, {titles[job]}, 30 ms"
                self._bench.races.append(
                    {"case": f"stores {title}", "runs": [asdict(run) for run in runs]}
                )
                best = min(run.seconds for run in runs)
                rows.append(_request_row(title, runner.requests, best, limits[job]))
        finally:
            worker.close()
        return rows

    def _memory(self) -> list[Row]:
        rows = []
        jobs: dict[str, dict[str, Any]] = {
            "in order": {"of": "read"},
            "shuffled, first epoch": {"of": "shuffle", "cache": self._cache},
        }
        if self._workload.name == "200KB":
            jobs["shuffled, no cache"] = {"of": "shuffle"}
        for name, options in jobs.items():
            worker = self._bench.fresh_worker(name="stores")
            try:
                run = worker.call("watched", **self._options(self._server.near), **options)
            finally:
                worker.close()
            case = f"{self._workload.title}, {name}, memory"
            self._bench.races.append({"case": f"stores {case}", **asdict(run)})
            peak = f"{run.peak / MB:.0f} MB"
            rows.append(Row(case, peak, "", "", None, f"< {_MEMORY // MB} MB", run.peak < _MEMORY))
        return rows

    def _race(self, title: str, entrants: list[Entrant]) -> dict[str, Timing]:
        row_bytes = self._workload.row_bytes
        return self._bench.race(f"stores {title}", entrants, row_bytes, rounds=_ROUNDS)

    def _amplified(self, case: str, runner: _Counted, limit: float) -> Row:
        times = runner.received / self._size
        ours = f"amplification {times:.2f}, {runner.requests:,.0f} requests"
        return Row(case, ours, "", "", None, f"amplification < {limit:g}", times < limit)

    # -- entrants --------------------------------------------------------------------------------

    def _options(self, relay: Relay) -> dict[str, Any]:
        storage = self._server.storage(relay)
        return {"path": self._url, "batch": self._batch, "storage": storage}

    def _ours(self, name: str, job: str, relay: Relay, **options: Any) -> list[Entrant]:
        runner = _Counted(self._bench.worker("stores"), relay)
        return [Entrant(name, runner, job, {**self._options(relay), **options}, checked=True)]

    def _raw(self, name: str, relay: Relay) -> list[Entrant]:
        return self._bench.entrants(
            "obstore", name, "read", bucket=_BUCKET, prefix=self._workload.name,
            rows=self._workload.rows, storage=self._server.storage(relay),
        )  # fmt: skip

    def _readers(self) -> list[Entrant]:
        near = self._server.near
        storage = self._server.storage(near)
        entrants = self._bench.entrants(
            "s3fs", "s3fs", "read", pattern=self._url.removeprefix("s3://"),
            rows=self._workload.rows, storage=storage,
        )  # fmt: skip
        entrants += self._lance("read")
        if not self._bench.worker("datasets").missing:
            path = self._made("datasets", "make_parquet", "rows.parquet")
            entrants += self._bench.entrants(
                "datasets", "datasets, streaming", "stream", checked=True,
                url=f"s3://{_BUCKET}/{path}", batch=self._batch, storage=storage,
            )  # fmt: skip
        if self._workload.name == "200KB":
            entrants += self._web_dataset()
            entrants += self._litdata("LitData", shuffle=False)
        return entrants

    def _shufflers(self) -> list[Entrant]:
        entrants = self._lance("train", rows=self._few)
        if self._workload.name == "200KB":
            entrants += self._litdata("LitData, not exact", shuffle=True)
        return entrants

    def _lance(self, job: str, **options: Any) -> list[Entrant]:
        if self._bench.worker("lance").missing:
            return []
        storage = self._server.storage(self._server.near) | {"allow_http": "true"}
        path = f"s3://{_BUCKET}/{self._workload.name}-lance"
        if job == "read":  # the first race
            source = str(Path(self._bench.source(self._workload), "values.npy"))
            self._bench.worker("lance").call("make", source=source, path=path, storage=storage)
        return self._bench.entrants(
            "lance", "Lance", job, checked=True, path=path, batch=self._batch,
            width=self._workload.width, storage=storage, **options,
        )  # fmt: skip

    def _web_dataset(self) -> list[Entrant]:
        if self._bench.worker("webdataset").missing:
            return []
        path = self._made("webdataset", "make", "")
        url = f"{self._server.near.url}/{_BUCKET}/{path}"
        return self._bench.entrants(
            "webdataset", "WebDataset", "read", path=url, batch=self._batch, checked=True
        )

    def _litdata(self, name: str, shuffle: bool) -> list[Entrant]:
        if self._bench.worker("litdata").missing:
            return []
        path = self._made("litdata", "make", "")
        return self._bench.entrants(
            "litdata", name, "read", path=f"s3://{_BUCKET}/{path}", batch=self._batch,
            storage=self._server.storage(self._server.near), cache=self._cache, shuffle=shuffle,
            checked=True,
        )  # fmt: skip

    def _made(self, worker: str, job: str, name: str) -> str:
        """Put the first rows into the bucket in the format of a worker; return their key."""
        prefix = f"{self._workload.name}-{worker}"
        folder = self._bench.folder / "for-stores" / prefix
        if not folder.exists():
            (folder if name else folder.parent).mkdir(parents=True, exist_ok=True)
            source = str(Path(self._bench.source(self._workload), "values.npy"))
            self._bench.worker(worker).call(
                job, source=source, path=str(folder / name), rows=self._few
            )
            self._upload(str(folder), prefix, "**/*")
        return f"{prefix}/{name}".rstrip("/")


def _runner(entrants: list[Entrant], name: str) -> _Counted:
    [found] = [entrant.runner for entrant in entrants if entrant.name == name]
    assert isinstance(found, _Counted)
    return found


def _named(timing: Timing, name: str) -> Timing:
    return Timing(name, timing.row_bytes, timing.runs)


def _request_row(title: str, requests: float, seconds: float, limit: int | None) -> Row:
    ours = f"{requests:.0f} requests, {seconds * 1000:.0f} ms"
    target = "" if limit is None else f"≤ {limit} requests"
    return Row(title, ours, "", "", None, target, None if limit is None else requests <= limit)
