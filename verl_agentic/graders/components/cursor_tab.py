"""The reward of a code editor for showing a suggestion."""

from __future__ import annotations

from verl_agentic.base.errors import ConfigError, DataError, ScoringError
from verl_agentic.rewards.answers.empty_work import is_empty
from verl_agentic.rewards.component import ABSTAIN, Value, component
from verl_agentic.rewards.sample import Sample


def suggestion_value(p_accepted: float, *, threshold: float = 0.25) -> float:
    """Returns the value of showing a suggestion that is accepted with this probability: p - threshold.

    = p (1 - threshold) - (1 - p) threshold, so showing is rewarded exactly above the threshold.
    """
    return p_accepted - threshold


def _check_options(threshold: float) -> None:
    if not 0 < threshold < 1:
        raise ConfigError(f"cursor_tab.threshold must be between 0 and 1, got {threshold}")


@component(
    low=lambda threshold: -threshold,
    high=lambda threshold: 1.0 - threshold,
    kind="outcome",
    inline=True,
    check=_check_options,
    solved=lambda threshold: 1.0 - threshold,
)
def cursor_tab(sample: Sample, *, threshold: float = 0.25) -> Value:
    """Returns 1 - threshold (0.75) for a suggestion that is accepted, -threshold (-0.25) for one that is not, else 0.

    The suggestion is the final answer; an empty one is not shown. The environment reports `accepted` (0, 1 or a
    probability) in its `Reward.info`. Otherwise the ground truth is the accepted text, compared without surrounding
    space. Abstains if both are missing.

    Args:
        threshold: probability of acceptance at which showing is worth 0.

    Raises:
        DataError: the ground truth is not a text.
        ScoringError: `accepted` is not from 0 to 1.

    The rewards are those of Cursor's article on its Tab model; there is no paper.
    """
    is_known = sample.env is not None and "accepted" in sample.env.info
    if not is_known and sample.ground_truth is None:
        return ABSTAIN
    if not is_known and not isinstance(sample.ground_truth, str):
        raise DataError(f"the ground truth of cursor_tab must be text, got {sample.ground_truth!r}; fix the row")
    suggestion = sample.final_answer.strip()
    if is_empty(suggestion):
        return 0.0
    if sample.env is None or not is_known:
        return suggestion_value(float(suggestion == sample.ground_truth.strip()), threshold=threshold)
    accepted = sample.env.info["accepted"]
    if not 0 <= accepted <= 1:
        raise ScoringError(f"accepted must be from 0 to 1, got {accepted}; fix the environment")
    return suggestion_value(accepted, threshold=threshold)
