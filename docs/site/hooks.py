"""Hooks of mkdocs: README.md is the home page, notebooks and READMEs of recipes and of systems are pages; nothing is
loaded from the network."""

from __future__ import annotations

import json
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
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=_to_markdown(path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Rewrites links between files of the repository to links between pages of the site."""
    uri = page.file.src_uri
    outside = "README.md" if uri == "index.md" else uri.replace("systems/", _SYSTEMS)
    is_outside = page.file.generated_by and not uri.startswith("notebooks/")
    source = PurePosixPath(outside if is_outside else f"docs/{uri}")

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


def _to_markdown(path: Path) -> str:
    """Returns the cells of a notebook as a page, with a link to the notebook below its heading."""
    heading, *cells = (_render_cell(cell) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])
    title, _, text = heading.partition("\n")
    # Not a link of Markdown: that would lead to this page.
    download = f'<a href="{path.name}" download>Download the notebook</a>'
    return "\n\n".join([title, download, text.strip(), *cells])


def _render_cell(cell: dict[str, Any]) -> str:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return text
    language, code = ("bash", text.partition("\n")[2]) if text.startswith("%%bash\n") else ("python", text)
    return f"```{language}\n{code}\n```"


def _uri(path: str) -> str:
    """Returns the address on the site of a file of the repository."""
    page = re.sub(r"^(docs/notebooks/\w+)\.ipynb$", r"\1.md", path)
    return "index.md" if page == "README.md" else page.removeprefix("docs/").replace(_SYSTEMS, "systems/")
