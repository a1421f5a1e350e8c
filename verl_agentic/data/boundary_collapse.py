"""Whether training has made a policy surer of what it could do, at the cost of what it could reach."""

from __future__ import annotations

from collections.abc import Mapping

from verl_agentic.errors import ConfigError


def boundary_complaint(base: Mapping[int, float], now: Mapping[int, float], *, margin: float = 0.0) -> str | None:
    """Returns a message when pass@1 has risen and pass@k of the largest k has fallen; None otherwise.

    Such a policy solves fewer tasks than the one it came from, given enough attempts: the boundary of what it can do
    has collapsed. Compare values of the same tasks and settings, and give `margin` their standard error.

    Args:
        base: pass@k of the model before training, by k; must have 1 and a larger k in common with `now`.
        now: pass@k of the model after training.
        margin: by how much pass@k must have fallen to count.

    Raises:
        ConfigError: 1, or a larger k, is not in both.

    Paper: https://arxiv.org/abs/2508.00222 (RL-PLUS names the effect; the test is ours)
    """
    shared = sorted(set(base) & set(now))
    if len(shared) < 2 or shared[0] != 1:
        raise ConfigError(f"both must have pass@1 and pass@k of a larger k, got {sorted(base)} and {sorted(now)}")
    k = shared[-1]
    if now[1] <= base[1] or now[k] >= base[k] - margin:
        return None
    return (
        f"the boundary of what the policy can do has shrunk: pass@1 rose from {base[1]:g} to {now[1]:g}, but pass@{k} "
        f"fell from {base[k]:g} to {now[k]:g}; keep more entropy, mix in data from outside the policy, or train less"
    )
