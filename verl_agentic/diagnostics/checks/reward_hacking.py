"""Alarm: attempts at reward hacking."""

from __future__ import annotations

from verl_agentic.diagnostics.health.alarm import History, alarm
from verl_agentic.diagnostics.thresholds import HACKING, HACKING_ADVICE
from verl_agentic.finding import Finding, warn

_ANY = "episode/hacking/any"


@alarm(reads=(_ANY,), also=tuple(f"episode/hacking/{kind}" for kind in HACKING_ADVICE))
def reward_hacking(history: History, *, share: float = HACKING, window: int = 5) -> Finding | None:
    """Many episodes attempt to edit tests, read git's history, reach the network or the grader, or echo the prompt.

    If a task requires one of these, such as installing packages, raise the limit or turn the alarm off.

    Args:
        share: of episodes with an attempt; see `agent_loops.hacking.count` for what counts as one.
        window: steps whose median is compared.
    """
    now = history.level(_ANY, window)
    if now is None or now < share:
        return None
    counts = {kind: history.level(f"episode/hacking/{kind}", window) or 0.0 for kind in HACKING_ADVICE}
    worst = max(counts, key=lambda kind: counts[kind])
    listed = ", ".join(f"{kind} {count:.2g}" for kind, count in counts.items() if count)
    return warn(
        found=f"{now:.0%} of the episodes attempt reward hacking (limit {share:.0%}); attempts per episode: {listed}",
        evidence={"share": now, **counts},
        advice=HACKING_ADVICE[worst],
        check=worst,
    )
