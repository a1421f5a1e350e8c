"""Episodes on the sample repository, in every scaffold: the fix is paid, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from verl_agentic import Action, ConfigError, EnvRow, Message, Observation, Reward, StopReason, ToolCall, Transcript
from verl_agentic.swe.grading.repo_task import RepoTask, read_tree
from verl_agentic.swe.grading.runners.registry import toolchain_folder
from verl_agentic.swe.grading.tree_diffs import apply_diff
from verl_agentic.swe.sample_store import sample_store

from .env import SweEnv, make_env
from .gold import gold
from .rows import make_rows
from .scaffold import load_scaffold

SCAFFOLDS = ("bash", "editor", "r2e")
ROWS = make_rows(split="train", count=8, seed=0)
TESTS = make_rows(split="test", count=16, seed=0)
ROW = next(row for row in TESTS if row.extra["task_id"] == "quill-02")
TASK = RepoTask.from_json(ROW.extra["task"])


async def play(
    calls: Sequence[ToolCall], *, row: EnvRow = ROW, scaffold: str = "editor", stop: StopReason | None = None, **config
) -> tuple[list[Observation], Reward, SweEnv]:
    """Returns the observations and the reward of an episode with one call a turn."""
    env = make_env(row, scaffold=scaffold, **config)
    try:
        messages = await env.start()
        observations, actions = [], []
        for turn, call in enumerate(calls):
            actions.append(Action(turn, "", "", tool_calls=(replace(call, call_id=str(turn)),)))
            observations.append(await env.step(actions[-1]))
        reason = stop or observations[-1].stop or StopReason.MAX_TURNS
        reward = await env.score(Transcript(messages=messages, actions=tuple(actions), stop_reason=reason))
        return observations, reward, env
    finally:
        await env.close()


def played(calls: Sequence[ToolCall], **options) -> tuple[list[Observation], Reward, SweEnv]:
    return asyncio.run(play(calls, **options))


def bash(command: str) -> ToolCall:
    return ToolCall("bash", {"command": command})


def edit(command: str, path: str, **arguments) -> ToolCall:
    return ToolCall("str_replace_editor", {"command": command, "path": path, **arguments})


SUBMIT = [ToolCall("submit", {}), ToolCall("submit", {})]
FIX = edit("str_replace", "quill/texts.py", old_str="len(word) < width", new_str="len(word) <= width")


@pytest.mark.sample(1, slow=1)
@pytest.mark.parametrize("scaffold", SCAFFOLDS)
def test_the_solution_scores_in_every_scaffold(scaffold: str) -> None:
    async def run() -> tuple[Observation, Reward]:
        env = make_env(ROW, scaffold=scaffold)
        try:
            messages = list(await env.start())
            policy = gold(ROW)
            actions: list[Action] = []
            observation = Observation()
            while observation.stop is None:
                turn = policy(messages)
                actions.append(Action(len(actions), "", "", tool_calls=turn.tool_calls))
                observation = await env.step(actions[-1])
                messages += [turn, *observation.messages]
            transcript = Transcript(messages=tuple(messages), actions=tuple(actions), stop_reason=observation.stop)
            return observation, await env.score(transcript)
        finally:
            await env.close()

    observation, reward = asyncio.run(run())
    assert observation.stop is StopReason.ENV_DONE
    assert reward.outcome == 1.0, reward.info
    assert reward.info["f2p_passed"] == reward.info["f2p_total"] == 2.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runner", "test"), [("node", "node --test"), ("go", "go test ./..."), ("cargo", "cargo test")]
)
def test_a_solution_in_another_language_scores_and_its_tests_run_in_the_shell(runner: str, test: str) -> None:
    if not toolchain_folder(runner):
        pytest.skip(f"this machine has no toolchain for {runner}")
    (row,) = make_rows(split="train", count=1, seed=0, tasks=f"sample:{runner}")
    patch = RepoTask.from_json(row.extra["task"]).patch
    calls = [bash(f"git apply - <<'END'\n{patch}END\n"), bash(test), bash("git status -s"), *SUBMIT]
    observations, reward, _ = played(calls, row=row)
    applied, tested, status = (observation.messages[0] for observation in observations[:3])
    assert not applied.is_error and not tested.is_error, tested.content
    assert len(status.content.splitlines()) == 1, "the tests leave no files in the repository"
    assert reward.outcome == 1.0, reward.details
    with pytest.raises(ConfigError, match="sample"):
        make_rows(split="train", count=1, seed=0, tasks="sample:none")


@pytest.mark.slow
def test_an_edit_and_a_submission_with_a_review_score() -> None:
    observations, reward, _ = played([FIX, *SUBMIT])
    assert "lines around the change" in observations[0].messages[0].content
    assert (
        observations[1].stop is None
        and "+        elif len(line) + 1 + len(word) <= width:" in observations[1].messages[0].content
    )
    assert observations[2].stop is StopReason.ENV_DONE
    assert reward.outcome == 1.0
    details = reward.details
    assert details["accepted"] == ["quill/texts.py"] and set(details["f2p"].values()) == {"passed"}
    assert details["p2p"] == {} and details["p2p_passed"] == reward.info["p2p_total"]
    base = read_tree(sample_store().base(TASK))
    assert apply_diff(base, details["patch"]) == apply_diff(base, TASK.patch)


@pytest.mark.slow
def test_a_fix_that_is_not_submitted_counts_only_on_request() -> None:
    _, reward, _ = played([FIX])
    details = reward.details
    assert reward.outcome == 0.0 and not details["is_graded"] and "<= width" in details["patch"]
    assert played([FIX], grade_unfinished=True)[1].outcome == 1.0


def test_no_change_and_a_change_of_tests_score_0() -> None:
    assert played(SUBMIT)[1].outcome == 0.0
    tests = bash("for f in tests/test_*.py; do echo 'def test_ok(): pass' > $f; done; echo 'x = 1' > conftest.py")
    _, reward, _ = played([tests, *SUBMIT])
    assert reward.outcome == 0.0 and reward.info["refused_files"] == 5.0
    assert reward.details["patch"] == "" and len(reward.details["refused"]) == 5
    assert all(outcome == "failed" for outcome in reward.details["f2p"].values()) and reward.details["why"]


@pytest.mark.slow
def test_the_editor_says_how_to_correct_a_wrong_edit() -> None:
    wrong = [
        edit("str_replace", "quill/texts.py", old_str="line", new_str="x"),
        edit("str_replace", "no/such.py", old_str="a", new_str="b"),
        edit("create", "quill/texts.py", file_text=""),
        edit("insert", "quill/texts.py", insert_line=9_999, new_str="x"),
        edit("view", "/etc/passwd"),
        edit("view", "quill/texts.py", view_range=[5, 2]),
        edit("delete", "quill/texts.py"),
        edit("undo_edit", "quill/texts.py"),
    ]
    observations, reward, _ = played([*wrong, *SUBMIT])
    texts = [observation.messages[0] for observation in observations[: len(wrong)]]
    assert all(message.is_error for message in texts)
    assert "exactly once" in texts[0].content and "lines [" in texts[0].content
    assert reward.outcome == 0.0


def test_an_edit_can_be_undone_and_a_new_file_too() -> None:
    new = edit("create", "quill/new.py", file_text="x = 1\n")
    calls = [FIX, edit("undo_edit", "quill/texts.py"), new, edit("undo_edit", "quill/new.py"), bash("git status -s")]
    observations, _, _ = played(calls)
    assert observations[-1].messages[0].content == "The command ran without output."


def test_a_shell_keeps_its_folder_and_a_command_does_not() -> None:
    observations, _, _ = played([bash("cd quill; x=7"), bash("pwd; echo $x")])
    assert observations[1].messages[0].content.split() == [observations[1].messages[0].content.split()[0], "7"]
    assert observations[1].messages[0].content.split()[0].endswith("/quill")
    observations, _, _ = played([bash("cd quill; x=7"), bash("pwd; echo $x")], scaffold="bash")
    assert (
        "/quill" not in observations[1].messages[0].content
        and "7" not in observations[1].messages[0].content.split("\n")[3:]
    )


@pytest.mark.slow
def test_a_long_output_keeps_head_and_tail_and_a_slow_command_is_stopped() -> None:
    observations, _, _ = played(
        [bash("echo first; seq 100000; echo last"), bash("echo begun; sleep 30")], scaffold="bash", command_timeout_s=2
    )
    text = observations[0].messages[0].content
    assert "first" in text and "last" in text and len(text) < 11_000
    assert "longer than 2 s" in observations[1].messages[0].content and "begun" in observations[1].messages[0].content


@pytest.mark.slow
def test_the_agent_sees_its_tests_and_no_history() -> None:
    observations, _, _ = played([bash("python -m pytest tests 2>&1 | tail -2"), bash("git log --oneline | wc -l")])
    assert "66 passed" in observations[0].messages[0].content
    assert observations[1].messages[0].content.strip() == "1"


def test_more_calls_than_allowed_are_answered_and_not_run() -> None:
    async def run() -> Observation:
        env = make_env(ROW, scaffold="r2e")
        try:
            await env.start()
            calls = tuple(ToolCall("execute_bash", {"cmd": f"touch {name}"}, call_id=name) for name in "ab")
            await env.step(Action(0, "", "", tool_calls=calls))
            listing = ToolCall("execute_bash", {"cmd": "ls"}, call_id="c")
            return await env.step(Action(1, "", "", tool_calls=(listing,)))
        finally:
            await env.close()

    text = asyncio.run(run()).messages[0].content
    assert "\na\n" in text and "\nb\n" not in text
    assert text.endswith("Steps Remaining: 48")


def test_refused_commands_and_searches() -> None:
    cd = ToolCall("execute_bash", {"cmd": "cd quill"})
    search = ToolCall("search", {"search_term": "def wrap("})
    nothing = ToolCall("search", {"search_term": "no such words"})
    observations, _, _ = played([cd, search, nothing], scaffold="r2e")
    assert "not allowed" in observations[0].messages[0].content
    assert "quill/texts.py:" in observations[1].messages[0].content
    assert "No line" in observations[2].messages[0].content


def test_turns_without_a_call_and_the_last_step_end_the_episode() -> None:
    async def run() -> list[StopReason | None]:
        env = make_env(ROW, scaffold="bash", max_steps=4)
        try:
            await env.start()
            look = (bash("ls"),)
            turns = [Action(0, "", "hm"), Action(1, "", "", tool_calls=look), Action(2, "", "a"), Action(3, "", "b")]
            return [(await env.step(turn)).stop for turn in turns]
        finally:
            await env.close()

    assert asyncio.run(run()) == [None, None, None, StopReason.MAX_TURNS]


@pytest.mark.slow
def test_guidance_names_files_and_tests() -> None:
    _, _, env = played(SUBMIT)
    text = asyncio.run(env.guidance(Transcript(messages=(), actions=(), stop_reason=StopReason.ENV_DONE)))
    assert "quill/texts.py" in text and "test_wrap_keeps_a_line_of_exactly_the_width" in text


def test_the_splits_share_no_task_and_rows_hold_the_expected_tests() -> None:
    assert not {row.extra["task_id"] for row in ROWS} & {row.extra["task_id"] for row in TESTS}
    assert all(RepoTask.from_json(row.extra["task"]).fail_to_pass for row in (*ROWS, *TESTS))


@pytest.mark.parametrize("name", SCAFFOLDS)
def test_a_prompt_names_the_repository_and_the_issue(name: str) -> None:
    form = load_scaffold(name)
    text = form.task.format(root="/repo", issue="It breaks.")
    assert "/repo" in text and "It breaks." in text
    assert Message("system", form.system).content
