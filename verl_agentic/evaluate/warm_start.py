"""The stop criterion of an SFT warm start: checks of its checkpoints, and the checkpoint that RL begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.base.settings import Settings, setting


class WarmStartRule(Settings):
    """The checks of a warm start, and when it stops. The defaults are ours."""

    tasks: int = setting(64, min=1)
    """Number of held-out tasks, the first ones of the file."""
    samples: int = setting(8, min=2)
    """Episodes of each task at temperature 1; the k of pass@k."""
    patience: int = setting(2, min=1)
    """Checks without a higher pass@k, after which training ends."""
    min_entropy: float = setting(0.05, min=0)
    """Entropy in nats per sampled token, below which training ends and a checkpoint is not taken."""


@dataclass(frozen=True, kw_only=True)
class WarmStartCheck:
    """The figures of a checkpoint on held-out tasks."""

    step: int
    pass_at_1: float
    pass_at_k: float
    entropy: float
    """Nats per sampled token."""


def make_check(step: int, figures: Mapping[str, Any]) -> WarmStartCheck:
    """Returns the check of a checkpoint.

    Args:
        step: training steps of the checkpoint.
        figures: of `model_probe.probe_figures`.

    Raises:
        DataError: no episode is valid.
    """
    if figures["pass@k"] is None or figures["entropy"] is None:
        raise DataError(
            f"the checkpoint of step {step} has no valid episode on the held-out tasks; run `verl-agentic env validate`"
        )
    return WarmStartCheck(
        step=step, pass_at_1=figures["pass@1"]["mean"], pass_at_k=figures["pass@k"], entropy=figures["entropy"]["mean"]
    )


def choose_check(checks: Sequence[WarmStartCheck], rule: WarmStartRule) -> WarmStartCheck:
    """Returns the check with the highest pass@k among those with enough entropy, the earliest of equal ones.

    RL raises the probability of attempts that succeed now and then. pass@k counts them, pass@1 after SFT does not
    predict what RL reaches, and a policy without entropy no longer varies its attempts. If no check has enough entropy,
    the one with the most entropy is returned.

    Args:
        checks: at least one, in the order of steps.
        rule: its `min_entropy`.

    Paper: https://arxiv.org/abs/2510.01624 (pass@k predicts the outcome of RL better than the success after SFT)
    Deviations: a small k, a rule for stopping, and the limit of the entropy are ours; the paper's other predictor, the
        loss on held-out demonstrations, is verl's `val/loss`.
    """
    varied = [check for check in checks if check.entropy >= rule.min_entropy]
    if not varied:
        return max(checks, key=lambda check: check.entropy)
    return max(varied, key=lambda check: check.pass_at_k)


def reason_to_stop(checks: Sequence[WarmStartCheck], rule: WarmStartRule) -> str:
    """Returns why a warm start ends after its last check; empty while it goes on."""
    last = checks[-1]
    if last.entropy < rule.min_entropy:
        return f"its entropy {last.entropy:.3g} is below {rule.min_entropy:g} nats per token"
    num_checks = sum(check.step > choose_check(checks, rule).step for check in checks)
    if num_checks >= rule.patience:
        return f"pass@{rule.samples} has not risen for {num_checks} checks"
    return ""
