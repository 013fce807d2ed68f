"""Adds the scripts in examples/ to the site, one page each.

Pages link to the scripts themselves, for readers who browse the repository.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

__all__ = ["on_files", "on_page_markdown"]

_FOLDER = Path(__file__).parent.parent.parent / "examples"
_LINK = re.compile(r"\]\((?:\.\./)+examples/([\w/]+)\.py\)")


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add a page for each script; MkDocs calls this when it has found the other pages."""
    for script in sorted(_FOLDER.rglob("*.py")):
        name = script.relative_to(_FOLDER).with_suffix("").as_posix()
        content = f"# {name}.py\n\n````python\n{script.read_text(encoding='utf-8')}````\n"
        files.append(File.generated(config, f"examples/{name}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links to scripts into links to their pages; MkDocs calls this for each page."""
    up = "../" * page.file.src_uri.count("/")
    return _LINK.sub(rf"]({up}examples/\1.md)", markdown)
