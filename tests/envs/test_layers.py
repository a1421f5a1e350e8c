"""Environments are written against the public layers of the package."""

from __future__ import annotations

import ast
from pathlib import Path

from verl_agentic.base import paths


def test_no_environment_imports_an_adapter() -> None:
    folder = Path(paths.envs_dir())
    importing = [
        f"{file.relative_to(folder)}: {name}"
        for file in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for name in _imported(node)
        if name.startswith("verl_agentic.verl")
    ]
    assert len(list(folder.rglob("env.py"))) >= 5
    assert not importing


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
