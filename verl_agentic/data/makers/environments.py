"""Environments that a model writes, and that pass `env validate` in a sandbox.

The packages are written into a folder beside the rows, which name them. Their code runs in the sandbox only; read it
before you train with it, because training loads it into its own processes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from verl_agentic.base.settings import Settings, setting
from verl_agentic.base.text.python_source import parse_python
from verl_agentic.data.making.env_gate import EXAMPLES, EnvGate
from verl_agentic.data.making.maker import Candidate, Record, RefusedError, ask, needed
from verl_agentic.graders.models.chat_model import ChatModel

_WRITTEN = ("env.py", "rows.py", "gold.py")
# fmt: off
_MODULES = frozenset((
    "__future__", "bisect", "collections", "collections.abc", "copy", "dataclasses", "datetime", "decimal", "enum",
    "fractions", "functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "random", "re",
    "statistics", "string", "typing", "verl_agentic",
))
# fmt: on
_REFUSED_NAMES = frozenset({"open", "exec", "eval", "compile", "__import__", "__builtins__", "globals", "input"})
_FENCED = re.compile(r"```(?:python)?\s*\n# *(\w+\.py)\s*\n(.*?)```", re.DOTALL)
_SKELETON = Path(__file__).parents[2] / "evaluate" / "cli" / "env" / "skeleton"
_ASKED = """\
Write a new environment for agents, about {topic}. It is number {number} of many, so choose an unusual idea.

The environment `my_env` below shows the form. Write another one with its own state, tools, rules and tasks:
- Tools are methods with type hints and a docstring with `Args:`. Return mistakes of the policy as results.
- The outcome is 1 for the right result only, and 0 for anything else, such as an empty answer or the text of the task.
- The ground truth must not be in the prompt, in schemas of tools, or in errors.
- `make_rows` returns `count` different tasks. Equal arguments give equal rows, and train and test share no task. All
  values of `extra` are JSON. `data_source` is `{name}`.
- `gold(row)` solves each task.
- Everything follows from the row: no time, and no randomness but `random.Random(seed)`.
- Import from `verl_agentic` and from {modules} only. Use no files, processes and network.

Answer with three fenced blocks of Python, whose first lines are `# env.py`, `# rows.py` and `# gold.py`.

{skeleton}"""


class EnvironmentsMaker(Settings):
    """Options."""

    topic: str = "everyday work with data, games and services"
    """Topic of the environments."""
    rows: int = setting(8, min=1)
    """New rows that are validated, beside the examples."""
    sandbox: str = "namespaces"
    """Sandbox backend: `namespaces`, or `landlock` where there are none."""
    load_s: float = setting(30.0, above=0)
    """Maximum time of importing a package and making its examples, in seconds."""
    validate_s: float = setting(300.0, above=0)
    """Maximum time of the validation, in seconds."""

    def check_together(self) -> None:
        self._make_gate()

    def make(self, *, seed: int, n: int, model: ChatModel | None) -> Iterator[Candidate]:
        """Yields environments of the model."""
        chat = needed(model, "environments")
        for number in range(n):
            name = f"made_{seed}_{number}"
            yield Candidate(key=name, record=lambda name=name, number=number: self._make_package(chat, name, number))

    async def verify(self, record: Record) -> str | None:
        """Returns why an environment is unfit: its code does more than it may, or `env validate` refuses it."""
        for path in _WRITTEN:
            if reason := _source_fault(record["files"][path]):
                return f"{reason} in {path}"
        return await self._make_gate().fault(record["name"], record["files"], count=self.rows)

    def write_beside(self, out: Path, rows: Sequence[Record]) -> None:
        """Writes the packages of rows into the folder with the name of `out`."""
        for row in rows:
            folder = out.with_suffix("") / row["name"]
            folder.mkdir(parents=True, exist_ok=True)
            for path, text in row["files"].items():
                (folder / path).write_text(text, encoding="utf-8")

    async def _make_package(self, model: ChatModel, name: str, number: int) -> Record:
        skeleton = "\n\n".join(f"```python\n# {path}\n{(_SKELETON / path).read_text()}```" for path in _WRITTEN)
        modules = ", ".join(sorted(_MODULES - {"verl_agentic"}))
        reply = await ask(
            model, _ASKED.format(topic=self.topic, number=number, name=name, modules=modules, skeleton=skeleton)
        )
        sources = {path: text for path, text in _FENCED.findall(reply) if path in _WRITTEN}
        if missing := sorted({*_WRITTEN} - {*sources}):
            raise RefusedError(f"no block of a file: {missing}; the reply has {len(reply)} characters")
        files = {"__init__.py": _render_init(name, model), **sources}
        reason, examples = await self._make_gate().examples(name, files)
        if reason or not examples:
            raise RefusedError(reason or "it makes no examples")
        return {
            "text": "\n\n".join(sources.values()),
            "name": name,
            "files": {**files, EXAMPLES: examples},
            "data_source": "environments",
        }

    def _make_gate(self) -> EnvGate:
        return EnvGate(backend=self.sandbox, load_s=self.load_s, validate_s=self.validate_s)


def _render_init(name: str, model: ChatModel) -> str:
    return (
        f'"""The environment `{name}`, written by the model {model.model}."""\n\n'
        "from .env import make_env\nfrom .gold import gold\nfrom .rows import make_rows\n\n"
        '__all__ = ["gold", "make_env", "make_rows"]\n'
    )


def _source_fault(source: str) -> str | None:
    """Returns what code does beside computing. The sandbox is the guard: this finds what would fail or harm later."""
    tree = parse_python(source, compiles=True)
    if tree is None:
        return "no Python: the source does not compile"
    for node in ast.walk(tree):
        if (name := _find_foreign_name(node)) is not None:
            return f"the code may not use this: {name}"
    return None


def _find_foreign_name(node: Any) -> str | None:
    """Returns the name of what a node reaches outside of the package; None if it may."""
    if isinstance(node, ast.Import):
        return next((alias.name for alias in node.names if alias.name not in _MODULES), None)
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return None if node.module in _MODULES else node.module
    return node.id if isinstance(node, ast.Name) and node.id in _REFUSED_NAMES else None


MAKER = EnvironmentsMaker
