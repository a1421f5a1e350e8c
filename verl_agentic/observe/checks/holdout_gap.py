"""Alarm: the training grader scores higher than a held-out grader."""

from __future__ import annotations

from verl_agentic.base.finding import Finding, warn
from verl_agentic.observe.diagnosis.history import History, Quantity, first_of
from verl_agentic.observe.health.alarm import alarm

_DEFAULT = "episode/solved/holdout*"


@alarm(reads=("{train}", "{holdout}"))
def holdout_gap(
    history: History, *, tau: float = 0.1, train: str = "episode/acc", holdout: str = _DEFAULT, window: int = 5
) -> Finding | None:
    """The training grader scores higher than a held-out grader.

    A held-out grader is a component of the rubric with weight 0, whose name begins with `holdout`.

    Args:
        tau: maximum difference of the two.
        train: metric of the training grader.
        holdout: the metric, or the pattern of metrics, of the held-out grader, on the same scale.
        window: steps whose median is compared.
    """
    paid, names = history.level(train, window), history.matching(holdout)
    held: Quantity = first_of(*names)
    true = history.level(held, window)
    if paid is None or true is None or paid - true < tau:
        return None
    return warn(
        found=f"the training grader gives {paid:.3g}, the held-out one {true:.3g}: a gap of {paid - true:.2g} (limit "
        f"{tau:g})",
        evidence={"train": paid, "holdout": true, "gap": paid - true, "holdout_metric": names[0]},
        advice="read episodes that only the trained grader likes (verl-agentic view), close the hole (verl-agentic "
        "reward audit), and add the held-out grader to agentic.rubric.components",
    )
