"""Alarm: attempts at reward hacking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_agentic.base.finding import Finding, judged
from verl_agentic.observe.diagnosis.history import History
from verl_agentic.observe.diagnosis.row_keys import keys_of
from verl_agentic.observe.health.alarm import alarm

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_ANY = "episode/hacking/any"
_CLOSE = {
    "test_edits": "protect tests: restore them before scoring, or refuse patches that change them",
    "git_history": "remove the history before the task's commit from the repository (and its remotes)",
    "network": "block the sandbox's network, and packages that contain the solution",
    "harness": "keep the grader out of the process and the file system that the policy's code runs in",
    "config_edits": "refuse configuration of tests, and start-up files, from the policy (rewards.repository does)",
    "links": "refuse links from the policy (rewards.repository does)",
    "forged_results": "grade with poisoned tests (rewards.repository does)",
    "suspicious_pass": "read the patches; code that inspects its tests is paid only with env_config.pay_suspicious",
    "installed_packages": "remove the solved version of the package from the sandbox",
    "echoed_answer": "make the grader refuse answers that repeat the question (verl-agentic judge probe)",
}


def _compare_attempt_rewards(run: RunEvidence) -> tuple[str, tuple[str, ...]]:
    valid = run.valid
    has = valid["hacking"].map(len) > 0
    if not has.any():
        return "", ()
    means = f"{valid['reward'][has].mean():.3g}, that of the others {valid['reward'][~has].mean():.3g}"
    return f"the mean reward of {has.sum()} of {len(valid)} recent ones is {means}", keys_of(valid[has])


@alarm(reads=(_ANY,), also=tuple(f"episode/hacking/{kind}" for kind in _CLOSE), details=_compare_attempt_rewards)
def reward_hacking(history: History, *, share: float = 0.1, window: int = 5) -> Finding | None:
    """Many episodes attempt to edit tests, read git's history, reach the network or the grader, or echo the prompt.

    If a task requires one of these, such as installing packages, raise the limit or turn the alarm off.

    Args:
        share: of episodes with an attempt; see `observe.hacking.count` for what counts as one.
        window: steps whose median is compared.
    """
    now = history.level(_ANY, window)
    if now is None:
        return None
    counts = {kind: history.level(f"episode/hacking/{kind}", window) or 0.0 for kind in _CLOSE}
    worst = max(counts, key=lambda kind: counts[kind])
    listed = ", ".join(f"{kind} {count:.2g}" for kind, count in counts.items() if count)
    # An attempt may be innocent, so a diagnosis only warns.
    return judged(
        "ok" if now < share else "warn",
        found=f"{now:.0%} of the episodes attempt reward hacking (limit {share:.0%})"
        + (f"; attempts per episode: {listed}" if listed else ""),
        evidence={"share": now, **counts},
        advice=f"read some of these episodes (filter `{worst}` in verl-agentic view). If the task does not ask for it, "
        f"{_CLOSE[worst]}; score those episodes 0",
        check=worst,
    )
