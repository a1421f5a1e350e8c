"""Right answers, played within the budgets of a run and scored as the run scores."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import OmegaConf

from verl_agentic.base.deadlines import short_deadlines
from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import AgenticError
from verl_agentic.base.types import StopReason
from verl_agentic.checks.preflight.planned_run import GoldTrial
from verl_agentic.episode.collect import scripted
from verl_agentic.episode.env_package import EnvPackage, choose_env, load_env_package
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.records.episode_samples import to_sample
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.graders.groups.self_play import SOLVE_RATE
from verl_agentic.log.files.parquet import env_row
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.rewards.score import Score
from verl_agentic.rewards.scorer import Scorer
from verl_agentic.verl.extensions.preflight.first_prompt import Worker

_NUM_ROWS = 2
_DEADLINE_S = 45.0
_ELSEWHERE = re.compile(
    r"\b(?:\w*(?:Unavailable|Busy|MissingDependency|Connect|Timeout)(?:ion)?\w*Error|SandboxError|URLError|gaierror)\b"
)
"""Failures that may not occur on the machine of the run, by the names of their exceptions."""


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Rewards of right answers."""

    gold: Sequence[GoldTrial] = ()
    metrics: frozenset[str] | None = None
    """Numbers that come with a reward; None where that is not known."""
    short_deadlines: frozenset[str] = frozenset()
    """Deadlines that are shorter than the limit of code that runs in them."""
    solution: str = ""
    """The response of the first row's solution; empty without one."""


async def run_gold(worker: Worker, loop: Any, rows: Sequence[Mapping[str, Any]]) -> Trials:
    """Returns what the solutions of the first rows earn in the loop `env_agent`."""
    settings = loop._settings
    reward: Any = OmegaConf.to_container(worker.config.reward, resolve=True)
    scorer = _make_scorer(reward)
    has_function = (reward.get("custom_reward_function") or {}).get("path") is not None
    gold, metrics, solution = [], None, ""
    short: set[str] = set()
    outer = short_deadlines.set(short)
    try:
        for index, row in enumerate(rows[:_NUM_ROWS]):
            played = env_row(row)
            package = load_env_package(choose_env(played.extra.get("env"), settings.env))
            if settings.protocol_options.self_written:
                gold.append(GoldTrial(row=index, outcome=None, why="nothing answers the searches of a solution"))
                continue
            playing = _play_solution(worker, loop, played, package, has_rubric=scorer is not None or has_function)
            trial, numbers, text = await _try_solution(worker, index, played, playing, scorer)
            metrics = numbers or metrics
            if package.gold is None and not trial.is_fault:
                why = f"its environment has no solution; an empty answer got {trial.outcome} ({trial.why})"
                trial = replace(trial, outcome=None, why=why)
            elif not index:
                solution = text
            if not has_function or trial.is_fault:
                gold.append(trial)
    finally:
        short_deadlines.reset(outer)
        if scorer is not None:
            scorer.close()
    return Trials(gold=gold, metrics=metrics, short_deadlines=frozenset(short), solution=solution)


async def _try_solution(
    worker: Worker, index: int, row: EnvRow, playing: Any, scorer: Scorer | None
) -> tuple[GoldTrial, frozenset[str] | None, str]:
    """Returns the trial, the numbers that come with its reward, and the text of the response."""
    try:
        episode: Episode = await asyncio.wait_for(playing, _DEADLINE_S)
    except (AgenticError, TimeoutError) as cause:
        return _make_failed_trial(index, f"{type(cause).__name__}: {cause}"), None, ""
    ended = f"{len(episode.actions)} turns, {_count_tokens(episode)} response tokens, {episode.stop_reason.value}"
    text = worker.model.tokenizer.decode(episode.trajectories[-1].response_ids, skip_special_tokens=True)
    numbers = frozenset(episode.numbers())
    if episode.is_void:
        trial = _make_failed_trial(index, f"{ended}: {episode.error}")
        is_late = episode.stop_reason is StopReason.TIMEOUT  # another machine may be faster
        return replace(trial, is_fault=trial.is_fault and not is_late), numbers, ""
    is_proposer = SOLVE_RATE in episode.reward.info  # its reward depends on how often its task is solved
    if scorer is None or is_proposer:
        return GoldTrial(row=index, outcome=episode.reward.outcome, why=ended), numbers, text
    try:
        sample = to_sample(episode, row, id=f"row {index}")
        (score,) = await asyncio.wait_for(scorer.score_group([sample]), _DEADLINE_S)
    except (AgenticError, TimeoutError) as cause:
        return _make_failed_trial(index, f"{type(cause).__name__}: {cause}"), numbers, text
    numbers |= frozenset(score.numbers)
    if score.void is not None:
        return _make_failed_trial(index, f"{ended}; {score.void}"), numbers, text
    parts = _select_solved(scorer.rubric, score)
    return GoldTrial(row=index, outcome=score.acc, why=ended, parts=parts), numbers, text


def _make_failed_trial(index: int, why: str) -> GoldTrial:
    """Returns a trial without a score. It is a fault unless something is not on this machine, or cannot be reached."""
    return GoldTrial(row=index, outcome=None, why=why, is_fault=_ELSEWHERE.search(why) is None)


def _play_solution(worker: Worker, loop: Any, row: EnvRow, package: EnvPackage, *, has_rubric: bool) -> Any:
    settings = loop._settings
    solution = package.gold(row) if package.gold is not None else lambda messages: ""
    setup = scripted(solution, codec=loop._codec, tokenizer=worker.model.tokenizer, limits=settings.limits_at(1))
    return run_episode(
        row,
        make_env=lambda played: package.make_env(played, **settings.env_config),
        setup=replace(setup, has_rubric=has_rubric, compaction=settings.compaction),
        request_id=f"preflight-{row.extra.get('task_id') or id(row)}",
    )


def _make_scorer(reward: Mapping[str, Any]) -> Scorer | None:
    if (reward.get("reward_manager") or {}).get("name") != "rubric":
        return None
    return Scorer(Rubric.from_config(reward), workers=1)


def _select_solved(rubric: Rubric, score: Score) -> dict[str, float]:
    """Returns whether the task is solved by the outcomes that every row gets."""
    return {
        term.name: score.solved[term.name]
        for term in rubric.outcomes
        if term.name in score.solved and not (term.data_sources or term.needs)
    }


def _count_tokens(episode: Episode) -> int:
    return max(len(trajectory.response_ids) for trajectory in episode.trajectories)
