"""Reads finished groups from TransferQueue, in the form for gates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from verl_agentic.base.errors import ConfigError
from verl_agentic.episode.loop_settings import GREEDY_SESSION
from verl_agentic.sampling.gate import Decision, Group, Session
from verl_agentic.verl.batches.row_store import read_columns, session_of, split_key

_COLUMNS = {
    "reward": ("rm_scores",),
    "entropy": ("rollout_log_probs", "response_mask"),
    "ratio": ("old_log_probs", "rollout_log_probs", "response_mask"),
}
"""Field of a session -> columns of its rows from which it is computed."""
_HINTS = {
    "rm_scores": "let rewards be computed while episodes are played (no colocated reward model)",
    "rollout_log_probs": "set actor_rollout_ref.rollout.calculate_log_probs=true",
    "old_log_probs": "fresh episodes have none; use off_policy, or algorithm.rollout_correction.rollout_rs",
}


@dataclass(frozen=True, kw_only=True)
class FinishedGroup:
    """A finished group, and the decision of gates on it."""

    group: Group
    """All of its sessions, as they were sampled."""
    decision: Decision
    session_ids: tuple[str, ...]
    """Ids of the sessions, in order."""
    extras: tuple[Mapping[str, Any], ...]
    """Extra fields of the last row of each session."""
    step: int
    """Training step for which lags are counted."""

    @property
    def lag(self) -> int:
        """Number of versions since the oldest weights that sampled it."""
        return max((session.lag or 0 for session in self.group.sessions), default=0)

    def dropped_sessions(self) -> set[str]:
        """Returns the ids of the sessions that a gate dropped."""
        places = zip(self.session_ids, self.group.sessions, self.decision.group.sessions, strict=True)
        return {name for name, before, after in places if after.is_void and not before.is_void}

    def at(self, step: int) -> FinishedGroup:
        """Returns the same at a later step."""
        decision = replace(self.decision, group=_age(self.decision.group, step - self.step))
        return replace(self, group=_age(self.group, step - self.step), decision=decision, step=step)

    def named(self, uid: str) -> FinishedGroup:
        """Returns the same of a copy of the group."""
        decision = replace(self.decision, group=replace(self.decision.group, uid=uid))
        return replace(self, group=replace(self.group, uid=uid), decision=decision)


def _age(group: Group, versions: int) -> Group:
    """Returns a group with larger lags."""
    sessions = tuple(replace(s, lag=None if s.lag is None else s.lag + versions) for s in group.sessions)
    return replace(group, sessions=sessions)


def read_groups(
    uids: set[str], *, partition_id: str, tags: Mapping[str, Mapping[str, Any]], needs: set[str], step: int
) -> list[FinishedGroup]:
    """Returns finished groups, which no gate has judged. Greedy sessions (baselines of ReMax) are excluded.

    Args:
        tags: tags of all rows of the partition, by key.
        needs: fields of sessions that gates need.
        step: the training step that would use them.

    Raises:
        ConfigError: a column is missing.
    """
    rows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for key in sorted((key for key in tags if session_of(key)[0] in uids), key=lambda key: split_key(key)[2]):
        rows[session_of(key)].append(key)
    extras = _fetch_extras([keys[-1] for keys in rows.values()], partition_id)
    columns = _fetch_columns([key for keys in rows.values() for key in keys], partition_id, needs)
    sessions: dict[str, dict[str, tuple[Session, Mapping[str, Any]]]] = {uid: {} for uid in sorted(uids)}
    for ((uid, session_id), keys), (extra, greedy) in zip(rows.items(), extras, strict=True):
        if greedy != session_id:
            fields = _compute_fields([columns[key] for key in keys], needs)
            sessions[uid][session_id] = (
                _make_session(extra, [tags[key] for key in keys], step=step, fields=fields),
                extra,
            )
    groups = {uid: Group(uid=uid, sessions=tuple(session for session, _ in sessions[uid].values())) for uid in sessions}
    return [
        FinishedGroup(
            group=group,
            decision=Decision(group=group),
            session_ids=tuple(sessions[uid]),
            extras=tuple(extra for _, extra in sessions[uid].values()),
            step=step,
        )
        for uid, group in groups.items()
    ]


def _make_session(
    extra: Mapping[str, Any], tags: Sequence[Mapping[str, Any]], *, step: int, fields: Mapping[str, float]
) -> Session:
    numbers = extra.get("reward_extra_info") or {}
    acc = numbers.get("acc")
    return Session(
        is_void=bool(numbers.get("void", 0)),
        is_external=bool(numbers.get("external", 0)),
        acc=None if acc is None else float(acc),
        lag=max(step - 1 - _oldest_weights(tag) for tag in tags),
        num_tokens=sum(int(tag["response_len"]) for tag in tags),
        **fields,
    )


def _oldest_weights(tag: Mapping[str, Any]) -> int:
    """Returns a version; a prompt of step n is sent out with the weights of step n - 1."""
    version = tag.get("min_global_steps")
    return int(tag["global_steps"]) - 1 if version is None else int(version)


def _fetch_extras(keys: list[str], partition_id: str) -> list[tuple[Mapping[str, Any], str | None]]:
    """Returns the extra fields of rows, and the greedy session of each group."""
    columns = read_columns(keys, partition_id=partition_id, names=["extra_fields", GREEDY_SESSION])
    greedy = [str(int(place)) for place in columns[GREEDY_SESSION]] if GREEDY_SESSION in columns else [None] * len(keys)
    return list(zip(columns["extra_fields"] if keys else [], greedy, strict=True))


def _fetch_columns(keys: list[str], partition_id: str, needs: set[str]) -> dict[str, dict[str, torch.Tensor]]:
    """Returns the needed columns of rows, by key."""
    names = sorted({name for need in needs for name in _COLUMNS.get(need, ())})
    if not names or not keys:
        return {key: {} for key in keys}
    columns = read_columns(keys, partition_id=partition_id, names=names)
    if missing := [name for name in names if name not in columns]:
        hint = _HINTS.get(missing[0], "play episodes with env_agent")
        raise ConfigError(f"gates need the column {missing[0]!r} of every row, which there is not; {hint}")
    return {key: {name: columns[name][place] for name in names} for place, key in enumerate(keys)}


def _compute_fields(rows: Sequence[Mapping[str, torch.Tensor]], needs: set[str]) -> dict[str, float]:
    """Returns the fields of a session from its rows."""
    fields: dict[str, float] = {}
    if "reward" in needs:
        fields["reward"] = sum(float(row["rm_scores"].float().sum()) for row in rows)
    if "entropy" in needs:
        fields["entropy"] = -_mean_over_sampled(rows, lambda row: row["rollout_log_probs"].float())
    if "ratio" in needs:
        change = _mean_over_sampled(rows, lambda row: row["old_log_probs"].float() - row["rollout_log_probs"].float())
        fields["ratio"] = float(torch.tensor(change).exp())
    return fields


def _mean_over_sampled(rows: Sequence[Mapping[str, torch.Tensor]], of: Any) -> float:
    """Returns the mean over the sampled tokens of all rows; 0 if there are none."""
    picked = torch.cat([of(row)[row["response_mask"].bool()] for row in rows])
    return float(picked.mean()) if len(picked) else 0.0
