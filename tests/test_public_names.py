"""The public names: pinned, imported lazily, and the only ones that the docs and new environments import."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import verl_agentic

ROOT = Path(__file__).resolve().parent.parent
INIT = ROOT / "verl_agentic" / "__init__.py"
PAGES = [ROOT / "README.md", *(p for f in ("docs", "envs", "recipes") for p in sorted((ROOT / f).rglob("*.md")))]
SKELETON = sorted((ROOT / "verl_agentic" / "evaluate" / "cli" / "env" / "skeleton").glob("*.py"))
NAMES = {
    *("ToolEnv", "Env", "EnvRow", "EnvPackage", "Transcript", "load_env", "load_env_package", "in_thread"),
    *("tool", "Tool", "ToolResult", "DelegateTool", "McpTools"),
    *("Action", "Message", "Observation", "Reward", "StopReason", "ToolCall", "UNSCORED"),
    *("component", "Sample", "Graded", "ABSTAIN", "Rubric", "Scorer"),
    *("advantage", "Advantages", "CreditBatch", "policy_loss", "Loss", "LossBatch"),
    *("gate", "Group", "Verdict", "KEEP", "curriculum", "Pool", "alarm", "History", "Finding"),
    *("run_episode", "Episode", "EpisodeLimits", "EpisodeSetup", "run_episodes", "scripted"),
    *("load_run", "read_rows", "write_rows", "write_sft"),
    *("AgenticError", "ConfigError", "DataError", "EnvError"),
}
DEEP_IMPORTS = {
    "verl_agentic.cpu.testing": "for tests; not part of a run",
    "verl_agentic.bridges": "environments of other packages, loaded by their ids",
    "verl_agentic.cli": "the test of a new environment runs the command",
    "verl_agentic.graders.functions": "has one function for each outcome component",
    "verl_agentic.graders.judge.turn_critic": "a critic of tree search, named by its file",
    "verl_agentic.graders.turns.turn_progress": "a helper of one component",
    "verl_agentic.credit.credit.group_statistics": "helpers of estimators",
    "verl_agentic.log.files.record_files": "records that are not rows of an environment",
    "verl_agentic.checks.preflight.planned_run": "for checks inside the package",
    "verl_agentic.checks.preflight.result": "for checks inside the package",
    "verl_agentic.base.finding": "short forms of findings, for checks inside the package",
    "verl_agentic.sandbox.interface": "sandboxes without an environment",
    "verl_agentic.sandbox.pools.process_pool": "sandboxes without an environment",
}
"""Modules that the docs and the skeleton may import from, and why the package itself has no public name for it."""


def test_the_public_names_are_these_and_each_can_be_imported() -> None:
    assert set(verl_agentic._ADDRESSES) == NAMES
    assert set(dir(verl_agentic)) >= NAMES
    for name, (module, attribute) in verl_agentic._ADDRESSES.items():
        home = importlib.import_module(f"verl_agentic.{module}")
        assert getattr(verl_agentic, name) is getattr(home, attribute) is vars(verl_agentic)[name]


def test_editors_see_the_same_names_from_the_same_modules() -> None:
    tree = ast.parse(INIT.read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname: (str(node.module).removeprefix("verl_agentic."), alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    seen["load_run"] = seen.pop("_load")
    assert seen == verl_agentic._ADDRESSES


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="ToolEnvs"):
        _ = verl_agentic.ToolEnvs  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ImportError, match="ToolEnvs"):
        exec("from verl_agentic import ToolEnvs")


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import verl_agentic; dir(verl_agentic)", "torch verl ray numpy pydantic verl_agentic.base.errors"),
        ("from verl_agentic import ToolEnv, EnvRow, Reward, tool, load_env, component, Rubric, run_episode, gate",
         "torch verl ray"),
    ],
    ids=["the package", "names of environments and rewards"],
)  # fmt: skip
def test_importing_does_not_import_what_is_not_used(code: str, absent: str, tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    loaded = set(process.stdout.split())
    assert "verl_agentic" in loaded and not loaded & set(absent.split())


def test_docs_and_skeleton_import_public_names() -> None:
    blocks = [b for page in PAGES for b in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)]
    imported = [node for text in [*blocks, *(p.read_text() for p in SKELETON)] for node in _imports(text)]
    assert {str(node.module) for node in imported} <= {"verl_agentic", *DEEP_IMPORTS}
    deep = {(str(node.module).removeprefix("verl_agentic."), alias.name) for node in imported for alias in node.names}
    assert deep.isdisjoint(verl_agentic._ADDRESSES.values())


@pytest.mark.slow
def test_no_two_public_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = {}
    for path in sorted((ROOT / "verl_agentic").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def _imports(code: str) -> list[ast.ImportFrom]:
    """Returns the imports from the package; all of them have the form `from module import name`."""
    nodes = list(ast.walk(compile(code, "a code block", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)))
    whole = [a.name for node in nodes if isinstance(node, ast.Import) for a in node.names if "verl_agentic" in a.name]
    assert set(whole) <= {"verl_agentic"}
    return [n for n in nodes if isinstance(n, ast.ImportFrom) and str(n.module).split(".")[0] == "verl_agentic"]
