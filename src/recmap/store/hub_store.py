"""Datasets of the Hugging Face Hub: ``hf://datasets/owner/name@revision/path``.

A revision is resolved to a commit before anything is read, so that nothing changes while it is
read. Folders are listed by the API of the Hub. Files are read by byte range from where it redirects
to, which never sees the token.
"""

from __future__ import annotations

import http.client
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from recmap.errors import (
    AccessDeniedError,
    OptionError,
    PathNotFoundError,
    RecmapError,
    StoreError,
    StoreTimeoutError,
)
from recmap.store.object_store import (
    UNKNOWN_TIME,
    Folder,
    ObjectInfo,
    ObjectStore,
    client_seconds,
)
from recmap.store.patience import UNREACHABLE
from recmap.store.storage import HUB, ObjectUrl, Storage

_ENDPOINT = "https://huggingface.co"
_SECONDS = 30
# An answer of the API has at most a thousand entries, and nobody has so many answers.
_MOST_ANSWER, _MOST_PAGES = 64 << 20, 10_000
_NEXT = re.compile(r'<([^<>]+)>;\s*rel="next"')
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_OURS = ("token", "endpoint", "anonymous", "retries", "max_retries", "retry_timeout", "unpinned")


class _Answer(NamedTuple):
    status: int
    body: bytes
    headers: Any


