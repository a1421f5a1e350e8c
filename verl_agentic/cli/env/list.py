"""`verl-agentic env list`: lists the bundled environments."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Prints the environments; returns 1 if one of them cannot be imported."""
    import dataclasses
    import json

    from verl_agentic.env_package import known_envs

    found = [_describe(env_id) for env_id in known_envs()]
    if args.json:
        print(json.dumps([dataclasses.asdict(env) for env in found]))
    else:
        _show(found)
    return 0 if all(env.error is None for env in found) else 1


@dataclass(frozen=True, kw_only=True)
class _Description:
    id: str
    about: str = ""
    make_rows: bool = False
    gold: bool = False
    examples: int = 0
    error: str | None = None


def _show(found: Sequence[_Description]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("id", "what it is", "rows", "gold", "examples")
    for env in found:
        about = Text(env.about) if env.error is None else Text(env.error, style="red")
        marks = ("made" if env.make_rows else "-", "yes" if env.gold else "-", str(env.examples))
        table.add_row(env.id, about, *marks)
    Console().print(table)


def _describe(env_id: str) -> _Description:
    from verl_agentic.data.rows import read_rows
    from verl_agentic.env_package import load_env_package
    from verl_agentic.errors import AgenticError

    try:
        package = load_env_package(env_id)
        examples = package.folder / "example.jsonl"
        return _Description(
            id=env_id,
            about=_first_line(package.folder / "__init__.py"),
            make_rows=package.make_rows is not None,
            gold=package.gold is not None,
            examples=len(read_rows(examples)) if examples.is_file() else 0,
        )
    except AgenticError as error:
        return _Description(id=env_id, error=str(error))


def _first_line(module: Path) -> str:
    """Returns the first line of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return docstring.split("\n")[0]
