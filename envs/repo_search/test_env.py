"""Episodes: the right places score 1, wrong ones less; calls and turns are limited; the repository stays as it is."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from verl_agentic import Action, ConfigError, DataError, EnvRow, Observation, Reward, StopReason, ToolCall, Transcript
from verl_agentic.swe.grading.tree_diffs import hunk_ranges

from .env import make_env
from .gold import gold
from .questions import questions_about
from .rows import make_rows

TASK = make_rows(split="test", count=1, seed=0, source="tasks")[0]
SOURCES = {
    "pkg/one.py": b'def longest_word(text):\n    """Returns the word that has most letters."""\n    return text\n',
    "pkg/two.py": b"from .one import longest_word\n\n\ndef show(text):\n    longest_word(\n        text)\n",
}


def play(*turns: str | tuple[ToolCall, ...], row: EnvRow = TASK, **config) -> tuple[list[Observation], Reward]:
    async def run() -> tuple[list[Observation], Reward]:
        env = make_env(row, **config)
        try:
            messages = await env.start()
            actions, observations = [], []
            for number, turn in enumerate(turns):
                calls = () if isinstance(turn, str) else turn
                actions.append(Action(number, "", turn if isinstance(turn, str) else "", tool_calls=calls))
                observations.append(await env.step(actions[-1]))
            stop = observations[-1].stop or StopReason.MAX_TURNS
            return observations, await env.score(
                Transcript(messages=messages, actions=tuple(actions), stop_reason=stop)
            )
        finally:
            await env.close()

    return asyncio.run(run())


def read(path: str = "quill/texts.py") -> tuple[ToolCall, ...]:
    return (ToolCall("read", {"path": path}),)


def test_the_answer_is_paid_by_files_and_lines() -> None:
    right = gold(TASK)([*TASK.prompt, *[replace(TASK.prompt[0], role="assistant")]]).content
    reward = play(right)[1]
    assert (reward.outcome, reward.info) == (1.0, {"file_f": 1.0, "line_f": 1.0})
    files_only = "\n".join(json.loads(TASK.ground_truth))
    assert play(files_only)[1].outcome == 0.5
    assert 0 < play(f"{right}\nquill/__init__.py:1-1")[1].outcome < 1
    assert play("")[1].outcome == play("I do not know.")[1].outcome == 0.0


def test_of_nine_calls_eight_run_and_one_is_rejected_with_a_message() -> None:
    calls = tuple(ToolCall("glob", {"pattern": f"*{number}*"}) for number in range(9))
    messages = play(calls)[0][0].messages
    assert [message.error_kind for message in messages] == [None] * 8 + ["too_many"]
    assert messages[8].content == "Error: at most 8 calls may stand in one turn; this one was not carried out"
    assert "No file matches '*7*'" in messages[7].content


def test_the_fourth_turn_is_the_last_and_the_policy_is_told_before() -> None:
    observations, reward = play(*[read()] * 4)
    assert [observation.stop for observation in observations] == [None, None, None, StopReason.MAX_TURNS]
    notices = ["last one" in observation.messages[-1].content for observation in observations]
    assert notices == [False, False, True, False] and reward.outcome == 0.0
    assert play(read(), read(), read(), "quill/texts.py")[0][-1].stop is StopReason.ANSWERED


def test_a_cut_answer_scores_0() -> None:
    row = replace(TASK, ground_truth='{"a.py": []}')
    assert play("a.py", row=row)[1].outcome == 1.0
    env = make_env(row)
    cut = Transcript(messages=(), actions=(Action(0, "", "a.py"),), stop_reason=StopReason.MAX_TOKENS)
    assert asyncio.run(env.score(cut)).outcome == 0.0


def test_a_pattern_without_end_is_stopped_and_the_episode_goes_on() -> None:
    pattern = "((.{1,300}){1,300}){1,300}"  # takes minutes, or all memory
    observations, _ = play((ToolCall("grep", {"pattern": pattern}),), read(), search_timeout_s=2.0)
    assert observations[0].messages[0].is_error
    assert "quill/texts.py has" in observations[1].messages[0].content


def test_questions_ask_for_definitions_and_their_calls() -> None:
    docstring, calls = sorted(questions_about(SOURCES), key=lambda question: question.kind, reverse=True)
    assert docstring.query.endswith("Returns the word that has most letters.")
    assert docstring.places == {"pkg/one.py": [[1, 3]]}
    assert "`longest_word`" in calls.query
    assert calls.places == {"pkg/one.py": [[1, 3]], "pkg/two.py": [[5, 6]]}


def test_a_name_that_is_defined_twice_gives_no_question_about_its_calls() -> None:
    twice = {**SOURCES, "pkg/three.py": b"def longest_word():\n    pass\n\n"}
    assert [question.kind for question in questions_about(twice)] == ["docstring"]


def test_the_hunks_of_a_patch_are_lines_of_the_old_files() -> None:
    patch = "--- a/x.py\n+++ b/x.py\n@@ -3,4 +3,3 @@\n a\n---- b\n c\n d\n@@ -9 +8 @@\n-e\n+f\n"
    patch += "--- /dev/null\n+++ b/y.py\n@@ -0,0 +1 @@\n+g\n"
    assert hunk_ranges(patch) == {"x.py": [[3, 6], [9, 9]]}


@pytest.mark.slow
def test_rows_of_packages_differ_between_splits_and_of_other_sources_are_refused() -> None:
    train, test = (make_rows(split=split, count=60, seed=1) for split in ("train", "test"))
    assert not {row.extra["task_id"] for row in train} & {row.extra["task_id"] for row in test}
    assert {row.extra["task_id"].split("/")[1] for row in train} == {"calls", "docstring"}
    other = replace(train[0], extra={**train[0].extra, "tree": "0" * 64})
    with pytest.raises(DataError, match="version"):
        play("x", row=other)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "options", [{"split": "dev"}, {"source": "web"}, {"packages": ["no-such-package"]}, {"count": 10**6}]
)
def test_wrong_options_of_rows_are_refused(options: dict) -> None:
    with pytest.raises(ConfigError):
        make_rows(**{"split": "train", "count": 1, "seed": 0, **options})


def test_wrong_limits_are_refused() -> None:
    with pytest.raises(ConfigError, match="beta"):
        make_env(TASK, max_calls=0)
