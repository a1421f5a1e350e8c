"""Check: stop reasons of episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_agentic.base.finding import Finding, unknown
from verl_agentic.observe.diagnosis.check import record_check
from verl_agentic.observe.diagnosis.row_keys import keys_of
from verl_agentic.observe.diagnosis.series import recent_mean

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence

_PREFIX = "episode/stop/"
_OUT_OF_TURNS = 0.5
_ADVICE = {
    "max_turns": "raise agentic.limits.max_turns, or keep tokens for an answer (answer_reserve_tokens)",
    "no_action": "the environment needs an action in every turn: compare their format with "
    "agentic.protocol; warm up on demonstrations (SFT)",
    "content_filter": "the server refuses the content of conversations: see its filter, and the tasks",
    "policy_fault": "the code of the policy fills its sandbox or uses up its time: read the errors of these episodes, "
    "and raise the limit if honest code needs it",
    "agent_failed": "the agent program crashes or hangs after turns of the policy: read the log of the workers",
}


@record_check
def stop_reasons(run: RunEvidence) -> Finding:
    """Returns the share of every reason among recent episodes; they sum to 1."""
    shares, look_at = fractions(run), ()
    if not shares:
        return unknown("stop reasons are unknown: neither trajectories of env_agent nor episode/stop/*")
    listed = sorted(((name, share) for name, share in shares.items() if share), key=lambda pair: -pair[1])
    message = ", ".join(f"{name} {share:.1%}" for name, share in listed)
    for name, advice in _ADVICE.items():
        if shares.get(name, 0.0) > _OUT_OF_TURNS:
            look_at = keys_of(run.recent[run.recent["stop_reason"] == name])
            return Finding(status="warn", found=message, advice=advice, evidence=shares, look_at=look_at)
    return Finding(status="ok", found=message, evidence=shares)


def fractions(run: RunEvidence) -> dict[str, float]:
    """Returns the share of every stop reason among recent episodes; empty if unknown."""
    reasons = run.recent["stop_reason"][run.recent["stop_reason"] != ""]
    if len(reasons):
        return {str(name): float(share) for name, share in reasons.value_counts(normalize=True).items()}
    return {name.removeprefix(_PREFIX): recent_mean(run.series(name)) for name in run.names(_PREFIX)}
