"""Hindsight relabelling: a failed episode is a good one for the task that it happened to do.

Only for tasks that are told by the state that they end in (games, shops, navigation). It makes no sense where the
answer is right or wrong, as in maths and code: there the environment gives no outcome, or `describe` returns None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from verl_agentic.errors import DataError
from verl_agentic.rewards.sample import Sample
from verl_agentic.types import Message, Reward

Describe = Callable[[Sample], str | None]
"""Returns the task that the episode has done, None where there is none to tell."""


def relabelled(samples: Sequence[Sample], describe: Describe, *, solved_at: float = 1.0) -> list[Sample]:
    """Returns the samples, and behind each failed one a copy with the task that it did and the outcome 1.

    The copy's turns have no log-probs, for these were sampled under the old prompt: they must be computed anew. The
    environment's rewards of single turns, its shaping and the ground truth belong to the old task and go too.

    Args:
        samples: finished episodes, scored by their environment.
        describe: tells the task that an episode has done.
        solved_at: least outcome of a success.

    Raises:
        DataError: an episode that its environment did not score: a verifier of answers cannot be relabelled.

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
        prompt=_prompt(sample, task),
        turns=tuple(replace(turn, mean_log_prob=None, reward=0.0) for turn in sample.turns),
        ground_truth=None,
        extra={**sample.extra, "relabelled": True},
        env=Reward(1.0),
    )


def _prompt(sample: Sample, task: str) -> tuple[Message, ...]:
    """Returns the prompt with the task in place of its last user message."""
    asked = [index for index, message in enumerate(sample.prompt) if message.role == "user"]
    if not asked:
        raise DataError(f"the prompt of {sample.id!r} has no user message to put the task into; relabel it yourself")
    prompt = list(sample.prompt)
    prompt[asked[-1]] = replace(prompt[asked[-1]], content=task)
    return tuple(prompt)
