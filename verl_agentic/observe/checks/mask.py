"""Check: the training mask."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from verl_agentic.base.finding import GROUP_INCOMPLETE, TEXT_MISMATCH, Finding, unknown
from verl_agentic.observe.diagnosis.check import record_check
from verl_agentic.observe.diagnosis.row_keys import key_of
from verl_agentic.observe.diagnosis.stored_rows import breaches

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.evidence import RunEvidence
    from verl_agentic.observe.diagnosis.run_records import Frame

_ADVICE = {
    "observation_trained": "tool output is trained on: fix the agent loop that made response_mask; `env_agent` "
    "(rollout.agent.default_agent_loop) makes a correct mask",
    "last_token_untrained": "a reward on that token is lost: remove tokens after the last turn, as `env_agent` does",
    "reward_off_mask": "put rewards on tokens with mask 1 (`trajectory.place_rewards`): others are lost under GAE",
    "log_probs_misaligned": "check actor_rollout_ref.rollout.calculate_log_probs, and that the agent loop gives one "
    "log-prob per response token, 0 on observations",
    "text_mismatch": "text was encoded again: train on the sampled ids (token in, token out)",
    "group_incomplete": "estimators compare siblings: see the line `infra errors`, and the gates "
    "(agentic.sampling.gates)",
}


@record_check
def mask(run: RunEvidence) -> Finding:
    """Returns the findings of two audits: of every batch in training, and of stored rows, token by token."""
    counts, examples = _collect_noted(run)
    trained = [record for record in run.sample if any(record["response_mask"])]
    for record in trained:
        for name, breach in breaches(record, run.tokenizer):
            counts[name] += 1
            examples.setdefault(name, (breach, key_of(record)))
    gaps = _find_incomplete_groups(run.rows)
    if gaps and GROUP_INCOMPLETE not in counts:
        counts[GROUP_INCOMPLETE] = len(gaps)
        examples[GROUP_INCOMPLETE] = (f"step {gaps[0][0]}, uid {gaps[0][1]} lacks a session", "")
    scope = _describe_scope(run, len(trained))
    if not scope:
        return unknown("no trajectories are logged (agentic.log.dir), and no audit (audit/breaches)")
    if not counts:
        return Finding(status="ok", found=f"{scope}: nothing wrong")
    worst = counts.most_common(1)[0][0]
    message = "; ".join(f"{name} {count}x, such as: {examples[name][0]}" for name, count in counts.most_common())
    return Finding(
        status="warn" if set(counts) == {GROUP_INCOMPLETE} else "fail",
        found=f"{message} ({scope})",
        advice=_ADVICE.get(worst, "open the row in the viewer"),
        evidence=dict(counts),
        look_at=tuple(dict.fromkeys(key for _, key in examples.values() if key))[:3],
    )


def _describe_scope(run: RunEvidence, num_trained: int) -> str:
    """Returns a description of the audited rows; empty without any."""
    audited = run.series("audit/breaches")
    parts = [f"{len(audited)} steps audited in training"] if audited else []
    if num_trained:
        parts.append(f"{num_trained} of {len(run.rows)} rows audited token by token")
        parts += [] if run.tokenizer is not None else ["texts not compared, there is no tokenizer/"]
    return "; ".join(parts)


def _collect_noted(run: RunEvidence) -> tuple[Counter[str], dict[str, tuple[str, str]]]:
    """Returns the breaches that the run recorded, with an example of each: description and row, if known."""
    noted: Any = run.rows[run.rows["breach"].fillna("") != ""]
    names = noted["breach"].str.extract(r"^(\w+)", expand=False).fillna("breach") if len(noted) else []
    counts, examples = Counter(names), {}
    for name, (_, row) in zip(names, noted.iterrows(), strict=True):
        examples.setdefault(name, (row["breach"].removeprefix(f"{name}: "), key_of(row)))
    for finding in run.findings:
        kind, _, name = str(finding.get("name")).partition("/")
        if kind == "audit":
            # The batch's audit also counts rows with a breach of their own.
            rows = int((finding.get("evidence") or {}).get("rows", 1))
            counts[name] = counts[name] + rows if name != TEXT_MISMATCH else max(counts[name], rows)
            examples.setdefault(name, (f"step {finding.get('step')}, {finding.get('message')}", ""))
    for step, count in run.series("audit/breaches"):
        if count and not counts:
            counts["breaches"] = int(count)
            examples["breaches"] = (f"step {step}", "")
    return counts, examples


def _find_incomplete_groups(rows: Frame) -> list[tuple[int, str]]:
    """Returns (step, uid) of groups of which a session with a lower number was not trained on.

    Groups without a trained row are left out: they may still run, or gates may have dropped them.
    """
    policy = rows[(rows["split"] == "train") & (rows["role"] == "policy") & rows["mean_advantage"].notna()]
    sessions: Any = policy.groupby(["step", "uid"])["session"].agg(["nunique", "min", "max"])
    has_gap = sessions["max"] - sessions["min"] + 1 > sessions["nunique"]
    return [(int(step), str(uid)) for step, uid in sessions.index[has_gap]]
