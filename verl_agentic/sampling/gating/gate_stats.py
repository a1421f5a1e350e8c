"""Metrics of gates for a batch, and of the groups before the gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from verl_agentic.base.metric import CountedMean, Metric
from verl_agentic.sampling.gate import Decision, Group

_JUDGED, _GATE = "groups that gates judged", "training/gate/"
METRICS = (
    Metric(name=f"{_GATE}void_rate", unit="share", per="session", rows=_JUDGED),
    Metric(name=f"{_GATE}drop_rate", unit="share", per="group", rows=_JUDGED),
    Metric(name=f"{_GATE}*_rate", unit="share", per="group", rows=f"{_JUDGED}, with two valid sessions"),
    Metric(name=f"{_GATE}tokens_per_useful_group", unit="tokens", per="trained group", rows=_JUDGED),
    Metric(name=f"{_GATE}acc", unit="outcome, 0 to 1", per="session", rows=_JUDGED),
    Metric(name=f"{_GATE}length*_corr", unit="correlation", per="session", rows=_JUDGED),
    Metric(name=f"{_GATE}length*", unit="tokens", per="session", rows=_JUDGED),
    Metric(name=f"{_GATE}*lag/max", unit="steps", per="group", rows="trained groups", join="max"),
    Metric(name=f"{_GATE}*lag/mean", unit="steps", per="group", rows="trained groups"),
    Metric(name=f"{_GATE}replay/uses", unit="uses", per="group", rows="replayed groups"),
    Metric(name=f"{_GATE}replay/stored_groups", unit="groups", per="step", rows="stored groups", join="last"),
    Metric(name=f"{_GATE}*", unit="groups, sessions or tokens", per="step", rows=_JUDGED, join="sum"),
)


class GateStats:
    """Collects the decisions of gates for one batch."""

    def __init__(self, gates: Sequence[str]) -> None:
        """Makes empty statistics for gates of these names."""
        self._gates = tuple(gates)
        self._judged: list[Group] = []
        self._dropped: Counter[str] = Counter()
        self._dropped_sessions: Counter[str] = Counter()

    def record(self, group: Group, decision: Decision) -> None:
        """Records the decision on a group; `group` is the group before any gate."""
        self._judged.append(group)
        self._dropped.update([decision.gate] if decision.gate else [])
        self._dropped_sessions.update(decision.sessions)

    def metrics(self, *, batch_size: int) -> dict[str, float]:
        """Returns the metrics of a full batch of `batch_size` trained groups."""
        tokens = sum(session.num_tokens for group in self._judged for session in group.sessions)
        return {
            "judged_groups": float(len(self._judged)),
            "drop_rate": CountedMean(self._dropped.total() / max(1, len(self._judged)), count=len(self._judged)),
            "generated_tokens": float(tokens),
            "tokens_per_useful_group": CountedMean(tokens / max(1, batch_size), count=batch_size),
            **{f"{name}/dropped_groups": float(self._dropped[name]) for name in self._gates},
            **{f"{name}/dropped_sessions": float(count) for name, count in self._dropped_sessions.items()},
            **group_health(self._judged),
        }


def group_health(groups: Sequence[Group]) -> dict[str, float]:
    """Returns the share of groups without a signal, and how length correlates with success.

    `zero_variance_rate` splits into `all_0_rate`, `all_1_rate` and rest, over groups with two valid sessions of the
    policy or more; `length_acc_corr` is Pearson's coefficient over these. Undefined values are left out.
    """
    outcomes = [[s.acc for s in group.own if s.acc is not None] for group in groups]
    compared = [values for values in outcomes if len(values) > 1]
    same = [values[0] for values in compared if all(value == values[0] for value in values)]
    sessions = [session for group in groups for session in group.sessions]
    pairs = [(float(s.num_tokens), s.acc) for group in groups for s in group.own if s.acc is not None]
    health: dict[str, float] = {}
    if compared:
        counts = {"zero_variance_rate": len(same), "all_0_rate": same.count(0.0), "all_1_rate": same.count(1.0)}
        health |= {name: CountedMean(count / len(compared), count=len(compared)) for name, count in counts.items()}
    if sessions:
        num_void = sum(session.is_void for session in sessions)
        health["void_rate"] = CountedMean(num_void / len(sessions), count=len(sessions))
    if pairs:
        lengths, accs = np.array(pairs).T
        means = {"acc": accs, "length": lengths, "length_of_wrong": lengths[accs <= 0]}
        health |= {name: CountedMean(of.mean(), count=len(of)) for name, of in means.items() if len(of)}
        if lengths.min() < lengths.max() and accs.min() < accs.max():
            health["length_acc_corr"] = float(np.corrcoef(lengths, accs)[0, 1])
    return health
