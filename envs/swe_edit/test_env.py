"""Episodes of one turn: the fix is paid by tests or similarity; localisation; the choice among several patches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from verl_agentic import Action, ConfigError, EnvRow, Message, Reward, StopReason, ToolCall, Transcript
from verl_agentic.graders.code.patches import FormatError
from verl_agentic.graders.components.swe_rl import swe_rl
from verl_agentic.log.reader import write_run
from verl_agentic.rewards.sample import Sample
from verl_agentic.rewards.sample_row import to_columns
from verl_agentic.swe.grading.repo_task import RepoTask, read_tree
from verl_agentic.swe.task_split import store_at

from .edits import changed_by_answer, normal_form, written_edits
from .env import make_env
from .gold import gold
from .localise import elements_of, excerpt, localise, widened
from .rows import make_rows

ROWS = make_rows(split="test", count=16, seed=0)
ROW = next(row for row in ROWS if row.extra["task_id"] == "quill-02")
TASK = RepoTask.from_json(ROW.extra["task"])
BASE = read_tree(store_at("").base(TASK))
FIX = gold(ROW)([]).content
FIXED = changed_by_answer(BASE, FIX)
WRONG = written_edits(BASE, {path: text.replace(b"def slug(", b"def slugs(") for path, text in FIXED.items()})
"""It fixes the bug and breaks visible tests."""
HARMLESS = FIX.replace("<= width", "<= width - 1")  # the bug, written differently
SOURCE = '''"""A module."""


class Cart:
    size = 0

    def add_item(self, item):
        """Adds."""
        return item


@cached
def total_price(items):
    return sum(items)
'''


def score(answer: str, *, row: EnvRow = ROW, stop: StopReason = StopReason.ANSWERED, **config) -> Reward:
    async def run() -> Reward:
        env = make_env(row, **config)
        try:
            return await env.score(Transcript(messages=(), actions=(Action(0, "", answer),), stop_reason=stop))
        finally:
            await env.close()

    return asyncio.run(run())


def chosen(answers: Sequence[str]) -> int | None:
    return asyncio.run(make_env(ROW).select(answers))


def test_the_reference_edit_scores_1_by_tests_and_by_similarity() -> None:
    reward = score(FIX)
    assert reward.outcome == 1.0, reward.info
    assert reward.info["format_ok"] == 1.0 and reward.info["f2p_passed"] == reward.info["f2p_total"] == 2.0
    assert "+        elif len(line) + 1 + len(word) <= width:" in reward.details["patch"]
    assert score(FIX, reward="similarity").outcome == 1.0


def test_a_wrong_edit_scores_0_by_tests_and_a_part_by_similarity() -> None:
    assert score(WRONG).outcome == 0.0
    assert 0.0 < score(WRONG, reward="similarity").outcome < 1.0


@pytest.mark.parametrize(
    "answer",
    ["", "no block", FIX.replace("<= width", "< width"), FIX.replace("elif", "elsif"), FIX.removesuffix("```")],
    ids=["empty", "words", "same", "not found", "open fence"],
)
def test_an_answer_that_cannot_be_applied_scores_0(answer: str) -> None:
    for reward in ("tests", "similarity"):
        assert score(answer, reward=reward).info == {"format_ok": 0.0}


@pytest.mark.slow
def test_a_cut_answer_and_an_edit_of_tests_score_0() -> None:
    assert score(FIX, stop=StopReason.MAX_TOKENS).outcome == 0.0
    tests = "```\n### tests/conftest.py\n<<<<<<< SEARCH\n\n=======\nx = 1\n>>>>>>> REPLACE\n```"
    reward = score(tests)
    assert (reward.outcome, reward.info["refused_files"]) == (0.0, 1.0)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "path", ["quill", "quill/texts.py/more.py", "../x.py", "/etc/x", "a\0b.py", "\ud800.py", "x" * 5_000]
)
def test_a_path_that_no_tree_can_hold_scores_0(path: str) -> None:
    new = f"```\n### {path}\n<<<<<<< SEARCH\n\n=======\nx = 1\n>>>>>>> REPLACE\n```"
    assert score(new).outcome == 0.0
    assert chosen([new, new]) in (None, 0)


def test_the_first_turn_is_the_last() -> None:
    async def run() -> tuple[StopReason | None, StopReason | None]:
        env = make_env(ROW)
        await env.start()
        call = Action(0, "", "", tool_calls=(ToolCall("bash", {}),))
        return (await env.step(call)).stop, (await env.step(Action(0, "", FIX))).stop

    assert asyncio.run(run()) == (StopReason.MAX_TURNS, StopReason.ANSWERED)


def test_the_rows_serve_the_component_swe_rl() -> None:
    sample = Sample(
        id="s",
        prompt=ROW.prompt,
        turns=(),
        final_answer=FIX,
        stop_reason=StopReason.ANSWERED,
        ground_truth=ROW.ground_truth,
    )
    assert swe_rl.function(sample, tags=False) == 1.0
    assert swe_rl.function(replace(sample, final_answer="hm"), tags=False) == -1.0


def test_normal_forms_leave_out_comments_docstrings_and_layout() -> None:
    base = {"a.py": b'def f(x):\n    """Old."""\n    return x\n', "b.txt": b"one\n"}
    same = {"a.py": b"def f(x):\n    # a comment\n\n    return (x)\n", "b.txt": b"\none  \n"}
    assert normal_form(base, same) == ()
    assert normal_form(base, {"a.py": b"def f(x):\n    return x + 1\n"}) == normal_form(
        base, {"a.py": b"def f(x):  # more\n    return (x+1)\n"}
    )
    assert normal_form(base, {"a.py": None}) != ()


@pytest.mark.slow
def test_the_majority_is_chosen_among_patches_that_keep_the_visible_tests() -> None:
    commented = FIX.replace("<= width:", "<= width:  # fits")
    assert chosen(["no edit", WRONG, WRONG, FIX, HARMLESS, commented]) == 3
    assert chosen([HARMLESS, FIX]) == 0, "of several with equal votes, the first"
    assert chosen([WRONG, WRONG]) == 0, "if all break tests, those that break the fewest"


@pytest.mark.slow
def test_answers_without_effect_are_never_chosen() -> None:
    comment = FIX.replace("<= width:", "< width:  # no change")
    assert chosen(["", comment]) is None
    assert chosen([comment, FIX]) == 1


def test_written_edits_make_the_change_also_where_lines_repeat() -> None:
    base = {"a.py": b"x = 1\nx = 1\ny = 2\nx = 1\n", "empty.py": b""}
    for fixed in (b"x = 1\nx = 1\ny = 2\nx = 2\n", b"x = 1\n", b"", b"x = 1\nx = 1\nz\ny = 2\nx = 1\nend"):
        change = {"a.py": fixed, "new.py": b"n = 1\n"}
        assert changed_by_answer(base, written_edits(base, change)) == change
    with pytest.raises(FormatError):
        changed_by_answer({"a.py": b"\xff"}, written_edits({"a.py": b"x"}, {"a.py": b"y"}))


def test_localisation_goes_from_files_to_functions_to_lines() -> None:
    files = {"shop/cart.py": SOURCE, "shop/mail.py": "def send(mail):\n    pass\n", "tests/test_cart.py": SOURCE}
    assert localise(files, "The total price of items is wrong", max_elements=1, around=1) == {
        "shop/cart.py": [(11, 14)]
    }
    assert localise(files, "add_item loses the item", max_files=1, max_elements=1, around=0) == {
        "shop/cart.py": [(7, 9)]
    }
    assert localise(files, "Nothing known") == {}


def test_an_excerpt_has_the_lines_and_the_heads_of_all_other_definitions() -> None:
    text = excerpt(SOURCE, [(12, 14)])
    heads = "...\nclass Cart:\n...\n    def add_item(self, item):\n...\n"
    assert text == heads + "@cached\ndef total_price(items):\n    return sum(items)"
    assert [(element.first, element.last) for element in elements_of("a.py", SOURCE)] == [(4, 6), (7, 9), (12, 14)]
    assert widened([(12, 14), (2, 3), (99, 120)], SOURCE, 4) == [(1, 14)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["words", "files", "hunks"])
def test_prompts_show_the_lines_to_change(kind: str) -> None:
    for row in make_rows(split="test", count=16, seed=0, localisation=kind):
        oracle = json.loads(row.ground_truth)["oracle_new_content"]
        assert all(f"### {path}\n" in row.prompt[1].content for path in oracle)
    rows = {row.extra["task_id"]: row for row in make_rows(split="test", count=16, seed=0, localisation=kind)}
    assert "len(line) + 1 + len(word) < width" in rows["quill-02"].prompt[1].content


def test_the_answers_of_a_search_agent_can_choose_the_lines(tmp_path: Path) -> None:
    answer = "quill/texts.py:20-22"
    sample = Sample(
        id="s",
        prompt=(Message("user", "q"),),
        turns=(),
        final_answer=answer,
        stop_reason=StopReason.ANSWERED,
        extra={"task_id": "quill-02"},
    )
    row = {"uid": "g", "split": "val", "place": "last", "role": "policy", **to_columns(sample)}
    write_run(tmp_path, trajectories=[row])
    (row,) = make_rows(split="test", count=1, seed=0, localisation=str(tmp_path), around=0)
    lines = BASE["quill/texts.py"].decode().split("\n")
    assert row.extra["task_id"] == "quill-02"
    assert f"...\n{lines[19]}\n{lines[20]}\n{lines[21]}\n..." in row.prompt[1].content
    with pytest.raises(ConfigError, match="found only 1 tasks"):
        make_rows(split="test", count=2, seed=0, localisation=str(tmp_path))


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="reward"):
        make_env(ROW, reward="both")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="localisation"):
        make_rows(split="train", count=1, seed=0, localisation="no/such/folder")
