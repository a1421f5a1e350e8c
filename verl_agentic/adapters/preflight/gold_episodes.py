"""Right answers, played within the budgets of a run and scored as the run scores."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import OmegaConf

from verl_agentic.adapters.preflight.first_prompt import Worker
from verl_agentic.agent_loops.records.episode import Episode
from verl_agentic.agent_loops.records.episode_samples import to_sample
from verl_agentic.agent_loops.run_episode import run_episode
from verl_agentic.data.datasets.collect import scripted
from verl_agentic.data.env_validation.gold_answers import gold_of
from verl_agentic.data.parquet import env_row
from verl_agentic.deadlines import short_deadlines
from verl_agentic.diagnostics.preflight.planned_run import GoldTrial
from verl_agentic.env import EnvRow
from verl_agentic.env_package import EnvPackage, load_env_package
from verl_agentic.errors import AgenticError, ConfigError
from verl_agentic.rewards.groups.self_play import SOLVE_RATE
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.rewards.score import Score
from verl_agentic.rewards.scorer import Scorer

_NUM_ROWS = 2
_DEADLINE_S = 45.0
_WAYS = ("#### {}", "\\boxed{{{}}}", "<answer>{}</answer>", "Answer: {}", "The answer is \\boxed{{{}}}.\n#### {}", "{}")
"""Formats in which verl's bundled scorers expect an answer."""


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Rewards of right answers."""

    gold: Sequence[GoldTrial] = ()
    metrics: frozenset[str] | None = None
    """Numbers that come with a reward; None where that is not known."""
    short_deadlines: frozenset[str] = frozenset()
    """Deadlines that are shorter than the limit of code that runs in them."""


async def run_gold(worker: Worker, loop: Any, rows: Sequence[Mapping[str, Any]]) -> Trials:
    """Returns what the solutions of the first rows earn in the loop `env_agent`."""
    settings = loop._settings
    reward: Any = OmegaConf.to_container(worker.config.reward, resolve=True)
    scorer = _scorer(reward)
    has_function = (reward.get("custom_reward_function") or {}).get("path") is not None
    gold, metrics = [], None
    short: set[str] = set()
    outer = short_deadlines.set(short)
    try:
        for index, row in enumerate(rows[:_NUM_ROWS]):
            played = env_row(row)
            package = load_env_package(played.extra.get("env") or settings.env)
            if settings.protocol_options.self_written:
                gold.append(GoldTrial(row=index, outcome=None, why="nothing answers the searches of a solution"))
                continue
            playing = _play(worker, loop, played, package, has_rubric=scorer is not None or has_function)
            trial, numbers = await _try(index, played, playing, scorer)
            metrics = numbers or metrics
            if package.gold is not None and not has_function:
                gold.append(trial)
    finally:
        short_deadlines.reset(outer)
        if scorer is not None:
            scorer.close()
    return Trials(gold=gold, metrics=None if has_function else metrics, short_deadlines=frozenset(short))


async def try_verls(worker: Worker, row: Mapping[str, Any]) -> Trials:
    """Returns what the right answer of the first row earns from the score functions that verl brings.

    A function of the user's is not called: what it does is not known.
    """
    reward = worker.config.reward
    is_plain = reward.reward_manager.name in ("naive", "dapo") and not reward.reward_model.enable
    if not is_plain or reward.custom_reward_function.path is not None or reward.sandbox_fusion.url:
        return Trials()
    from verl.utils.reward_score import default_compute_score

    truth = (row.get("reward_model") or {}).get("ground_truth")
    answers = gold_of(truth)
    best, results, failure = None, [], ""
    for way in _WAYS if answers else ():
        text = way.format(*[answers[0]] * way.count("{}"))
        try:
            scoring = asyncio.to_thread(
                default_compute_score, row.get("data_source"), text, truth, extra_info=row.get("extra_info")
            )
            results.append(await asyncio.wait_for(scoring, _DEADLINE_S / len(_WAYS)))
        except NotImplementedError:
            source = row.get("data_source")
            raise ConfigError(
                f"verl has no score function for data_source={source!r}; set reward.custom_reward_function.path, or "
                "the data_source of one that it has"
            ) from None
        except Exception as cause:  # foreign code: whatever it raises is the finding
            failure = f"{type(cause).__name__}: {cause}"
    values = [float(result["score"] if isinstance(result, dict) else result) for result in results]
    if values:
        best = max(values)
    names = frozenset(results[0]) if results and isinstance(results[0], dict) else frozenset({"acc"})
    why = failure or f"verl's score function, {len(values)} ways to write {answers[0]!r}" if answers else ""
    trial = GoldTrial(row=0, outcome=best if best else None, why=why if best else f"none of {why} scored")
    return Trials(gold=[trial] if answers else [], metrics=names if results else None)


async def _try(index: int, row: EnvRow, playing: Any, scorer: Scorer | None) -> tuple[GoldTrial, frozenset[str] | None]:
    try:
        episode: Episode = await asyncio.wait_for(playing, _DEADLINE_S)
    except (AgenticError, TimeoutError) as cause:
        return GoldTrial(row=index, outcome=None, why=f"{type(cause).__name__}: {cause}"), None
    ended = f"{len(episode.actions)} turns, {_tokens(episode)} response tokens, {episode.stop_reason.value}"
    numbers = frozenset(episode.numbers())
    if episode.is_void:
        return GoldTrial(row=index, outcome=None, why=f"{ended}: {episode.error}"), numbers
    is_proposer = SOLVE_RATE in episode.reward.info  # its reward depends on how often its task is solved
    if scorer is None or is_proposer:
        return GoldTrial(row=index, outcome=episode.reward.outcome, why=ended), numbers
    try:
        sample = to_sample(episode, row, id=f"row {index}")
        (score,) = await asyncio.wait_for(scorer.score_group([sample]), _DEADLINE_S)
    except (AgenticError, TimeoutError) as cause:
        return GoldTrial(row=index, outcome=None, why=f"{type(cause).__name__}: {cause}"), numbers
    outcome = None if score.void is not None else score.acc
    why = ended if score.void is None else f"{ended}; {score.void}"
    parts = _shares(scorer.rubric, score)
    return GoldTrial(row=index, outcome=outcome, why=why, parts=parts), numbers | frozenset(score.numbers)


def _play(worker: Worker, loop: Any, row: EnvRow, package: EnvPackage, *, has_rubric: bool) -> Any:
    settings = loop._settings
    solution = package.gold(row) if package.gold is not None else lambda messages: ""
    setup = scripted(solution, codec=loop._codec, tokenizer=worker.model.tokenizer, limits=settings.limits_at(1))
    return run_episode(
        row,
        make_env=lambda played: package.make_env(played, **settings.env_config),
        setup=replace(setup, has_rubric=has_rubric, compaction=settings.compaction),
        request_id=f"preflight-{row.extra.get('task_id') or id(row)}",
    )


def _scorer(reward: Mapping[str, Any]) -> Scorer | None:
    if (reward.get("reward_manager") or {}).get("name") != "rubric":
        return None
    return Scorer(Rubric.from_config(reward), workers=1)


def _shares(rubric: Rubric, score: Score) -> dict[str, float]:
    """Returns whether the task is solved by the outcomes that every row gets."""
    return {
        term.name: score.solved[term.name]
        for term in rubric.outcomes
        if term.name in score.solved and not (term.data_sources or term.needs)
    }


def _tokens(episode: Episode) -> int:
    return max(len(trajectory.response_ids) for trajectory in episode.trajectories)
