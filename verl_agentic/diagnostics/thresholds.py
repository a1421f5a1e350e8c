"""The limits that an alarm and a line of `diagnose` share, so that both judge the same thing by the same number.

An alarm's default is `warn`: there the alarm is raised and the diagnosis warns. `fail` is for the diagnosis only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Judgement = Literal["ok", "warn", "fail"]
ORDER: tuple[Judgement, ...] = ("ok", "warn", "fail")
"""From good to bad."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A limit of a metric. Where `fail` is below `warn`, small values are the bad ones."""

    warn: float
    fail: float

    def judge(self, value: float) -> Judgement:
        """Returns how bad a value is; the limits themselves are bad already."""
        sign = -1.0 if self.fail < self.warn else 1.0
        if sign * value >= sign * self.fail:
            return "fail"
        return "warn" if sign * value >= sign * self.warn else "ok"


KL_REFERENCE = Limit(warn=0.5, fail=10.0)
"""Nats per token to the reference policy. Runs that go well stay near 0.1 or below."""
KL_UPDATE = Limit(warn=0.1, fail=0.5)
"""Nats per token of one step's updates. PPO's usual targets are 0.01 to 0.02."""
KL_ROLLOUT = Limit(warn=0.1, fail=0.5)
"""Nats per token from what the samples came from."""
ENTROPY_LEFT = Limit(warn=0.3, fail=0.1)
"""Share of the entropy at the beginning, while the reward has not risen."""
ENTROPY_FLOOR = 0.005
"""Nats per token: a policy that is 99.9 % sure of nearly every token."""
ENTROPY_SOLVED = 0.95
"""Outcome from which on a policy without entropy is no fault."""
TRUNCATED = Limit(warn=0.25, fail=0.5)
"""Share of episodes that end because tokens ran out: at a quarter, the batch learns from answers without an end."""
ALL_0 = Limit(warn=0.7, fail=0.95)
"""Share of groups without a success: at 0.7, three groups in ten do all the teaching."""
ALL_1 = Limit(warn=0.8, fail=0.95)
"""Share of groups without a failure; higher, because a policy that is good gets there by itself."""
ZERO_SIGNAL = Limit(warn=0.9, fail=0.95)
"""Share of groups whose siblings have one result, whatever it is."""
UNKNOWN_TOOL = Limit(warn=0.1, fail=0.3)
"""Share of calls that name a tool that does not exist. Small, because the prompt lists the tools."""
TOOL_CALLS_LEFT = Limit(warn=0.1, fail=0.02)
"""Calls per episode, as a share of the highest level before."""
TOOL_CALLS_WERE = 0.1
"""Calls per episode that there must have been before; fewer are chance."""
TOOLS_NOT_NEEDED = 0.9
"""Outcome from which on tools that are never called are no fault."""
NEVER_SOLVED = Limit(warn=0.9, fail=0.95)
"""Share of the prompts seen that no attempt has solved."""
VOID = Limit(warn=0.05, fail=0.2)
"""Share of void episodes. Slow and hard tasks are void more often, so that the others are a biased choice."""
MISMATCH = Limit(warn=0.05, fail=0.3)
"""Mean of |log pi_train - log pi_rollout| in nats. Engines in bfloat16 that agree differ by 0.005 to 0.03."""
MISMATCH_PROBS = Limit(warn=0.03, fail=0.1)
"""The same as a difference of probabilities, where nothing else was logged."""
LATER_TURNS = 4.0
"""How many times the first turn's mismatch a later turn may have."""
LATER_TURNS_MIN = 0.03
"""Nats: smaller mismatches of later turns are noise."""
PART_SHARE = Limit(warn=0.5, fail=0.7)
"""A shaping part's share of the reward while the outcome does not rise."""
HACKING = 0.1
"""Share of episodes that attempt reward hacking. An attempt is no proof, so that the diagnosis only warns."""
MEMORY_GROWTH = 0.2
"""Growth of memory in `MEMORY_WINDOW` steps, as a share of what it was before."""
MEMORY_MIN_GB = 1.0
"""The least growth in the window that is a danger."""
MEMORY_STEADINESS = 0.8
"""Kendall's tau with time: a leak has no relapses; caches that fill, and other users of the machine, do."""
MEMORY_WINDOW = 30
"""Steps."""
_MIN_GAIN = 0.05


def has_risen(before: float, now: float, *, at_least: float = _MIN_GAIN) -> bool:
    """Tells whether a reward has risen by at least 0.05, or 5 % of its size where that is more."""
    return now - before >= at_least * max(1.0, abs(before))
