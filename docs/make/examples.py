"""The scripts in examples/ as pages of the site.

Pages link to the scripts themselves, which is right where the repository is browsed.
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
    """Called by MkDocs when it has found the pages: adds one for each script."""
    for script in sorted(_FOLDER.rglob("*.py")):
        name = script.relative_to(_FOLDER).with_suffix("").as_posix()
        content = f"# {name}.py\n\n````python\n{script.read_text(encoding='utf-8')}````\n"
        files.append(File.generated(config, f"examples/{name}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Called for each page: a link to a script becomes one to its page."""
    up = "../" * page.file.src_uri.count("/")
    return _LINK.sub(rf"]({up}examples/\1.md)", markdown)
