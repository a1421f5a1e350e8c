"""Stored trajectories come back as they were, whatever process wrote them and however it ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import call, logged, sample, turn, write_evaluation

from verl_agentic.base.errors import DataError
from verl_agentic.graders.stored_samples import StoredSample, read_samples, take_groups
from verl_agentic.log.reader import load, write_run
from verl_agentic.rewards.sample import Sample

_NO_SAMPLES = ({"place": "earlier"}, {"is_void": True}, {"extra": ""}, {"role": "external"})
"""Rows that are no whole trajectory of the policy's: the last kind but one is of verl's own loops."""


def stored(group: str = "g", session: int = 0, *, step: int = 1, subject: Sample | None = None, **fields: Any) -> Any:
    subject = subject or sample(["7"], ground_truth="7", id=f"{group}/{session}")
    return StoredSample(group=group, session=session, step=step, split="train", sample=subject, **fields)


def test_what_a_training_logs_comes_back_in_order(tmp_path: Path) -> None:
    told = turn("<tool> é\u2028", call(query="x"), observations=["a\nb"])
    odd = sample([told, "7"], ground_truth=np.array(["7"]), extra={"n": np.int64(3)}, outcome=1.0, id="g/1")
    rows = logged(stored("h"), stored("g", 1, subject=odd, score={"acc": 1.0, "score": 0.5}), stored("g", 0, step=2))
    others = [
        {**row, "session": 7} | change for row, change in zip(logged(*[stored("x")] * 4), _NO_SAMPLES, strict=True)
    ]
    write_run(tmp_path / "rl", trajectories=[*rows, *others])
    write_run(tmp_path / "rl" / "resumed", trajectories=logged(stored("g", 0)))
    found = read_samples(tmp_path)
    assert [(s.step, s.group, s.session) for s in found] == [(1, "g", 0), (1, "g", 1), (1, "h", 0), (2, "g", 0)]
    assert found[0].key == found[1].key != found[3].key
    assert found[1].sample.turns == odd.turns and found[1].sample.env == odd.env
    assert (found[1].sample.ground_truth, found[1].sample.extra) == (["7"], {"n": 3}), "arrays of numpy are lists"
    assert (found[0].score, found[1].score) == (None, {"acc": 1.0, "score": 0.5})
    assert [[s.session for s in group] for group in take_groups(found, 100)] == [[0, 1], [0], [0]]
    # 2 of 4 samples: of 3 groups 2 * 3 // 4 = 1.
    assert [[s.session for s in group] for group in take_groups(found, 2)] == [[0, 1]]


def test_a_folder_without_trajectories_says_how_to_get_some(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        read_samples(tmp_path / "none")
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "old.json").write_text('[{"outcome": 1.0}]')
    with pytest.raises(DataError, match=r"log\.dir"):
        read_samples(tmp_path)


def test_evaluations_are_apart_from_the_run_that_they_lie_in(tmp_path: Path) -> None:
    write_run(tmp_path, trajectories=logged(stored("t")))
    for name in ("before", "after"):
        write_evaluation(tmp_path / "eval" / name, stored("e", score={"acc": 1.0}))
    found = read_samples(tmp_path)
    assert [(s.source, s.group) for s in found] == [("eval/after", "e"), ("eval/before", "e"), ("training", "t")]
    assert len({s.key for s in found}) == 3, "the same task of two evaluations is in two groups"
    assert load(tmp_path, ["uid"])["uid"].tolist() == ["t"], "a run's log has no evaluations"
    together = load(tmp_path / "eval", ["uid"])["uid"].tolist()
    assert sorted(together) == ["after:e", "before:e"]
    assert load(tmp_path / "eval" / "after", ["uid"])["uid"].tolist() == ["e"]