class HubStore(ObjectStore):
    """A dataset of the Hub, at one revision."""

    def __init__(self, url: ObjectUrl, storage: Storage, commit: str = "") -> None:
        found = HUB.fullmatch(url.bucket)
        assert found is not None
        self._repository, self._revision = found["repository"], unquote(found["revision"] or "main")
        given = storage.get("endpoint") or os.environ.get("HF_ENDPOINT") or _ENDPOINT
        self._endpoint = str(given).rstrip("/")
        if not self._endpoint.startswith(("http://", "https://")):
            raise OptionError("storage: endpoint: give a URL that begins with http:// or https://")
        self._commit = commit
        self._folders: dict[str, Folder] = {}
        self._resolving = Lock()
        super().__init__(url, storage)

    def __reduce__(self) -> tuple[Any, ...]:
        return HubStore, (self.url, self.storage, self._commit)

    def _connect(self, retries: dict[str, Any]) -> Any:
        return self._files_of("main", retries)  # checks the options

    def _files_of(self, commit: str, retries: dict[str, Any]) -> Any:
        """Return the store of obstore for the files of a commit."""
        options = dict(self.storage)
        client: dict[str, Any] = client_seconds(options)
        for name in _OURS:
            options.pop(name, None)
        if options:
            raise OptionError(f"storage: {next(iter(options))} is not an option of hf://")
        # A redirect to another server leaves it out.
        client["default_headers"] = self._headers
        client["allow_http"] = True
        path = f"datasets/{self._repository}/resolve/{quote(commit, safe='')}"
        return self._obstore.store.HTTPStore.from_url(
            f"{self._endpoint}/{path}", client_options=client, retry_config=retries
        )

    @cached_property
    def _headers(self) -> dict[str, str]:
        token = "" if self.storage.get("anonymous") else self.storage.get("token") or _token()
        return {"authorization": f"Bearer {token}"} if token else {}

    @property
    def commit(self) -> str:
        """The commit that the revision was when it was first needed."""
        with self._resolving:
            if not self._commit:
                self._commit = self._resolved()
            return self._commit

    def _resolved(self) -> str:
        if _COMMIT.fullmatch(self._revision):
            return self._revision
        revision = quote(self._revision, safe="")
        found = self._json("", f"/api/datasets/{self._repository}/revision/{revision}")[0]
        commit = found.get("sha") if isinstance(found, dict) else None
        if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
            raise self._odd("")
        return commit

    @cached_property
    def _files(self) -> Any:
        return self._files_of(self.commit, self.patience.of_obstore(alone=False))

    def connection(self) -> Any:
        self.refuse_fork("")
        return self._files

    @property
    def place(self) -> str:
        return f"{self.url.root} at {self._endpoint}"

    def head(self, key: str) -> ObjectInfo:
        folder = key.rpartition("/")[0]
        for info in self.folder(folder).objects:
            if info.key == key:
                return info
        raise PathNotFoundError(f"{self.url.at(key)}: no such file in this revision")

    def _look_up(self, key: str) -> Any:
        return self._send(key, f"/api/datasets/{self._repository}")

    def folder(self, prefix: str) -> Folder:
        prefix = prefix.strip("/")
        if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
            raise PathNotFoundError(f"{self.url.at(prefix)}: no such folder")
        if prefix not in self._folders:
            self._folders[prefix] = self._listed_now(prefix)
        return self._folders[prefix]

    def _listed_now(self, prefix: str) -> Folder:
        path = f"/api/datasets/{self._repository}/tree/{self.commit}"
        objects, folders = [], []
        try:
            for entry in self._entries(prefix, f"{path}/{quote(prefix)}".rstrip("/")):
                key, size = str(entry["path"]), int(entry["size"])
                if entry["type"] == "directory":
                    folders.append(key)
                elif size >= 0:
                    version = (entry.get("lfs") or entry)["oid"]
                    objects.append(ObjectInfo(key, size, f'"{version}"', UNKNOWN_TIME))
        except PathNotFoundError:
            return Folder([], [])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._odd(prefix) from None
        return Folder(sorted(objects, key=lambda each: each.key), sorted(folders))

    def _entries(self, prefix: str, path: str) -> Iterator[Any]:
        """Yield the entries of a folder, which come page by page."""
        target: str | None = path
        for _ in range(_MOST_PAGES):
            entries, target = self._json(prefix, target)
            if not isinstance(entries, list):
                raise self._odd(prefix)
            yield from entries
            if target is None:
                return
        raise self._odd(prefix)

    def below(self, prefix: str) -> dict[str, tuple[int, str]]:
        found = self.folder(prefix)
        names = {i.key: (i.size, str(i.etag).strip('"')) for i in found.objects}
        inside = {f"{prefix}/": ""} if prefix else {}
        start = len(next(iter(inside), ""))
        names = {key[start:]: each for key, each in names.items()}
        for folder in found.folders:
            below = self.below(folder).items()
            names |= {f"{folder[start:]}/{name}": each for name, each in below}
        return names

    def request(self, key: str, make: Any) -> Any:
        return self._ask(key, lambda: make(self._obstore, self._files))

    def _get(self, info: ObjectInfo, begin: int, end: int) -> Any:
        def get() -> tuple[int, Any]:
            answer = self._obstore.get(self._files, info.key, options={"range": (begin, end)})
            return answer.meta["size"], answer.bytes()

        # A commit never changes. The server of the file gives it another ETag than the Hub.
        size, data = self._ask(info.key, get)
        if size != info.size or len(data) != end - begin:
            raise self._changed(info.key)
        self.counter.add(fetched=len(data))
        return data

    # -- the API ----------------------------------------------------------------------------------

    def _json(self, key: str, target: str | None) -> tuple[Any, str | None]:
        """Return what the API answers, and the address of the next page, if there is one."""
        assert target is not None
        answer = self._ask(key, lambda: self._send(key, target), alone=True)
        try:
            content = json.loads(answer.body)
        except (ValueError, RecursionError):
            raise self._odd(key) from None
        following = _NEXT.search(answer.headers.get("link") or "")
        return content, None if following is None else self._same_server(key, following[1])

    def _same_server(self, key: str, url: str) -> str:
        """Return the path of an address; the token must go to no other server."""
        here, there = urlsplit(self._endpoint), urlsplit(url)
        if there.netloc and (there.scheme, there.netloc) != (here.scheme, here.netloc):
            raise self._odd(key)
        query = f"?{there.query}" if there.query else ""
        return there.path.removeprefix(here.path) + query

    def _send(self, key: str, target: str, redirects: int = 3) -> _Answer:
        """Make one request, and raise for what is not an answer to it."""
        answer = self._send_once(key, target)
        if answer.status in (301, 302, 307, 308) and redirects:  # the dataset was renamed
            moved = self._same_server(key, answer.headers.get("location") or "")
            return self._send(key, moved, redirects - 1)
        if answer.status != 200:
            raise self._refused(key, answer)
        return answer

    def _send_once(self, key: str, target: str) -> _Answer:
        parts = urlsplit(self._endpoint)
        secure = parts.scheme == "https"
        connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        failure: RecmapError | None = None
        connection = connect(parts.hostname or "", parts.port, timeout=_SECONDS)
        try:
            connection.request("GET", parts.path + target, headers=self._headers)
            answer = connection.getresponse()
            body = answer.read(_MOST_ANSWER)
            return _Answer(answer.status, body, answer.headers)
        except TimeoutError:
            url = self.url.at(key)
            failure = StoreTimeoutError(f"{url}: no answer in time", url=url, transient=True)
        except (OSError, http.client.HTTPException):
            url = self.url.at(key)
            failure = StoreError(f"{url}: {UNREACHABLE}", url=url, transient=True)
        finally:
            connection.close()
        raise failure  # its context would have the headers

    def _refused(self, key: str, answer: _Answer) -> RecmapError:
        url, status = self.url.at(key), answer.status
        code = re.sub(r"[^A-Za-z]", "", str(answer.headers.get("x-error-code") or ""))[:40]
        if status in (401, 403):
            return AccessDeniedError(
                f"{url}: the Hub denies access ({', '.join(filter(None, [str(status), code]))}): "
                "there is no such dataset, or it is private or gated; accept its terms there, and "
                'give a token in HF_TOKEN or storage={"token": ...}',
                url=url,
                status=status,
            )
        if status == 404:
            return PathNotFoundError(f"{url}: no such dataset, revision or folder on the Hub")
        return StoreError(
            f"{url}: the Hub failed ({status})",
            url=url,
            status=status,
            transient=status in (408, 429) or status >= 500,
        )

    def _odd(self, key: str) -> StoreError:
        url = self.url.at(key)
        return StoreError(f"{url}: {self._endpoint} does not answer like the Hub", url=url)


def _token() -> str:
    """Return the token that the environment gives, or that was saved by a login."""
    if token := os.environ.get("HF_TOKEN", "").strip():
        return token
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    path = os.environ.get("HF_TOKEN_PATH") or f"{home}/token"
    with suppress(OSError, UnicodeDecodeError), open(os.path.expanduser(path)) as file:
        return file.read(4096).strip()
    return ""
