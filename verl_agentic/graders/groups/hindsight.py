"""Hindsight relabelling: turns a failed episode into a success at the task that it actually did.

Use it only for tasks defined by their final state (games, shops, navigation), not for tasks with right or wrong answers
such as maths and code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from verl_agentic.base.errors import DataError
from verl_agentic.base.types import Message, Reward
from verl_agentic.rewards.sample import Sample

Describe = Callable[[Sample], str | None]
"""Returns the task that the episode actually did, or None."""


def relabelled(samples: Sequence[Sample], describe: Describe, *, solved_at: float = 1.0) -> list[Sample]:
    """Returns the samples, each failed one followed by a copy with its actual task and the outcome 1.

    The copy has no log-probs, because they belong to the old prompt and must be recomputed. Turn rewards, shaping and
    ground truth belong to the old task and are removed.

    Args:
        samples: finished episodes, scored by their environment.
        describe: returns the actual task of an episode.
        solved_at: minimum outcome of a success.

    Raises:
        DataError: the environment did not score an episode.

    Paper: https://arxiv.org/abs/1707.01495. Deviations: the paper relabels the goals of transitions; here the prompt of
    the episode.
    """
    rows: list[Sample] = []
    for sample in samples:
        if sample.env is None:
            raise DataError(
                f"only an episode with an outcome of its environment can be relabelled, got none for {sample.id!r}; "
                "leave out tasks whose answer is right or wrong, such as maths and code"
            )
        rows.append(sample)
        task = describe(sample) if sample.env.outcome < solved_at else None
        if task is not None:
            rows.append(_with_task(sample, task))
    return rows


def _with_task(sample: Sample, task: str) -> Sample:
    return replace(
        sample,
        id=f"{sample.id}/hindsight",
        prompt=_make_prompt(sample, task),
        turns=tuple(replace(turn, mean_log_prob=None, reward=0.0) for turn in sample.turns),
        ground_truth=None,
        extra={**sample.extra, "relabelled": True},
        env=Reward(1.0),
    )


def _make_prompt(sample: Sample, task: str) -> tuple[Message, ...]:
    """Returns the prompt with the task in place of its last user message."""
    user_indices = [index for index, message in enumerate(sample.prompt) if message.role == "user"]
    if not user_indices:
        raise DataError(f"the prompt of {sample.id!r} has no user message to put the task into; relabel it yourself")
    prompt = list(sample.prompt)
    prompt[user_indices[-1]] = replace(prompt[user_indices[-1]], content=task)
    return tuple(prompt)
