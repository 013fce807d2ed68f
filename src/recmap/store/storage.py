"""URLs, and the ``storage=`` options of their stores. ``file://`` URLs are local paths."""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, unquote_to_bytes

from recmap.errors import (
    OptionError,
    OptionTypeError,
    UnknownSchemeError,
    shown_url,
    without_secrets,
)

# The schemes of stores that recmap reads.
SCHEMES = ("s3", "gs", "az", "http", "https", "hf")
#: A dataset of the Hub: its owner and name, and the revision. Only these have slashes in theirs.
HUB = re.compile(
    r"datasets/(?P<repository>\w[\w.-]*/\w[\w.-]*)"
    r"(@(?P<revision>refs/(convert|pr)/[^/@]+|[^/@]+))?"
)
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)", re.DOTALL)
# What pathlib makes of a URL: Path("s3://bucket/x") is "s3:/bucket/x". Only well-known schemes,
# because any other name with a colon may be meant.
_FLATTENED = re.compile(
    r"(s3a?|gs|gcs|az|azure|adl|abfss?|wasbs?|https?|ftp|file|hdfs|hf|webhdfs):/", re.IGNORECASE
)
_OPTION_NAME = re.compile(
    r"(?=.{1,50}$)([a-z]+\d?(_[a-z]*\d?[a-z]*)*|[A-Z]+\d?(_[A-Z]*\d?[A-Z]*)*)"
)

# Credentials in the configuration files of the AWS command line.
_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
# What only the AWS tools can turn into credentials.
_INDIRECT = ("sso_session", "sso_start_url", "role_arn", "credential_process")


def is_url(text: str) -> bool:
    """Return whether text is a URL. A colon alone does not make one: ``a:b.npy`` is a file.

    >>> is_url("s3://bucket/x.npy"), is_url("s3:/bucket/x.npy"), is_url("./s3://x.npy")
    (True, False, False)
    """
    return _URL.match(text) is not None


def local_path(url: str, name: str = "path") -> str:
    """Return the path of a ``file://`` URL. ``name`` is the option it came from.

    Escapes are decoded. ``?`` and ``#`` belong to the path, so patterns work.

    >>> local_path("file:///data/a%20b-?.npy")
    '/data/a b-?.npy'
    """
    found = _URL.match(url)
    assert found is not None
    scheme, host, path = found[1].lower(), found[2], found[3]
    if scheme in SCHEMES:
        raise OptionError(f"{name}={shown_url(url)!r}: only a local path can be given here")
    if scheme != "file":
        literal = f"./{url.replace('://', ':/', 1)}"
        local = f", and {literal!r} for that local file" if os.path.lexists(url) else ""
        raise UnknownSchemeError(
            f"{name}={shown_url(url)!r}: recmap does not read or write {scheme}:// URLs, only "
            f"{', '.join(SCHEMES)}; or give the path of a local or mounted file{local}",
            scheme=scheme,
        )
    if host.lower() not in ("", "localhost"):
        raise OptionError(
            f"{name}={shown_url(url)!r}: a file URL has three slashes and an absolute path, as in "
            "'file:///data/x.npy'"
        )
    decoded = os.fsdecode(unquote_to_bytes(os.fsencode(path)))
    if decoded[:1] != "/" or "\0" in decoded:
        raise OptionError(f"{name}={shown_url(url)!r}: not the path of a file")
    return decoded


def refuse_flattened_url(path: str, name: str) -> None:
    """Refuse a ``pathlib.Path`` made from a URL, unless there is such a local folder."""
    found = _FLATTENED.match(path)
    if found is None or os.path.lexists(f"{found[1]}:"):
        return
    scheme = found[1].lower()
    if scheme in SCHEMES:
        raise OptionError(
            f"{name}={path!r}: a URL does not survive in a pathlib.Path; give it as text, "
            f"{shown_url(path.replace(':/', '://', 1))!r}"
        )
    if scheme != "file":
        local_path(path.replace(":/", "://", 1), name)  # which raises
    url = f"file:///{path[found.end() :]}"
    raise OptionError(
        f"{name}={path!r}: a file URL does not survive in a pathlib.Path; give the URL as text, "
        f"or the path {local_path(url, name)!r}"
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
    if scheme == "hf":
        return _parse_hub(url, f"{place}/{key}")
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


def _parse_hub(url: str, path: str) -> ObjectUrl:
    """Split the URL of files on the Hub: the root is the dataset with its revision.

    >>> parse_url("hf://datasets/owner/name@v1/data/x.parquet")
    ObjectUrl(scheme='hf', root='hf://datasets/owner/name@v1', key='data/x.parquet')
    """
    found = HUB.match(path)
    rest = "" if found is None else path[found.end() :]
    if found is None or rest[:1] not in ("", "/") or rest.startswith("//"):
        raise OptionError(
            f"{shown_url(url)}: recmap reads datasets of the Hub, written as "
            "'hf://datasets/OWNER/NAME' or 'hf://datasets/OWNER/NAME@REVISION/PATH'"
        )
    return ObjectUrl("hf", f"hf://{found[0]}", rest[1:])


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


def profile_options(profile: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a profile of AWS sets and that neither ``given`` nor variables set.

    Without ``profile``, use the one in ``AWS_PROFILE``, or else "default" if it exists.
    """
    name = profile or os.environ.get("AWS_PROFILE") or "default"
    named = name != "default" or profile is not None
    found = {
        **_section("AWS_CONFIG_FILE", "~/.aws/config", name, prefix="profile "),
        **_section("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", name),
    }
    if named and not found:
        raise OptionError(f"profile {name!r} is neither in ~/.aws/config nor in ~/.aws/credentials")
    options: dict[str, Any] = {}
    own_keys = "access_key_id" in given or (profile is None and "AWS_ACCESS_KEY_ID" in os.environ)
    if not own_keys:
        # All of them or none: keys of two sources do not fit together.
        options |= {key.removeprefix("aws_"): found[key] for key in _KEYS if key in found}
        indirect = [key for key in _INDIRECT if key in found]
        if named and indirect and not options:
            raise OptionError(
                f"profile {name!r} gets its credentials by {indirect[0]}, which recmap does not "
                f"support; run: eval $(aws configure export-credentials --profile {name} "
                "--format env)"
            )
    for option, key, variables in (
        ("region", "region", ("AWS_REGION", "AWS_DEFAULT_REGION")),
        ("endpoint", "endpoint_url", ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")),
    ):
        if key in found and option not in given and not any(v in os.environ for v in variables):
            options[option] = found[key]
    return options


def _section(variable: str, usual: str, name: str, prefix: str = "") -> dict[str, str]:
    path = os.path.expanduser(os.environ.get(variable) or usual)
    parser = configparser.RawConfigParser(strict=False)
    broken = False
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        broken = True
    if broken:  # raised here, because the original quotes lines of the file
        raise OptionError(f"{path}: not an AWS configuration file")
    for section in (f"{prefix}{name}", name if name == "default" else ""):
        if section and parser.has_section(section):
            return dict(parser.items(section))
    return {}
