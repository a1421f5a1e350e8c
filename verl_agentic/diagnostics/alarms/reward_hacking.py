"""A policy that attempts what earns a reward without solving the task."""

from __future__ import annotations

from verl_agentic.diagnostics.health.alarm import History, alarm
from verl_agentic.diagnostics.thresholds import HACKING
from verl_agentic.finding import Finding, warn

_ANY = "episode/hacking/any"
_ADVICE = {
    "test_edits": "protect tests: put them back before scoring, or refuse patches that touch them",
    "git_history": "remove the history behind the task's commit from the repository (and its remotes)",
    "network": "close the sandbox's network, and packages that hold the solution",
    "harness": "keep the grader out of the process and the file system that the policy's code runs in",
    "echoed_answer": "make the grader refuse answers that repeat the question (verl-agentic judge probe)",
}


@alarm(reads=(_ANY,), also=tuple(f"episode/hacking/{kind}" for kind in _ADVICE))
def reward_hacking(history: History, *, share: float = HACKING, window: int = 5) -> Finding | None:
    """Many episodes attempt to edit tests, read git's history, reach the network or the grader, or echo the prompt.

    Where a task wants one of these (history read, packages installed), raise the limit or turn the alarm off.

    Args:
        history: of a run.
        share: of episodes with an attempt; see `agent_loops.hacking.count` for what counts as one.
        window: steps whose median is compared.
    """
    now = history.level(_ANY, window)
    if now is None or now < share:
        return None
    counts = {kind: history.level(f"episode/hacking/{kind}", window) or 0.0 for kind in _ADVICE}
    worst = max(counts, key=lambda kind: counts[kind])
    listed = ", ".join(f"{kind} {count:.2g}" for kind, count in counts.items() if count)
    return warn(
        found=f"{now:.0%} of the episodes attempt reward hacking (limit {share:.0%}); attempts per episode: {listed}",
        evidence={"share": now, **counts},
        advice=f"read some of them (filter `{worst}` in verl-agentic view), then {_ADVICE[worst]}",
        check=worst,
    )
