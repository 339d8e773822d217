"""The site has four files of the repository's root as pages too; links between them and docs/ lead there."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
# README.md would be the index of the folder.
PAGES = {"README.md": "about.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
PAGES |= {"CHANGELOG.md": "changes.md"}
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)")


def on_files(files: Files, *, config: Any) -> Files:
    """The files of docs/, and those four."""
    for name, uri in PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """The page with links as the site has them. A link to a file that is not there stays, and fails the build."""
    source, docs = Path(page.file.abs_src_path), Path(config.docs_dir)
    here = Path(page.file.src_uri).parent

    def led(link: re.Match[str]) -> str:
        target = (source.parent / link["path"]).resolve()
        if target.parent == ROOT and target.name in PAGES:
            uri = Path(PAGES[target.name])
        elif target.is_relative_to(docs):
            uri = target.relative_to(docs)
        else:
            return link[0]
        return os.path.relpath(uri, here)

    return _LINK.sub(led, markdown)
