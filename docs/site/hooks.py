"""Hooks of mkdocs: README.md is the home page, READMEs of recipes and of systems are pages, and nothing is loaded from
the network."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
_SYSTEMS = "verl_agentic/config/agentic/system/"


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that lie outside of `docs/`."""
    systems = sorted((ROOT / _SYSTEMS).glob("*.md"))
    for path in (ROOT / "README.md", *sorted((ROOT / "recipes").glob("*/README.md")), *systems):
        uri = _uri(str(path.relative_to(ROOT)))
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Rewrites links between files of the repository to links between pages of the site."""
    uri = page.file.src_uri
    outside = "README.md" if uri == "index.md" else uri.replace("systems/", _SYSTEMS)
    source = PurePosixPath(outside if page.file.generated_by else f"docs/{uri}")

    def to_site(link: re.Match[str]) -> str:
        target = os.path.normpath(source.parent / link[1])
        return f"]({os.path.relpath(_uri(target), PurePosixPath(uri).parent)}" if (ROOT / target).exists() else link[0]

    return re.sub(r"\]\(([^)#:\s]+)", to_site, markdown)


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Refuses a page that loads scripts, styles or images from the network.

    Raises:
        PluginError: with the first such tag.
    """
    if found := re.search(r"""<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(?:https?:)?//[^>]*>""", output):
        raise PluginError(f"{page.file.src_uri} must load nothing from the network, got {found[0]}; bundle the file")
    return output


def _uri(path: str) -> str:
    """Returns the address on the site of a file of the repository."""
    return "index.md" if path == "README.md" else path.removeprefix("docs/").replace(_SYSTEMS, "systems/")
