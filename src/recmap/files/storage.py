"""The ``storage=`` options of a store, and the parts of a URL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from recmap.errors import OptionError, OptionTypeError, UnknownSchemeError, without_secrets
from recmap.files.urls import SCHEMES, shown_url

_OPTION_NAME = re.compile(
    r"(?=.{1,50}$)([a-z]+\d?(_[a-z]*\d?[a-z]*)*|[A-Z]+\d?(_[A-Z]*\d?[A-Z]*)*)"
)


class ObjectUrl(NamedTuple):
    """A URL in parts: ``root`` is the bucket or server, and ``key`` the name in it."""

    scheme: str
    root: str
    key: str

    @property
    def bucket(self) -> str:
        return self.root.partition("://")[2]

    def at(self, key: str) -> str:
        """Return the URL of another key in the same place, for messages and for opening."""
        if self.scheme in ("http", "https"):
            key = quote(key, safe="/~!$&'()*+,;=:@[]")
        return f"{self.root}/{key}"


def parse_url(url: str) -> ObjectUrl:
    """Split a URL.

    Keys of buckets are literal: ``%`` and ``?`` are characters like others, as in the command
    lines of the stores. URLs of HTTP servers are decoded.

    >>> parse_url("s3://bucket/a/100%.npy")
    ObjectUrl(scheme='s3', root='s3://bucket', key='a/100%.npy')
    """
    found = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)/?(.*)", url, re.DOTALL)
    scheme = found[1].lower() if found is not None else ""
    if found is None or scheme not in SCHEMES:
        raise UnknownSchemeError(
            f"{shown_url(url)}: recmap reads URLs that begin with {', '.join(SCHEMES)}",
            scheme=scheme,
        )
    place, key = found[2], found[3]
    if not place:
        raise OptionError(f"{shown_url(url)}: no bucket or server in this URL")
    if "@" in place:
        raise OptionError(
            f"{shown_url(url)}: a URL must not hold a password, because it appears in messages; "
            "give credentials with storage={...}"
        )
    if key.startswith("/"):
        raise OptionError(f"{shown_url(url)}: an extra slash after the bucket or server")
    if without_secrets(key) != key:
        raise OptionError(
            f"{shown_url(url)}: signed URLs are not supported; use the URL of the bucket with "
            "storage={...}"
        )
    if scheme in ("http", "https"):
        if re.search(r"[?#]", key):
            raise OptionError(
                f"{shown_url(url)}: signed URLs and queries are not supported; use the URL of the "
                "bucket with storage={...}"
            )
        key = unquote(key)
    return ObjectUrl(scheme, f"{scheme}://{place}", key)


class Storage(Mapping[str, Any]):
    """Options of a store: endpoint, region, credentials. Values are never shown.

    >>> Storage({"region": "eu-west-1", "secret_access_key": "secret"})
    Storage(region=***, secret_access_key=***)
    """

    __slots__ = ("_options",)

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        if options is not None and not isinstance(options, Mapping):
            raise OptionTypeError(
                f'storage=: give a dict, such as {{"region": "eu-west-1"}}, not '
                f"{type(options).__name__}"
            )
        for name, value in (options or {}).items():
            if not isinstance(name, str):
                raise OptionTypeError("storage=: the names of options are text")
            if _OPTION_NAME.fullmatch(name) is None:  # it may be a secret, in the wrong place
                raise OptionError(
                    "storage: one of the names is not an option (it is not shown, because it may "
                    'be a secret); write options as {"region": "eu-west-1"}'
                )
            if not isinstance(value, str | bool | int | float):
                raise OptionTypeError(
                    f"storage: {name}: give text, a number, True or False, not "
                    f"{type(value).__name__}"
                )
            # A token from a file often has one at its end. Keys of Google are JSON.
            if (
                isinstance(value, str)
                and value.lstrip()[:1] != "{"
                and re.search(r"[\0-\x1f\x7f]", value)
            ):
                raise OptionError(
                    f"storage: {name}: the value has a line break or a control character"
                )
        self._options = dict(options or {})

    def __getitem__(self, name: str) -> Any:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __repr__(self) -> str:
        return f"Storage({', '.join(f'{name}=***' for name in self)})"
