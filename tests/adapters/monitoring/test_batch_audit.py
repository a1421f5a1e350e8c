"""The audit of a batch: groups of which sessions are missing."""

from __future__ import annotations

from verl_agentic.verl.extensions.monitoring.health.batch_audit import incomplete_groups


def test_groups_of_which_sessions_are_missing_are_reported() -> None:
    uids, sessions = ["a", "a", "a", "b", "b"], [0, 1, 1, 0, 2]
    assert incomplete_groups(uids[:2], sessions[:2], expected={"a": 2}) == []
    breaches = incomplete_groups(uids, sessions, expected={"a": 3, "b": 3})
    assert [(row, breach.message) for row, breach in breaches] == [
        (0, "group a has 2 of 3 sessions; missing: [2]"),
        (3, "group b has 2 of 3 sessions; missing: [1]"),
    ]
    assert incomplete_groups(uids, sessions, expected={"a": 2, "b": 2}) == []
