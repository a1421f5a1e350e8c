"""Writes docs/papers.md from the docstrings that name a paper: `python docs/site/papers_page.py`.

The sources are parsed and not imported.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "papers.md"
_PROTOCOLS = "episode/protocols"
_REGISTRIES = {
    "credit/advantages": ("Advantage estimators", "algorithm.adv_estimator: {}"),
    "credit/policy_losses": ("Policy losses", "actor_rollout_ref.actor.policy_loss.loss_mode: {}"),
    "graders/components": ("Reward components", "agentic.rubric.components: [{{use: {}}}]"),
    "sampling/gates": ("Gates", "agentic.sampling.gates: [{}]"),
    "sampling/curricula": ("Curricula", "agentic.curriculum.name: {}"),
    "observe/checks": ("Alarms", "agentic.health.thresholds.{}"),
    _PROTOCOLS: ("Protocols", "agentic.protocol: {}"),
}
"""Folder below `verl_agentic` whose files are found by name -> heading, and the config that chooses one."""
_OTHERS = "Other methods"
_KEYS = {
    "ReplayOptions.weight": "agentic.sampling.replay.weight",
    "ReplayOptions.certainty_bounds": "agentic.sampling.replay.certainty_bounds",
    "StageSchedule": "agentic.max_turns_schedule",
    "branching_rule": "agentic.branching",
    "dpo_loss": "dpo.beta",
    "implicit_rewards": "agentic.implicit_reward",
    "is_worth_posing": "agentic.curriculum.task_set.value_bounds",
    "prompt_information": "agentic.prompt_information",
    "target_histogram": "agentic.critic.categorical",
}
"""Method outside of the registries -> the key that turns it on, where there is one."""
_INTRO = """# Methods and papers

For everyone who wants to know which paper a method comes from, what this package does, where it differs, and how to
turn it on. `python docs/site/papers_page.py` generates this page from docstrings.
"""


@dataclass(frozen=True, kw_only=True)
class Method:
    """A docstring with a paper."""

    name: str
    place: str
    """Its file, from the root of the repository."""
    summary: str
    paper: str
    deviations: str

    @property
    def heading(self) -> str:
        """The section of the page."""
        return _REGISTRIES.get(self._folder, (_OTHERS, ""))[0]

    @property
    def config(self) -> str:
        """The config key that chooses it; empty if no key does."""
        if self._folder in _REGISTRIES:
            return _REGISTRIES[self._folder][1].format(self.name)
        return _KEYS.get(self.name, "")

    @property
    def _folder(self) -> str:
        return str(Path(self.place).parent).removeprefix("verl_agentic/")

    def text(self) -> str:
        """Returns its part of the page."""
        chosen = f", `{self.config}`" if self.config else ""
        deviations = f"**Deviations:** {self.deviations}\n\n" if self.deviations else ""
        return (
            f"### {self.name.lstrip('_')}\n\n{self.summary}\n\n**Paper:** {self.paper}\n\n{deviations}"
            f"**Where:** `{self.place}`{chosen}\n"
        )


def page() -> str:
    """Returns the text of the page.

    Raises:
        ValueError: a config key is given for a method that is not there.
    """
    sections = defaultdict(list)
    for method in sorted(_methods(), key=lambda method: (method.name, method.place)):
        sections[method.heading].append(method)
    if gone := _KEYS.keys() - {method.name for method in sections[_OTHERS]}:
        raise ValueError(f"config keys need methods with a paper, got {sorted(gone)}; fix _KEYS in {__file__}")
    headings = [*(heading for heading, _ in _REGISTRIES.values()), _OTHERS]
    parts = (f"## {heading}\n\n" + "\n".join(method.text() for method in sections[heading]) for heading in headings)
    return re.sub(r" +\n", "\n", "\n".join((_INTRO, *parts)))


def _methods() -> Iterator[Method]:
    for path in sorted(path for folder in ("verl_agentic", "envs") for path in (ROOT / folder).rglob("*.py")):
        place = str(path.relative_to(ROOT))
        for name, text in _docstrings(ast.parse(path.read_text(encoding="utf-8")), path.stem):
            if found := re.search(r"(?:^|(?<=\. ))Papers?: (.*?)(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL):
                yield _method(name, place, text, found)
    for path in sorted((ROOT / "verl_agentic" / _PROTOCOLS).glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        if source := yaml.safe_load(text).get("source"):
            summary = " ".join(re.findall(r"^# ?(.*)", text.partition("\nkind:")[0], re.MULTILINE))
            place = str(path.relative_to(ROOT))
            yield Method(name=path.stem, place=place, summary=summary, paper=_linked(source), deviations="")


def _docstrings(tree: ast.Module, stem: str) -> Iterator[tuple[str, str]]:
    """Yields names and docstrings: of the module, its functions and classes, and the attributes of its classes."""
    yield stem, ast.get_docstring(tree) or ""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, ast.get_docstring(node) or ""
        if isinstance(node, ast.ClassDef):
            for field, after in zip(node.body, node.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
                    value = after.value.value if isinstance(after.value, ast.Constant) else ""
                    yield f"{node.name}.{ast.unparse(field.target)}", inspect.cleandoc(str(value))


def _method(name: str, place: str, text: str, found: re.Match[str]) -> Method:
    paper, _, deviations = _flowing(found[1]).partition("Deviations: ")
    above = text[: found.start()]
    # Deviations that are written above the paper: a paragraph, with the list that follows it.
    if before := re.search(r"(?:^|(?<=\. ))Deviations?:? ?(.*?)(?=\n\n(?!- )|\Z)", above, re.MULTILINE | re.DOTALL):
        deviations = _flowing(before[1].rstrip())
    summary = _flowing(above.partition("\n\n")[0]).strip()
    return Method(name=name, place=place, summary=summary, paper=_linked(paper.strip()), deviations=deviations)


def _flowing(text: str) -> str:
    """Returns a text with one line per paragraph and per item of a list."""
    return re.sub(r"\n(?!\s*- )\s*", " ", text)


def _linked(text: str) -> str:
    """Returns a text with its addresses as links."""
    text = re.sub(r"https://arxiv\.org/abs/(\d+\.\d+)", r"[arXiv:\1](https://arxiv.org/abs/\1)", text)
    return re.sub(r"(?<!\()(https?://[^\s),;]*[^\s),;.])", r"<\1>", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
