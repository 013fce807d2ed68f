"""Objects in S3, GCS, Azure and on HTTP servers: find them, and read spans of them.

Requests are repeated, with backoff and jitter, after 429, 5xx, lost connections and time-outs: a
few times by obstore, where a body that breaks off also resumes where it stopped, and then here
(patience.py). Messages and tracebacks of obstore are never shown, because they may contain signed
URLs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    AccessDeniedError,
    MissingPackageError,
    ObjectChangedError,
    OptionError,
    PathNotFoundError,
    RecmapError,
    StoreError,
    StoreTimeoutError,
)
from recmap.store.fetch import Fetch, FetchCounter, request_size, room_for, wait_for
from recmap.store.patience import UNREACHABLE, Patience, tell
from recmap.store.storage import ObjectUrl, Storage, profile_options

_T = TypeVar("_T")
_Bytes = npt.NDArray[np.uint8]

# Options of our own, with their defaults; the others belong to the store.
_SECONDS = {"timeout": 300.0, "read_timeout": 30.0, "connect_timeout": 5.0}
# Variables with the address of a private server.
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
# What obstore says if credentials were given nowhere, and it asked the virtual machine for them.
_NO_CREDENTIALS = re.compile(
    r"Error performing (token request|\w+ http://[^/ ]+/latest/(api/token|meta-data/))"
)
# DNS knows no such name. (That it cannot be asked now is said in other words.)
_UNKNOWN_HOST = re.compile("Name or service not known|nodename nor servname|Name does not resolve")
# What the name of the server is made of.
_NAMED_BY = {"s3": "the endpoint and the region", "gs": "the endpoint", "az": "the account name"}
#: Modification time of an object whose server tells none.
UNKNOWN_TIME = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class ObjectInfo:
    """An object as it was when it was found. Reading it later fails if it has changed."""

    key: str
    size: int
    etag: str | None
    modified: datetime

    @property
    def pinned(self) -> bool:
        """Whether a change of the object can be noticed."""
        return self.etag is not None or self.modified != UNKNOWN_TIME


@dataclass(frozen=True)
class Folder:
    """The objects and the names of the folders directly in a folder, sorted."""

    objects: list[ObjectInfo]
    folders: list[str]


class ObjectStore:
    """A bucket, or an HTTP server."""

    def __init__(self, url: ObjectUrl, storage: Storage) -> None:
        #: The URL that the store was made for; its key means nothing here.
        self.url = url
        #: The options, with the credentials.
        self.storage = storage
        self._obstore = _load()
        #: How long requests are repeated.
        self.patience = Patience.of(storage)
        self._store = self._connected(alone=False)
        self._answered = False
        self.counter = FetchCounter()

    @cached_property
    def _alone(self) -> Any:
        """The store for requests that only obstore can repeat."""
        return self._connected(alone=True)

    def _connected(self, *, alone: bool) -> Any:
        """Make the store of obstore. This sends no request."""
        failure: RecmapError | None = None
        try:
            retries = self.patience.of_obstore(alone=alone)
            return self._connect(retries)
        except RecmapError:
            raise
        except self._obstore.exceptions.UnknownConfigurationKeyError as e:
            name = re.search(r"key: '(\w{1,60})'", str(e))
            what = name[1] if name is not None else "one of the names"
            failure = OptionError(f"storage: {what} is not an option of {self.url.scheme}://")
        except (self._obstore.exceptions.BaseError, TypeError, ValueError) as e:
            failure = OptionError(
                'storage: give the account, as in storage={"account_name": "mine"}'
                if "Account must be specified" in str(e)
                else f"storage: an option of {self.url.scheme}:// is missing, or has a wrong value"
            )
        raise failure

    def _connect(self, retries: dict[str, Any]) -> Any:
        return _connect(self.url, self.storage, retries)

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectStore, (self.url, self.storage)

    def __repr__(self) -> str:
        return f"ObjectStore({self.url.root!r})"

    def request(self, key: str, make: Callable[[Any, Any], _T]) -> _T:
        """Call ``make`` with obstore and its store, and translate its errors."""
        return self._ask(key, lambda: make(self._obstore, self._store))

    def stream(self, key: str, send: Callable[[Any, Any], _T]) -> _T:
        """Make a request that cannot be made twice, because its data is made while it is sent."""
        return self._once(key, lambda: send(self._obstore, self._alone))

    def tell_trouble(self, key: str) -> None:
        """Ask the store for anything, and warn if it fails: then others wait for it, too."""
        try:
            self._once(key, lambda: self._look_up(key))
        except StoreError as e:
            if e.transient:
                tell(self.url.root, e, self.patience.seconds)
        except PathNotFoundError:
            return

    @property
    def place(self) -> str:
        """Where the store is, to tell buckets of the same name apart."""
        config = getattr(self._store, "config", {})
        given = config.get("endpoint") or config.get("base_url") or config.get("google_base_url")
        endpoint = given or _endpoint_variable(self.url.scheme)
        account = config.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
        told = [endpoint, account if self.url.scheme == "az" else ""]
        return " at ".join([self.url.root, *filter(None, told)])

    def head(self, key: str) -> ObjectInfo:
        """Look an object up."""
        return _info(self._ask(key, lambda: self._look_up(key)))

    def _look_up(self, key: str) -> Any:
        return self._obstore.head(self._store, key)

    def folder(self, prefix: str) -> Folder:
        """List a folder; one that does not exist is empty."""
        self._refuse_unlisted(prefix)
        prefix = prefix.strip("/")
        listed = self._ask(
            prefix, lambda: self._obstore.list_with_delimiter(self._store, prefix or None)
        )
        if "" in listed["common_prefixes"]:  # a key that begins with a slash
            raise self._translated(prefix, "InvalidPathError", "")
        # A folder made in a web console is an empty object with the name of the folder.
        objects = [_listed(meta) for meta in listed["objects"] if meta["path"] != prefix]
        return Folder(sorted(objects, key=lambda each: each.key), sorted(listed["common_prefixes"]))

    def below(self, prefix: str) -> dict[str, tuple[int, str]]:
        """Return size and version of all objects below a folder by name; none if there is none."""

        def listed(obstore: Any, store: Any) -> dict[str, tuple[int, str]]:
            found: dict[str, tuple[int, str]] = {}
            for batch in obstore.list(store, prefix or None):
                for meta in batch:
                    name = meta["path"].removeprefix(f"{prefix}/" if prefix else "")
                    if name != meta["path"] or not prefix:
                        found[name] = meta["size"], str(meta["e_tag"]).strip('"')
            return found

        return self.request(prefix, listed)

    @property
    def listed(self) -> bool:
        """Whether folders can be listed."""
        return self.url.scheme not in ("http", "https")

    def _refuse_unlisted(self, prefix: str) -> None:
        if not self.listed:
            raise OptionError(
                f"{self.url.at(prefix)}: an HTTP server does not list its files; give the URL "
                "of a file, or a list of them"
            )

    def read(self, info: ObjectInfo, begin: int, end: int) -> _Bytes:
        """Read one span."""
        return self.read_many(info, [(begin, end)])[0]

    def read_many(
        self,
        info: ObjectInfo,
        spans: Sequence[tuple[int, int]],
        into: Sequence[_Bytes] | None = None,
    ) -> list[_Bytes]:
        """Read several spans at once, ``into`` arrays of their sizes if given.

        Besides the result, this takes the memory of requests in flight.
        """
        for begin, end in spans:
            if not 0 <= begin <= end <= info.size:
                raise ValueError(f"span {begin}:{end} of an object of {info.size} bytes")
        if into is not None and [b.size for b in into] != [e - b for b, e in spans]:
            raise ValueError("arrays of other sizes than the spans")
        made = [np.empty(e - b, np.uint8) for b, e in spans] if into is None else list(into)
        piece = request_size()
        parts = [
            Fetch(at, min(at + piece, end), buffer[at - begin : at - begin + piece])
            for (begin, end), buffer in zip(spans, made, strict=True)
            for at in range(begin, end, piece)
        ]
        if len(parts) == 1:
            self._fetch(info, parts[0])
            return made
        try:
            self.submit(partial(self._fetch, info), parts)
            wait_for(parts)
        finally:
            for part in parts:
                part.give_up()
        return made

    def submit(self, work: Callable[[Fetch], None], parts: Sequence[Fetch]) -> None:
        """Do work for each of several parts of an object, in threads that may wait."""
        self.refuse_fork("")  # its threads are gone, too
        for part in parts:
            part.start(work)

    def _fetch(self, info: ObjectInfo, part: Fetch) -> None:
        if not part.given_up:
            part.put(self.get(info, part.begin, part.end))

    def get(self, info: ObjectInfo, begin: int, end: int) -> Any:
        """Read a span with one request, into a buffer of the store's own."""
        if not info.pinned and not self.storage.get("unpinned"):
            url = self.url.at(info.key)
            raise StoreError(
                f"{url}: the server sends neither an ETag nor a date, so a change of the file "
                'while it is read would go unnoticed; storage={"unpinned": True} accepts that',
                url=url,
            )
        self.refuse_fork(info.key)  # others may have been in flight
        with room_for(end - begin):
            return self._get(info, begin, end)

    def _get(self, info: ObjectInfo, begin: int, end: int) -> Any:
        options: dict[str, Any] = {"range": (begin, end)}
        # A weak ETag never matches If-Match, so it is compared below.
        if info.etag is not None and not info.etag.startswith("W/"):
            options["if_match"] = info.etag

        def get() -> tuple[ObjectInfo, Any]:
            answer = self._obstore.get(self._store, info.key, options=options)
            return _info(answer.meta), answer.bytes()

        # Without an ETag, obstore does not resume a body that breaks off.
        found, data = self._ask(info.key, get, alone=info.etag is None)
        same = found.size == info.size and (
            found.etag == info.etag if info.etag else found.modified == info.modified
        )
        if not same or len(data) != end - begin:
            raise self._changed(info.key)
        self.counter.add(fetched=len(data))
        return data

    def _ask(self, key: str, request: Callable[[], _T], *, alone: bool = False) -> _T:
        """Make a request, repeat it while the store is unavailable, and translate its errors."""
        once = partial(self._once, key, request)
        return self.patience.repeat(self.url.root, once, alone=alone)

    def _once(self, key: str, request: Callable[[], _T]) -> _T:
        """Make a request, and translate its errors."""
        self.refuse_fork(key)
        self.counter.add(requests=1)
        failure: RecmapError | None = None
        try:
            answer = request()
        except BaseException as e:
            failure = self.translated(key, e)
            if failure is None:
                raise
        else:
            self._answered = True
            return answer
        # Raised here, so that the original is not its context.
        try:
            raise failure
        finally:
            del failure  # its traceback would keep this frame and its callers alive

    def translated(self, key: str, error: BaseException) -> RecmapError | None:
        """Return the error to raise for one of obstore; None if it is not one of obstore."""
        known = (self._obstore.exceptions.BaseError, FileNotFoundError, ValueError)
        # A panic in Rust, which has no class that could be named, is not an Exception.
        panic = type(error).__name__ == "PanicException"
        if isinstance(error, RecmapError) or not (isinstance(error, known) or panic):
            return None
        return self._translated(key, type(error).__name__, str(error))

    def connection(self) -> Any:
        """Return the store of obstore, for a library that makes its own requests with it."""
        self.refuse_fork("")
        return self._store

    def refuse_fork(self, key: str) -> None:
        """Raise in a process that was forked from one that had made requests."""
        global _used  # noqa: PLW0603
        if _forked:
            raise StoreError(
                f"{self.url.at(key)}: this process was forked from one that had read from a "
                'store, and cannot do so itself; start workers with workers="spawn:N"',
                url=self.url.at(key),
            )
        _used = True

    def _changed(self, key: str) -> ObjectChangedError:
        url = self.url.at(key)
        return ObjectChangedError(f"{url}: changed while it was open; open it again", url=url)

    def _translated(self, key: str, kind: str, text: str) -> RecmapError:
        """Make an error from what obstore says, without repeating it."""
        url = self.url.at(key)
        matched = re.search(r"status code: (\d{3})", text)
        status = int(matched[1]) if matched is not None else None
        code = re.search(r"<Code>([A-Za-z]{1,60})</Code>", text)
        reason = code[1] if code is not None else ""
        told = ", ".join(filter(None, [str(status or ""), reason]))
        if _NO_CREDENTIALS.search(text):
            return AccessDeniedError(
                f"{url}: no credentials were found; give them with storage={{...}} or in the "
                'environment, or storage={"anonymous": True} for public data',
                url=url,
                status=status,
            )
        if reason in ("NoSuchBucket", "ContainerNotFound"):
            return PathNotFoundError(f"{self.url.root}: no such bucket")
        if kind == "FileNotFoundError" or status == 404:
            return PathNotFoundError(f"{url}: no such object")
        if kind in ("PermissionDeniedError", "UnauthenticatedError") or status in (401, 403):
            return AccessDeniedError(
                f"{url}: access denied ({told}); check the credentials and what they allow",
                url=url,
                status=status,
            )
        if kind == "PreconditionError" or status in (412, 416):
            return self._changed(key)
        if kind == "NotSupportedError":
            return StoreError(f"{url}: the server does not send parts of files", url=url)
        if kind == "PanicException":
            return StoreError(
                f"{url}: the request cannot be sent; look for a line break in the credentials",
                url=url,
            )
        if kind in ("InvalidPathError", "ValueError"):
            return StoreError(
                f"{url}: a name in this place has an empty part, '.', '..' or a control "
                "character, which recmap cannot read",
                url=url,
            )
        elsewhere = reason in ("AuthorizationHeaderMalformed", "PermanentRedirect")
        if self.url.scheme == "s3" and (elsewhere or "redirect without LOCATION" in text):
            return StoreError(
                f'{url}: the bucket is in another region; give storage={{"region": ...}}',
                url=url,
                status=status,
            )
        if re.search(r"kind: Timeout|TimedOut|timed out", text):
            return StoreTimeoutError(
                f"{url}: no answer in time, after several attempts", url=url, transient=True
            )
        if _UNKNOWN_HOST.search(text) and not self._answered:
            by = _NAMED_BY.get(self.url.scheme, "the URL")
            return StoreError(f"{url}: there is no server with this name; check {by}", url=url)
        if re.search(r"kind: (Connect|Request|Interrupted|Body)", text) and status is None:
            return StoreError(f"{url}: {UNREACHABLE}", url=url, transient=True)
        if status is not None and status < 500 and status not in (408, 429):
            return StoreError(
                f"{url}: the store refuses the request ({told}); check the endpoint, the region "
                "and the credentials",
                url=url,
                status=status,
            )
        return StoreError(
            f"{url}: the store failed{f' ({told})' if told else ''}, after several attempts",
            url=url,
            status=status,
            transient=True,
        )


