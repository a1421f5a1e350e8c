"""A grader that is satisfied more easily than another one."""

from __future__ import annotations

from verl_agentic.diagnostics.health.alarm import History, Quantity, alarm, first_of
from verl_agentic.finding import Finding, warn

_DEFAULT = "episode/reward/holdout*"


@alarm(reads=("{train}", "{holdout}"))
def holdout_gap(
    history: History, *, tau: float = 0.1, train: str = "episode/acc", holdout: str = _DEFAULT, window: int = 5
) -> Finding | None:
    """The grader that is trained on pays more than one that is held out.

    A held-out grader is a part of the rubric that earns nothing, under a name that begins with `holdout`.

    Args:
        history: of a run.
        tau: by how much more.
        train: the metric that is trained on.
        holdout: the metric, or the pattern of metrics, of the held-out grader, on the same scale.
        window: steps whose median is compared.
    """
    paid, names = history.level(train, window), history.matching(holdout)
    held: Quantity = first_of(*names)
    true = history.level(held, window)
    if paid is None or true is None or paid - true < tau:
        return None
    return warn(
        found=f"the grader that is trained on gives {paid:.3g}, the held-out one {true:.3g}: a gap of "
        f"{paid - true:.2g} (limit {tau:g})",
        evidence={"train": paid, "holdout": true, "gap": paid - true, "holdout_metric": names[0]},
        advice="read episodes that only the trained grader likes (verl-agentic view), close the hole (verl-agentic "
        "reward audit), and add the held-out grader to agentic.rubric.components",
    )
