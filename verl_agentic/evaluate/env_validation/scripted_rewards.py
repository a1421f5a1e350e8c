"""Rewards of scripted policies, compared with the bound that an environment declares and with its solution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from verl_agentic.base.env import EnvRow
from verl_agentic.base.text.grouped_lines import group_lines
from verl_agentic.episode.codec.codec import Schema
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.records.episode_samples import to_sample
from verl_agentic.evaluate.env_validation.env_harness import EnvHarness
from verl_agentic.evaluate.env_validation.scripted_policies import MAX_TURNS, scripted_policies
from verl_agentic.rewards.scorer import Scorer

_TOLERANCE = 1e-9


@dataclass(frozen=True, kw_only=True)
class ScriptedReward:
    """Rewards of one scripted policy, as means over rows."""

    name: str
    outcome: float
    reward: float
    """Outcome and shaping, turn rewards included; with a rubric, its score."""
    num_void: int
    """Void episodes: a policy must not be able to make one."""
    paid_rows: tuple[int, ...]
    """Rows with an outcome above 0."""

    def to_dict(self) -> dict[str, Any]:
        """Returns it as JSON."""
        return asdict(self)


async def run_scripts(
    harness: EnvHarness,
    schemas: Mapping[int, Sequence[Schema]],
    indices: Sequence[int],
    *,
    scorer: Scorer | None = None,
) -> list[ScriptedReward]:
    """Runs all scripted policies.

    Args:
        harness: the environment.
        schemas: row -> its tools.
        indices: rows to run.
        scorer: of a rubric; None: the rewards of the environment.
    """
    rows = [harness.rows[index] for index in indices]
    begins = [scripted_policies(harness.codec, schemas.get(index, ())) for index in indices]
    results = []
    for policies in zip(*begins, strict=True):
        episodes = await harness.run_each([policy.begin for policy in policies], rows, max_turns=MAX_TURNS)
        results.append(await measure(policies[0].name, episodes, rows, indices, scorer=scorer))
    return results


async def measure(
    name: str, episodes: Sequence[Episode], rows: Sequence[EnvRow], indices: Sequence[int], *, scorer: Scorer | None
) -> ScriptedReward:
    """Returns the rewards of the episodes of one policy."""
    outcomes, rewards, num_void = [], [], 0
    for index, episode, row in zip(indices, episodes, rows, strict=True):
        if episode.is_void:
            num_void += 1
            continue
        outcome, reward = await read_rewards(episode, row, scorer=scorer)
        outcomes.append((index, outcome))
        rewards.append(reward)
    return ScriptedReward(
        name=name,
        outcome=sum(outcome for _, outcome in outcomes) / max(1, len(outcomes)),
        reward=sum(rewards) / max(1, len(rewards)),
        num_void=num_void,
        paid_rows=tuple(index for index, outcome in outcomes if outcome > 0),
    )


async def read_rewards(episode: Episode, row: EnvRow, *, scorer: Scorer | None) -> tuple[float, float]:
    """Returns the outcome and the reward of an episode: its own, or those of a rubric."""
    if scorer is None:
        return episode.reward.outcome, episode.reward.total + sum(episode.turn_rewards.values())
    score = await scorer.score(to_sample(episode, row, id=str(row.extra.get("task_id", ""))))
    return score.acc, score.total


def script_problems(
    results: Sequence[ScriptedReward], *, max_outcome: float, solution: ScriptedReward | None
) -> list[str]:
    """Returns what scripted policies get that they must not.

    Args:
        max_outcome: the highest mean outcome that the environment declares (`EnvCard.max_scripted`).
        solution: of the same rows; None without one.
    """
    problems = group_lines(
        (result.name, f"{result.num_void} episodes are void") for result in results if result.num_void
    )
    for result in results:
        if result.outcome > max_outcome + _TOLERANCE:
            problems.append(
                f"{result.name}: mean outcome {result.outcome:.3g}, above the declared {max_outcome:g}; rows "
                f"{', '.join(map(str, result.paid_rows))}"
            )
        elif solution is not None and result.reward > max(max_outcome, solution.reward) + _TOLERANCE:
            problems.append(f"{result.name}: mean reward {result.reward:.3g}, and the solution {solution.reward:.3g}")
    return problems


async def audit_scripts(
    harness: EnvHarness, *, scorer: Scorer | None = None
) -> tuple[list[ScriptedReward], ScriptedReward | None, list[Episode]]:
    """Runs all scripted policies and the solution on all rows.

    Returns:
        The rewards of the policies, those of the solution, and its episodes; None and no episodes without a solution.

    Raises:
        Exceptions of the environment's start.
    """
    indices = range(len(harness.rows))
    schemas = {index: (await harness.start(harness.rows[index]))[1] for index in indices}
    results = await run_scripts(harness, schemas, indices, scorer=scorer)
    if harness.package.gold is None:
        return results, None, []
    solved = await harness.run_solution()
    return results, await measure("the solution", solved, harness.rows, indices, scorer=scorer), solved
