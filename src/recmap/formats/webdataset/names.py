"""What extensions say of the content of members, and which extension a column gets."""

from __future__ import annotations

from recmap.model.field import Field

KEY = "__key__"
TEXT = ("txt", "text", "transcript", "json", "jsn")
NUMBERS = ("cls", "cls2", "index", "inx", "id")
ARRAY = "npy"
PICKLES = ("pyd", "pkl", "pickle", "pth", "pt", "joblib")
NO_PICKLES = (
    "is a pickle or may hold one, and a pickle can run any code; save it as .npy, .json, .txt or "
    ".cls"
)


def ending(name: str) -> str:
    """Return the last part of an extension, which tells the type: ``seg.npy`` is ``npy``."""
    return name.rpartition(".")[2]


def extension_of(name: str, field: Field) -> str:
    """Return the extension of the members of a column.

    One that tells the type is added to the name, unless it ends with one already. WebDataset reads
    all extensions in lower case, and a slash would make a folder.

    >>> extension_of("jpg", Field("bytes")), extension_of("label", Field("int64"))
    ('jpg', 'label.cls')
    """
    name = name.lower().replace("/", ".")
    if field.is_bytes and not field.shape:
        known, added = (TEXT, ".txt") if field.is_text else ((ending(name),), "")
    elif field.dtype.kind in "iu" and not field.shape:
        known, added = NUMBERS, ".cls"
    else:
        known, added = (ARRAY,), ".npy"
    return name if ending(name) in known else f"{name}{added}"