# A process that is forked after a request hangs at its first one: the threads that do the work
# are not copied.
_used = _forked = False


def _after_fork() -> None:
    global _forked  # noqa: PLW0603
    _forked = _used


os.register_at_fork(after_in_child=_after_fork)


def _load() -> Any:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError as e:
        raise MissingPackageError("URLs need obstore", extra="remote") from e
    return obstore


def _connect(url: ObjectUrl, storage: Storage, retries: dict[str, Any]) -> Any:
    stores = _load().store
    options = dict(storage)
    seconds = client_seconds(options)
    for ours in ("retries", "max_retries", "retry_timeout", "unpinned"):
        options.pop(ours, None)
    common: dict[str, Any] = {"client_options": seconds, "retry_config": retries}
    if options.pop("anonymous", False):
        options["skip_signature"] = True
    if url.scheme in ("http", "https"):
        if options:
            raise OptionError(f"storage: {next(iter(options))} is not an option of {url.scheme}://")
        common["client_options"]["allow_http"] = url.scheme == "http"
        return stores.HTTPStore.from_url(url.root, **common)
    if url.scheme == "s3" and not options.get("skip_signature"):
        options = {**profile_options(options.pop("profile", None), options), **options}
    kinds: Mapping[str, Any] = {
        "s3": stores.S3Store,
        "gs": stores.GCSStore,
        "az": stores.AzureStore,
    }
    endpoint = options.get("endpoint") or _endpoint_variable(url.scheme)
    if endpoint and not str(endpoint).startswith(("http://", "https://")):
        raise OptionError("storage: endpoint: give a URL that begins with http:// or https://")
    common["client_options"]["allow_http"] = str(endpoint).startswith("http://")
    if url.scheme == "gs" and endpoint:
        options["base_url"] = options.pop("endpoint", endpoint)
    return kinds[url.scheme](url.bucket, **options, **common)


def client_seconds(options: dict[str, Any]) -> dict[str, Any]:
    """Take the times out of the options of a store, as obstore wants them."""
    return {name: timedelta(seconds=_number(options, name)) for name in _SECONDS}


def _endpoint_variable(scheme: str) -> str:
    """Return the address of a private server that the environment gives; "" if none."""
    given = [os.environ[name] for name in _ENDPOINTS.get(scheme, ()) if name in os.environ]
    return given[0] if given else ""


def _number(options: dict[str, Any], name: str) -> float:
    value = options.pop(name, _SECONDS[name])
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise OptionError(f"storage: {name}: give a number of seconds above 0")
    return float(value)


def _info(meta: Mapping[str, Any]) -> ObjectInfo:
    return ObjectInfo(meta["path"], meta["size"], meta["e_tag"], meta["last_modified"])


def _listed(meta: Mapping[str, Any]) -> ObjectInfo:
    info = _info(meta)
    if info.etag is None or info.etag.endswith('"'):
        return info
    return replace(info, etag=f'"{info.etag}"')  # Azure's listings lack the quotes
