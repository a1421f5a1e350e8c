"""Rows that a human is asked to check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verl_agentic.log.reader import RunLog, write_run
from verl_agentic.observe.viewer.spot_check import spot_check, suspicious


def row(session: int, **columns: Any) -> dict[str, Any]:
    start = {"uid": f"g{session:03d}", "split": "train", "step": 1, "place": "last", "role": "policy", "index": 0}
    usual = {"reward": 0.1 + 1.0 * (session % 2), "acc": float(session % 2), "num_model_tokens": 100 + session % 7}
    return {**start, **usual, "session": session, **columns}


def calls(*arguments: str) -> dict[str, Any]:
    made = [{"name": "python", "arguments": text} for text in arguments]
    return {"num_calls": len(made), "turns": [{"index": 0, "calls": made[:2]}, {"index": 1, "calls": made[2:]}]}


ODD = {
    50: row(50, breach="row 1"),
    51: row(51, is_void=True, reward=None, acc=None),
    52: row(52, hacking=["network"]),
    53: row(53, num_model_tokens=9),  # a reward of 1.1 for 9 tokens, where 103 are usual
    54: row(54, reward=1.1),  # acc 0 is paid 0.1 elsewhere
    56: row(56, **calls("1", "1", "1")),
}
KINDS = {
    "breach of the audit": [50],
    "void": [51],
    "attempt at reward hacking": [52],
    "high reward, few tokens": [53],
    "reward far from acc": [54],
    "repeated calls": [56],
}


def a_log(folder: Path) -> RunLog:
    healthy = [row(session) for session in range(60) if session not in ODD]
    healthy += [row(60, **calls("1", "2", "3")), row(61, num_model_tokens=9, reward=0.0, acc=0.0), row(62, num_calls=2)]
    others = [row(63, place="earlier", index=1, breach="x"), row(64, role="greedy", breach="x")]
    return RunLog(write_run(folder, trajectories=[*healthy, *ODD.values(), *others]))


def test_what_is_suspicious_is_found_and_what_is_usual_is_not(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    sessions = log.summaries["session"].to_pylist()
    found = suspicious(log.summaries, log.record)
    assert {kind: [sessions[line] for line in lines] for kind, lines in found.items()} == KINDS


def test_a_check_has_as_many_of_both_each_once_and_the_same_for_the_same_seed(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    chosen = spot_check(log.summaries, log.record, count=3, seed=4)
    assert len(chosen) == 6
    assert list(chosen.values()).count(["random"]) == 3
    assert chosen == spot_check(log.summaries, log.record, count=3, seed=4)
    assert chosen != spot_check(log.summaries, log.record, count=3, seed=5)
    reasons = [why[0] for why in chosen.values() if why != ["random"]]
    assert len(set(reasons)) == 3, "every kind has its turn"


def test_fewer_suspicious_ones_than_asked_for_are_all_there(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    chosen = spot_check(log.summaries, log.record, count=20, seed=0)
    sessions = log.summaries["session"].to_pylist()
    random_ones = {sessions[line] for line, why in chosen.items() if why == ["random"]}
    others = {sessions[line] for line, why in chosen.items() if why != ["random"]}
    assert len(random_ones) == 20 and others == set(ODD) - random_ones


def test_a_run_without_rewards_is_checked_too(tmp_path: Path) -> None:
    rows = [row(session, reward=None, acc=None) for session in range(8)]
    log = RunLog(write_run(tmp_path, trajectories=rows))
    assert len(spot_check(log.summaries, log.record, count=3, seed=0)) == 3
