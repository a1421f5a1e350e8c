"""Stored trajectories come back as they were, whatever process wrote them and however it ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import call, logged, sample, turn

from verl_agentic.base.errors import DataError
from verl_agentic.data.stored_samples import StoredSample, read_samples, stored_episode, take_groups
from verl_agentic.log.reader import write_run
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


def test_a_line_that_was_cut_off_is_skipped_and_another_broken_one_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [json.dumps({"key": f"g/{n}", "stored_sample": stored(session=n).to_dict()}) + "\n" for n in range(2)]
    path = tmp_path / "episodes.jsonl"
    path.write_text("".join(lines)[:-20])
    assert [s.session for s in read_samples(tmp_path)] == [0]
    assert f"{path}:2 is incomplete" in caplog.text
    path.write_text("".join(lines)[20:])
    with pytest.raises(DataError, match=r"episodes\.jsonl"):
        read_samples(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"split": "test"}, r":1: not a stored sample, got ValueError: split is 'test'"),
        ({"sample": {"version": 0}}, "must have version 1, got 0"),
        ({"score": 3}, "not a stored sample, got AttributeError"),
        ({"session": None}, "not a stored sample, got TypeError"),
    ],
)
def test_what_is_no_record_is_refused_with_its_place(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    record = {"key": "g/0", "stored_sample": {**stored().to_dict(), **change}}
    (tmp_path / "episodes.jsonl").write_text(json.dumps(record) + "\n")
    with pytest.raises(DataError, match=says.replace(":1:", ".*:")):
        read_samples(tmp_path)


def test_a_folder_without_trajectories_says_how_to_get_some(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        read_samples(tmp_path / "none")
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "old.json").write_text('[{"outcome": 1.0}]')
    (tmp_path / "episodes.jsonl").write_text('{"key": "a/0", "stored_sample": null}\n')
    with pytest.raises(DataError, match=r"log\.dir"):
        read_samples(tmp_path)


def test_of_an_evaluation_the_last_record_of_a_key_counts(tmp_path: Path) -> None:
    lines = [
        {"key": "g/0", "stored_sample": stored(score={"acc": 0.0}).to_dict()},
        {"key": "g/0", "stored_sample": stored(score={"acc": 1.0}).to_dict()},
    ]
    (tmp_path / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [s.score for s in read_samples(tmp_path)] == [{"acc": 1.0}]


async def test_an_episode_is_stored_with_what_its_environment_paid_and_a_void_one_is_not() -> None:
    from fakes import END, ROW, FakeEnv, encode, episode_setup

    from verl_agentic.episode.policies.policy import ScriptedPolicy
    from verl_agentic.episode.run_episode import run_episode

    policy = ScriptedPolicy(lambda messages: "42", encode=encode, end_ids=[END])
    episode = await run_episode(ROW, make_env=FakeEnv, setup=episode_setup(policy), request_id="r")
    record = stored_episode(episode, ROW, group="3", session=2)
    assert record is not None and record["score"] is not None
    back = StoredSample.from_dict(json.loads(json.dumps(record)))
    assert (back.group, back.session, back.step, back.split, back.sample.final_answer) == ("3", 2, 0, "val", "42")
    assert record["score"]["acc"] == episode.reward.outcome and record["score"]["score"] == episode.reward.total

    class Failing(FakeEnv):
        async def start(self) -> Any:
            raise OSError("no disk")

    void = await run_episode(ROW, make_env=Failing, setup=episode_setup(policy), request_id="r")
    assert void.is_void and stored_episode(void, ROW, group="3") is None
