"""Guess the format of a text file: CSV, TSV, JSON, JSON Lines, XML, HTML or plain text."""

from __future__ import annotations

import json
import unicodedata

from recmap.files.foreign_formats import FileKind, pandas_advice

__all__ = ["guess_text"]

# The least share of ASCII in text that is not UTF-8.
_MOSTLY_ASCII = 0.7


def guess_text(path: str, head: bytes, size: int) -> FileKind | None:
    """Guess the format of a file that begins with ``head``; None if that is not text.

    The size is 0 if unknown.
    """
    text, encoding = _decoded(head, size)
    if text is None:
        return None
    option = "" if encoding is None else f'encoding="{encoding}"'
    more = f", {option}" if option else ""
    whole = bool(size) and size <= len(head)
    start, lower = text.lstrip(), path.lower()
    lines = [line for line in text.splitlines() if line.strip()]
    if not whole and len(lines) > 1:
        lines.pop()  # it may be incomplete
    if start[:15].lower().startswith(("<!doctype html", "<html")):
        return _guess("an HTML page", "Check the download: it may have failed")
    if start.startswith("<?xml"):
        return _guess("XML", pandas_advice("read_xml({path})"))
    if start[:1] in ("{", "["):
        return _json(lines, lower, more)
    for delimiter, end, options in (
        (",", ".csv", ""),
        ("\t", ".tsv", r', sep="\t"'),
        (";", ".csv", ', sep=";"'),
    ):
        if _is_table(lines, delimiter) or (lower.endswith(end) and delimiter != ";"):
            call = f"read_csv({{path}}{options}{more})"
            return _guess("TSV" if delimiter == "\t" else "CSV", pandas_advice(call))
    read = f"pathlib.Path({{path}}).read_text({option}).splitlines()"
    return _guess("text", f'Try rm.from_arrays({{"text": {read}}})')


def _guess(what: str, advice: str) -> FileKind:
    return FileKind(what, advice, certain=False)


def _json(lines: list[str], lower: str, more: str) -> FileKind:
    def parses(line: str) -> bool:
        try:
            json.loads(line)
        except (ValueError, RecursionError):
            return False
        return True

    several = len(lines) > 1 and parses(lines[0]) and parses(lines[1])
    if several or lower.endswith((".jsonl", ".ndjson")):
        return _guess("JSON Lines", pandas_advice(f"read_json({{path}}, lines=True{more})"))
    return _guess("JSON", pandas_advice(f"read_json({{path}}{more})"))


def _decoded(head: bytes, size: int) -> tuple[str | None, str | None]:
    """Return the head as text, if it is text, and its encoding, if that is not UTF-8."""
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else None
    text = ""
    # The head may end in the middle of a character.
    for cut in range(4 if not size or size > len(head) else 1):
        try:
            text = head[: len(head) - cut].decode(encoding or "utf-8-sig")
            break
        except UnicodeDecodeError:
            continue
    if not text and sum(byte < 0x80 for byte in head) >= _MOSTLY_ASCII * len(head):
        encoding = "latin-1"  # as old programs write it
        text = head.decode("cp1252", "replace")
    if len(text.strip()) < 4:  # too little to tell
        return None, None
    sound = all(c.isprintable() or _is_space(c) for c in text)
    return (text, encoding) if sound else (None, None)


def _is_space(character: str) -> bool:
    """Return whether a character is white space or invisible, such as a zero-width joiner."""
    if character in "\t\n\r\f\v\x1b":
        return True
    return unicodedata.category(character) in ("Cf", "Zl", "Zp", "Zs")


def _is_table(lines: list[str], delimiter: str) -> bool:
    """Return whether all lines have the same number of values, two or more."""
    if len(lines) < 2:
        return False
    import csv

    try:
        widths = {len(row) for row in csv.reader(lines[:50], delimiter=delimiter)}
    except csv.Error:
        return False
    return len(widths) == 1 and widths.pop() > 1
