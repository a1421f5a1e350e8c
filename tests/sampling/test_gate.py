"""Gates by name, one after the other, and what their batch looked like."""

from __future__ import annotations

from typing import Any

import pytest

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.sampling.gate import (
    Decision,
    Group,
    Session,
    decide,
    decide_together,
    gate_names,
    load_gate,
    to_gates,
)
from verl_agentic.sampling.gating.gate_stats import GateStats, group_health


def group(accs: list[float | None], *, uid: str = "g", tokens: list[int] | None = None, **known: Any) -> Group:
    lengths = tokens or [0] * len(accs)
    pairs = zip(accs, lengths, strict=True)
    return Group(uid=uid, sessions=tuple(Session(acc=a, is_void=a is None, num_tokens=n, **known) for a, n in pairs))


def with_entropy(accs: list[float], entropies: list[float]) -> Group:
    pairs = zip(accs, entropies, strict=True)
    return Group(uid="g", sessions=tuple(Session(acc=a, entropy=h, reward=a) for a, h in pairs))


def test_no_gate_judges_a_group_with_an_outcome_that_is_no_number() -> None:
    for gate in ("zero_variance", {"name": "band_pass", "low": 0.1, "high": 0.9}):
        with pytest.raises(DataError, match="'acc'"):
            decide(group([1.0, float("nan")]), to_gates([gate], name="gates"))


def test_every_file_is_a_gate_of_its_name() -> None:
    assert gate_names() == sorted(
        ["band_pass", "low_entropy", "off_policy", "off_policy_ratio", "top_p_signal", "void_groups", "zero_variance"]
    )
    assert [load_gate(name).name for name in gate_names()] == gate_names()


def test_the_first_gate_that_drops_a_group_ends_the_matter() -> None:
    gates = to_gates(["void_groups", "zero_variance", {"name": "band_pass", "low": 0.4, "high": 1}], name="gates")
    made = [decide(group(accs), gates) for accs in ([None, 1], [1, 1], [1, 0, 0], [1, 0])]
    assert [(one.gate, one.reason) for one in made] == [
        ("void_groups", "void"),
        ("zero_variance", "all_1"),
        ("band_pass", "too_hard"),
        ("", ""),
    ]


def test_a_gate_sees_what_earlier_ones_have_left() -> None:
    whole = with_entropy([0, 1, 1], [0.01, 1, 1])
    assert decide(whole, to_gates(["low_entropy", "zero_variance"], name="gates")).reason == "all_1"
    first = decide(whole, to_gates(["zero_variance", "low_entropy"], name="gates"))
    assert first.is_kept and first.sessions == {"low_entropy": 1}
    assert [s.is_void for s in first.group.sessions] == [True, False, False]
    assert not any(s.is_void for s in whole.sessions)
    void = Group(uid="g", sessions=(*whole.sessions, Session(is_void=True)))
    assert [s.is_void for s in decide(void, to_gates(["low_entropy"], name="gates")).group.sessions] == [1, 0, 0, 1]


def test_gates_that_see_all_do_not_see_what_is_dropped() -> None:
    gates = to_gates([{"name": "top_p_signal", "fraction": 0.5}], name="gates")
    groups = [with_entropy([1, 0], [1, 1]), with_entropy([0.6, 0.5], [1, 1]), with_entropy([0.8, 0.5], [1, 1])]
    decisions = [Decision(group=g) for g in groups]
    decisions[0] = Decision(group=groups[0], gate="band_pass", reason="too_easy")
    assert [one.gate for one in decide_together(decisions, gates)] == ["band_pass", "top_p_signal", ""]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("zero_variance", "gates"),
        ({"zero_variance": {}}, "gates"),
        ([3], "gates"),
        ([{"low": 1}], "gates"),
        (["nothing"], "'nothing'"),
        (["__init__"], "'__init__'"),
        ([{"name": "zero_variance", "by": "reward"}], "'by'"),
        (["void_groups", "void_groups"], "gate"),
    ],
)
def test_what_is_no_list_of_gates_is_refused_by_name(written: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        to_gates(written, name="gates")


def test_the_metrics_of_a_batch_are_of_all_that_was_judged() -> None:
    stats = GateStats(["void_groups", "zero_variance"])
    gates = to_gates(["void_groups", "zero_variance"], name="gates")
    for accs in ([1, 1], [0, 0], [1, 0], [None, 1], [0.5, 0.5]):
        judged = group(accs, tokens=[10, 30])
        stats.record(judged, decide(judged, gates))
    metrics = stats.metrics(batch_size=1)
    assert metrics["judged_groups"] == 5 and metrics["drop_rate"] == 4 / 5
    assert metrics["tokens_per_useful_group"] == metrics["generated_tokens"] == 200
    assert metrics["void_groups/dropped_groups"] == 1 and metrics["zero_variance/dropped_groups"] == 3
    # Of the four groups that can be compared, three are all the same: one 0, one 1, one in between.
    assert [metrics[f"{name}_rate"] for name in ("zero_variance", "all_0", "all_1")] == [0.75, 0.25, 0.25]
    assert metrics["void_rate"] == 0.1
    assert GateStats(["void_groups"]).metrics(batch_size=0)["void_groups/dropped_groups"] == 0


def test_length_is_told_for_wrong_answers_and_by_how_it_goes_with_being_right() -> None:
    # Right answers are longer, in a straight line.
    health = group_health([group([0, 1, 0, 1], tokens=[1000, 8000, 1000, 8000])])
    assert health["length"] == 4500 and health["length_of_wrong"] == 1000
    assert health["length_acc_corr"] == pytest.approx(1.0)
    assert "length_acc_corr" not in group_health([group([1, 1], tokens=[1, 2])])
    assert "length_acc_corr" not in group_health([group([1, 0], tokens=[2, 2])])


def test_nothing_is_told_of_nothing() -> None:
    assert group_health([]) == {} and group_health([group([None])]) == {"void_rate": 1.0}
