"""Methods of papers, read from the docstrings of the bundled files that name a paper; nothing is imported."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from verl_agentic.base.paths import find_bundled

PROTOCOLS = "verl_agentic/episode/protocols"
_ESTIMATORS = ("Advantage estimators", "algorithm.adv_estimator: {}")
_LOSSES = ("Policy losses", "actor_rollout_ref.actor.policy_loss.loss_mode: {}")
_COMPONENTS = ("Reward components", "agentic.rubric.components: [{{use: {}}}]")
REGISTRIES = {
    "verl_agentic/credit/advantages": _ESTIMATORS,
    "verl_agentic/methods/advantages": _ESTIMATORS,
    "verl_agentic/credit/policy_losses": _LOSSES,
    "verl_agentic/methods/policy_losses": _LOSSES,
    "verl_agentic/graders/components": _COMPONENTS,
    "verl_agentic/rewards/components": _COMPONENTS,
    "verl_agentic/sampling/gates": ("Gates", "agentic.sampling.gates: [{}]"),
    "verl_agentic/sampling/curricula": ("Curricula", "agentic.curriculum.name: {}"),
    "verl_agentic/observe/checks": ("Alarms", "agentic.health.thresholds.{}"),
    PROTOCOLS: ("Protocols", "agentic.protocol: {}"),
}
"""Folder whose files are found by name -> heading, and the config that chooses one."""
OTHERS = "Other methods"
KEYS = {
    "ReplayOptions.weight": "agentic.sampling.replay.weight",
    "ReplayOptions.certainty_bounds": "agentic.sampling.replay.certainty_bounds",
    "StageSchedule": "agentic.max_turns_schedule",
    "branching_rule": "agentic.branching",
    "choose_check": "warm_start.patience",
    "dpo_loss": "dpo.beta",
    "implicit_rewards": "agentic.implicit_reward",
    "is_worth_posing": "agentic.curriculum.task_set.value_bounds",
    "next_multiplier": "agentic.cost_limits.max_mean",
    "prompt_information": "agentic.prompt_information",
    "target_histogram": "agentic.critic.categorical",
}
"""Method outside of the registries -> the key that turns it on, where there is one."""


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
        """The section of the page of papers."""
        return REGISTRIES.get(self._folder, (OTHERS, ""))[0]

    @property
    def config(self) -> str:
        """The config key that chooses it; empty if no key does."""
        if self._folder in REGISTRIES:
            return REGISTRIES[self._folder][1].format(self.name)
        return KEYS.get(self.name, "")

    @property
    def _folder(self) -> str:
        return str(Path(self.place).parent)


@functools.cache
def read_methods() -> tuple[Method, ...]:
    """Returns the methods of all bundled files, by name."""
    files = [(folder, path) for folder in ("verl_agentic", "envs") for path in find_bundled(folder).rglob("*.py")]
    files += [("verl_agentic", path) for path in find_bundled(PROTOCOLS).glob("*.yaml")]
    places = {str(Path(folder) / path.relative_to(find_bundled(folder))) for folder, path in files}
    methods = [method for place in sorted(places) if "/_bundled/" not in place for method in read_file_methods(place)]
    return tuple(sorted(methods, key=lambda method: (method.name, method.place)))


def read_file_methods(place: str) -> Iterator[Method]:
    """Yields the methods of one file, in its order.

    Args:
        place: the file, from the root of the repository.
    """
    path = find_bundled(place)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".yaml":
        if source := yaml.safe_load(text).get("source"):
            summary = " ".join(re.findall(r"^# ?(.*)", text.partition("\nkind:")[0], re.MULTILINE))
            yield Method(name=path.stem, place=place, summary=summary, paper=_link_addresses(source), deviations="")
    elif re.search(r"Papers?: ", text):
        for name, docstring in _iter_docstrings(ast.parse(text), path.stem):
            pattern = r"(?:^|(?<=\. ))Papers?: (.*?)(?=\n\n|\Z)"
            if match := re.search(pattern, docstring, re.MULTILINE | re.DOTALL):
                yield _make_method(name, place, docstring, match)


def _iter_docstrings(tree: ast.Module, stem: str) -> Iterator[tuple[str, str]]:
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


def _make_method(name: str, place: str, docstring: str, match: re.Match[str]) -> Method:
    paper, _, deviations = _join_lines(match[1]).partition("Deviations: ")
    above = docstring[: match.start()]
    # Deviations that are written above the paper: a paragraph, with the list that follows it.
    if before := re.search(r"(?:^|(?<=\. ))Deviations?:? ?(.*?)(?=\n\n(?!- )|\Z)", above, re.MULTILINE | re.DOTALL):
        deviations = _join_lines(before[1].rstrip())
    summary = _join_lines(above.partition("\n\n")[0]).strip()
    return Method(
        name=name, place=place, summary=summary, paper=_link_addresses(paper.strip()), deviations=deviations.strip()
    )


def _join_lines(text: str) -> str:
    """Returns a text with one line per paragraph and per item of a list."""
    return re.sub(r"\n(?!\s*- )\s*", " ", text)


def _link_addresses(text: str) -> str:
    """Returns a text with its addresses as links."""
    text = re.sub(r"https://arxiv\.org/abs/(\d+\.\d+)", r"[arXiv:\1](https://arxiv.org/abs/\1)", text)
    return re.sub(r"(?<!\()(https?://[^\s),;]*[^\s),;.])", r"<\1>", text)
