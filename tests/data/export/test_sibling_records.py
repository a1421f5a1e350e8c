"""Pairs of trajectories and of turns, and the values of turns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_logs import PROMPT, Turn, log_row
from samples import sample, turn

from verl_agentic.base.errors import ConfigError, DataError, ScoringError
from verl_agentic.base.types import Message
from verl_agentic.data.export.critique import Critic
from verl_agentic.data.export.export_run import ExportOptions, export_run
from verl_agentic.log.files.record_files import numbered_records
from verl_agentic.log.reader import write_run
from verl_agentic.rewards.sample_row import to_columns

Rows = list[dict[str, Any]]


def export(folder: Path, log: Sequence[dict[str, Any]], shape: str, **options: Any) -> Rows:
    """Returns the records; none if the export says that none is left."""
    run = write_run(folder / "run", trajectories=log)
    try:
        export_run(run, folder / "out.parquet", ExportOptions(shape=shape, **options))
    except DataError as error:
        if "no record is left" not in str(error):
            raise
        return []
    return [record for _, record in numbered_records(folder / "out.parquet")]


def one_turn(session: int, acc: float, **columns: Any) -> dict[str, Any]:
    return log_row(session, [([10 + session], [])], acc=acc, **columns)


def test_a_pair_is_the_best_and_the_worst_sibling_with_their_ids_and_masks(tmp_path: Path) -> None:
    log = [
        log_row(0, [([4, 5], [6]), ([7], [])], acc=0.5),
        log_row(1, [([8], [6]), ([9], [])], acc=1.0),
        *(log_row(session, [([session], [])], acc=0.0) for session in (2, 3)),
        log_row(4, [([7], [])], acc=1.0),
    ]
    (pair,) = export(tmp_path, log, "pairs")
    assert (pair["prompt_ids"], pair["turn"], pair["uid"], pair["task_id"]) == (PROMPT, None, "g", "task g")
    assert (pair["chosen_ids"], pair["chosen_mask"], pair["chosen_value"]) == ([8, 6, 9], [1, 0, 1], 1.0)
    assert (pair["rejected_ids"], pair["rejected_mask"], pair["rejected_value"]) == ([2], [1], 0.0)


@pytest.mark.parametrize(("values", "gap", "pairs"), [((0.8, 0.2), 0.3, 1), ((0.5, 0.4), 0.3, 0), ((0.5, 0.5), 0.0, 0)])
def test_close_values_and_ties_make_no_pair(tmp_path: Path, values: Sequence[float], gap: float, pairs: int) -> None:
    log = [one_turn(session, acc) for session, acc in enumerate(values)]
    assert len(export(tmp_path, log, "pairs", gap=gap)) == pairs


def test_pairs_compare_a_part_of_the_reward(tmp_path: Path) -> None:
    log = [one_turn(0, 1.0, numbers={"reward/format": 0.0}), one_turn(1, 0.0, numbers={"reward/format": 1.0})]
    log[0]["score"], log[1]["score"] = {"score": 0.25}, {"score": 0.5}
    for by, value in (("reward/format", 1.0), ("score", 0.5)):
        (pair,) = export(tmp_path / by, log, "pairs", by=by)
        assert (pair["chosen_ids"], pair["chosen_value"]) == ([11], value)


def test_siblings_have_equal_prompts_one_row_and_a_value(tmp_path: Path) -> None:
    guided = {"prompt_ids": [1, 9], "numbers": {"guided": 1.0}}
    assert not export(tmp_path / "a", [one_turn(0, 1.0), one_turn(1, 0.0, **guided)], "pairs")
    assert not export(tmp_path / "b", [one_turn(0, 1.0), one_turn(1, 0.0, uid="h")], "pairs")
    assert not export(tmp_path / "c", [one_turn(0, 1.0), {**one_turn(1, 0.0), "acc": None}], "pairs")
    shortened = [one_turn(1, 0.0, place="earlier"), one_turn(1, 0.0, index=1)]
    assert not export(tmp_path / "d", [one_turn(0, 1.0), *shortened], "pairs")
    assert not export(tmp_path / "e", [one_turn(0, 1.0), *shortened], "pairs", where="place == 'last'")
    with_agent = [one_turn(1, 0.0, place="side", prompt_ids=[5]), one_turn(1, 0.0, index=1)]
    (pair,) = export(tmp_path / "f", [one_turn(0, 1.0), *with_agent], "pairs")
    assert pair["rejected_ids"] == [11]


def branched(first: Sequence[Turn], ends: Sequence[tuple[int, float]], *, start: int = 0) -> Rows:
    """Returns sessions that share their first turns and differ in the last."""
    return [log_row(start + number, [*first, ([token], [])], acc=acc) for number, (token, acc) in enumerate(ends)]


SHARED: list[Turn] = [([4, 5], [6])]
FIFTHS = [(7, 1.0)] * 4 + [(7, 0.0)] + [(8, 1.0)] + [(8, 0.0)] * 4
"""Q 0.8 of token 7 and 0.2 of token 8, five sessions each."""


def test_a_pair_of_turns_has_the_state_that_they_share(tmp_path: Path) -> None:
    (pair,) = export(tmp_path, branched(SHARED, FIFTHS), "pairs", by="step", gap=0.3)
    assert pair["prompt_ids"] == [*PROMPT, 4, 5, 6] and pair["turn"] == 1
    assert (pair["chosen_ids"], pair["chosen_mask"], pair["chosen_value"]) == ([7], [1], 0.8)
    assert (pair["rejected_ids"], pair["rejected_mask"], pair["rejected_value"]) == ([8], [1], 0.2)


def test_turns_of_close_values_or_few_sessions_make_no_pair(tmp_path: Path) -> None:
    halves = [(7, 1.0), (7, 0.0)] * 5 + [(8, 1.0)] * 4 + [(8, 0.0)] * 6
    assert not export(tmp_path / "a", branched(SHARED, halves), "pairs", by="step", gap=0.3), "0.5 and 0.4"
    log = branched(SHARED, FIFTHS)
    assert not export(tmp_path / "b", log, "pairs", by="step", gap=0.3, continuations=6)
    other = [(8, 0.0)] * 4
    log = [*branched(SHARED, [(7, 1.0)] * 4), *branched([([4, 5], [9])], other, start=4)]
    assert not export(tmp_path / "c", log, "pairs", by="step"), "of different observations"


def test_a_step_has_the_share_of_successes_below_it(tmp_path: Path) -> None:
    records = export(tmp_path, branched(SHARED, FIFTHS), "steps")
    assert [(r["turn"], r["response_ids"], r["outcome"], r["continuations"]) for r in records] == [
        (0, [4, 5], 0.5, 10),
        (1, [7], 0.8, 5),
        (1, [8], 0.2, 5),
    ]
    assert [r["prompt_ids"] for r in records] == [PROMPT, [*PROMPT, 4, 5, 6], [*PROMPT, 4, 5, 6]]
    assert all(r["response_mask"] == [1] * len(r["response_ids"]) for r in records)
    assert len(export(tmp_path / "6", branched(SHARED, FIFTHS), "steps", continuations=6)) == 1


def test_a_greedy_or_a_scripted_session_changes_no_value(tmp_path: Path) -> None:
    log = branched(SHARED, FIFTHS)
    others = [
        {**log[0], "session": len(log) + n, "acc": 0.0, "role": role} for n, role in enumerate(("greedy", "external"))
    ]
    assert export(tmp_path / "a", [*log, *others], "steps") == export(tmp_path / "b", log, "steps")


@given(
    sessions=st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from([[4], [5]]), st.sampled_from([[6], [7, 6]])), min_size=1, max_size=3),
            st.sampled_from([0.0, 1.0]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_the_value_of_a_step_is_the_mean_outcome_of_the_sessions_that_begin_so(
    sessions: Sequence[tuple[list[Turn], float]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = [log_row(number, turns, acc=acc) for number, (turns, acc) in enumerate(sessions)]
    records = export(tmp_path_factory.mktemp("steps"), log, "steps", continuations=1)
    found = {(*r["prompt_ids"], *r["response_ids"]): r for r in records}
    assert len(found) == len(records)
    ends = {
        (*PROMPT, *row["response_ids"][: segment["end"]])
        for row in log
        for segment in row["segments"]
        if segment["kind"] == "model"
    }
    assert set(found) == ends
    for end, record in found.items():
        below = [row["acc"] for row in log if (*PROMPT, *row["response_ids"])[: len(end)] == end]
        assert (record["outcome"], record["continuations"]) == (sum(below) / len(below), len(below))


def told(log: Rows) -> Rows:
    """Adds the texts of turns: `t` and a letter for the last token."""
    for row in log:
        texts = [f"turn {row['response_ids'][s['end'] - 1]}" for s in row["segments"] if s["kind"] == "model"]
        turns = [turn(text, observations=["seen"] if n + 1 < len(texts) else []) for n, text in enumerate(texts)]
        columns = to_columns(
            sample(turns, ground_truth="7", prompt="double", outcome=row["acc"], id=f"t/{row['session']}")
        )
        row.update(columns)
    return log


def test_a_critic_is_mixed_into_the_values_of_turns(tmp_path: Path) -> None:
    asked: list[tuple[list[str], str]] = []

    async def critic(messages: Sequence[Message], text: str) -> float:
        asked.append(([f"{message.role}: {message.content}" for message in messages], text))
        return float(text == "turn 8")

    log = told(branched(SHARED, FIFTHS))
    (pair,) = export(tmp_path, log, "pairs", by="step", critic=Critic(function=critic, weight=0.75))
    assert (pair["chosen_ids"], pair["rejected_ids"]) == ([8], [7])
    assert (pair["chosen_value"], pair["rejected_value"]) == (pytest.approx(0.8), pytest.approx(0.2))
    conversation = ["user: double", "assistant: turn 5", "user: seen"]
    assert asked == [(conversation, "turn 7"), (conversation, "turn 8")]
    with pytest.raises(ScoringError, match="finite"):
        export(tmp_path / "nan", log, "steps", critic=Critic(function=lambda messages, text: float("nan")))
    with pytest.raises(DataError, match="env_agent"):
        export(tmp_path / "texts", branched(SHARED, FIFTHS), "steps", critic=Critic(function=critic))


def test_a_repeated_export_asks_the_critic_about_the_turns_that_its_journal_lacks(tmp_path: Path) -> None:
    asked: list[str] = []

    def critic(_: Sequence[Message], text: str) -> float:
        asked.append(text)
        if len(asked) == 3:
            raise RuntimeError("the server is gone")
        return float(text.removeprefix("turn "))

    log, journal = told(branched(SHARED, FIFTHS)), tmp_path / "critic.jsonl"
    whole = export(tmp_path, log, "steps", critic=Critic(function=lambda _, text: float(text.removeprefix("turn "))))
    with pytest.raises(ScoringError, match="gone"):
        export(tmp_path, log, "steps", critic=Critic(function=critic, journal=journal, jobs=1))
    assert export(tmp_path, log, "steps", critic=Critic(function=critic, journal=journal)) == whole
    assert asked == ["turn 5", "turn 7", "turn 8", "turn 8"]
    with pytest.raises(ConfigError, match="holds another"):
        export(tmp_path, log, "steps", critic=Critic(function=max, journal=journal))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"shape": "sft", "by": "step"}, "step"),
        ({"shape": "pairs", "by": "step", "best": 2}, "best"),
        ({"shape": "sft", "gap": 0.5}, "gap"),
        ({"shape": "pairs", "continuations": 2}, "continuations"),
        ({"shape": "pairs", "critic": Critic(function=max)}, "critic"),
        ({"shape": "steps", "critic": Critic(function=max, weight=1.5)}, "1.5"),
        ({"shape": "steps", "continuations": 0}, "continuations"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        export(tmp_path, [one_turn(0, 1.0)], **options)
