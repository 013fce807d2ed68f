"""Tell URLs from paths. ``file://`` URLs are local paths."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote_to_bytes

from recmap.errors import OptionError, UnknownSchemeError

# The schemes of stores that recmap reads.
SCHEMES = ("s3", "gs", "az", "http", "https")

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)", re.DOTALL)
# What pathlib makes of a URL: Path("s3://bucket/x") is "s3:/bucket/x". Only well-known schemes,
# because any other name with a colon may be meant.
_FLATTENED = re.compile(
    r"(s3a?|gs|gcs|az|azure|adl|abfss?|wasbs?|https?|ftp|file|hdfs|hf|webhdfs):/", re.IGNORECASE
)


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
        local = f", and {_literal(url)!r} for that local file" if os.path.lexists(url) else ""
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


def shown_url(url: str) -> str:
    """Return a URL for messages, without what may be secret: user, password and query.

    >>> shown_url("https://me:secret@host/x.npy?X-Amz-Signature=123")
    'https://host/x.npy?...'
    """
    found = _URL.match(url)
    if found is None:
        return url
    scheme, host, path = found.groups()
    host = host.rpartition("@")[2]
    if not re.fullmatch(r"[^:]*(:\d*)?|\[.*\](:\d*)?", host):
        return f"{scheme}://..."  # perhaps a password with a slash in it
    if scheme.lower() != "file":
        path = re.sub(r"[?#].*", "?...", path, flags=re.DOTALL)
    return f"{scheme}://{host}{path}"


def _literal(url: str) -> str:
    return f"./{url.replace('://', ':/', 1)}"
