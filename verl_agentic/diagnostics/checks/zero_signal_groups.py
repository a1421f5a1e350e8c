"""Alarm: groups without a signal."""

from __future__ import annotations

from verl_agentic.diagnostics.health.alarm import History, alarm, first_of
from verl_agentic.diagnostics.thresholds import ALL_0, ALL_1, SIGNAL_ADVICE, ZERO_SIGNAL
from verl_agentic.finding import Finding, warn


@alarm(
    reads=(
        "credit/zero_signal_group_frac|batch/zero_signal_group_frac",
        "credit/all_0_group_frac|batch/all_0_group_frac",
        "credit/all_1_group_frac|batch/all_1_group_frac",
    ),
)
def zero_signal_groups(
    history: History,
    *,
    all_0: float = ALL_0.warn,
    all_1: float = ALL_1.warn,
    zero_signal: float = ZERO_SIGNAL.warn,
    window: int = 5,
) -> Finding | None:
    """Most groups have siblings of one result, which give no advantage. All 0 and all 1 have their own limits.

    Args:
        all_0: share of groups without a success. At 0.7, only three groups in ten give a signal.
        all_1: share of groups without a failure; higher, because a good policy reaches it.
        zero_signal: share of groups of one result, whatever it is.
        window: steps whose median is compared.
    """
    found = {
        name: history.level(first_of(f"credit/{name}_group_frac", f"batch/{name}_group_frac"), window) or 0.0
        for name in ("all_0", "all_1", "zero_signal")
    }
    limits = {"all_0": all_0, "all_1": all_1, "zero_signal": zero_signal}
    over = [name for name in limits if found[name] >= limits[name]]
    if not over:
        return None
    kind = over[0] if over[0] != "zero_signal" else "mixed"
    return warn(
        found=f"{found['zero_signal']:.0%} of the groups have siblings of one result (all 0: {found['all_0']:.0%}, all "
        f"1: {found['all_1']:.0%}); {over[0]} must stay below {limits[over[0]]:.0%}",
        evidence={f"{name}_group_frac": value for name, value in found.items()},
        advice=SIGNAL_ADVICE[kind],
        check=kind,
    )
