"""Keys that nothing reads: misspelt, of another version, or in the wrong section."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from verl_agentic.base.finding import Finding, fail, ok
from verl_agentic.checks.preflight.planned_run import PlannedRun

_OURS = "actor_rollout_ref.rollout.custom.agentic"
FREE = (
    "hydra",  # of the launcher
    "ray_kwargs.ray_init",  # arguments of ray.init
    "transfer_queue",  # goes to another package as a whole
    "actor_rollout_ref.rollout.custom",  # open to other packages; `agentic` has its own check
    "trainer.v1.sampler.sampler_kwargs",
    "data.curriculum",
    "data.apply_chat_template_kwargs",
    "data.mm_processor_kwargs",
    "reward.rubric",
    "reward.reward_kwargs",
    "reward.custom_reward_function.reward_kwargs",
    "algorithm.cost_limits",
    "algorithm.credit",
    "algorithm.implicit_reward",
    "algorithm.length_lr",
    "algorithm.linear_lr",
    "algorithm.prompt_information",
    "algorithm.self_teacher",
    "actor_rollout_ref.actor.policy_loss.options",
)
"""Sections that are open, or whose readers refuse unknown keys."""
_TEACHERS = "distillation.teacher_models"
_CLOSE = 0.8


def unknown_keys(run: PlannedRun) -> list[Finding]:
    """Returns the keys that neither verl's code nor ours reads, with similar known keys."""
    findings = [
        fail(f"nothing reads {path}", _write_advice(path, siblings))
        for path, siblings in _iter_unknown_keys(run, run.config, run.defaults, "")
        if not any(path == allowed or path.startswith(f"{allowed}.") for allowed in run.allowed)
    ]
    return findings or [ok("every key has a reader")]


def _iter_unknown_keys(run: PlannedRun, tree: Any, defaults: Any, path: str) -> Iterator[tuple[str, list[str]]]:
    """Yields unknown keys and their known siblings."""
    for key, value in tree.items():
        place = f"{path}.{key}" if path else str(key)
        if place == _OURS.rpartition(".")[0]:
            yield from _iter_misnamed_sections(value, place)
        if place in FREE:
            continue
        if path == _TEACHERS and key not in defaults and isinstance(value, Mapping):
            # Any name is a teacher.
            yield from _iter_unknown_keys(run, value, defaults.get("teacher_model") or {}, place)
            continue
        if key in defaults:
            # An empty section of verl is open.
            if isinstance(value, Mapping) and isinstance(defaults[key], Mapping) and defaults[key]:
                yield from _iter_unknown_keys(run, value, defaults[key], place)
            continue
        siblings = sorted({*map(str, defaults), *run.fields.get(path, ())})
        if not _is_known(run, path, str(key), siblings):
            yield place, siblings


def _is_known(run: PlannedRun, path: str, key: str, siblings: list[str]) -> bool:
    if path in run.fields:
        return key in run.fields[path]
    # A key that nearly equals a sibling is a typo, even if verl reads this name elsewhere.
    return run.is_read(key) and not _find_close_keys(key, siblings)


def _iter_misnamed_sections(value: Any, place: str) -> Iterator[tuple[str, list[str]]]:
    for key in value if isinstance(value, Mapping) else ():
        if key != "agentic" and _find_close_keys(str(key), ["agentic"]):
            yield f"{place}.{key}", ["agentic"]


def _find_close_keys(key: str, siblings: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(key, list(siblings), n=1, cutoff=_CLOSE)


def _write_advice(path: str, siblings: list[str]) -> str:
    section, _, key = path.rpartition(".")
    close = difflib.get_close_matches(key, siblings, n=1, cutoff=0.6)
    meant = f"did you mean {section + '.' if section else ''}{close[0]}? Else " if close else ""
    return f"{meant}remove it, or pass --allow {path} if your own code reads it"
