"""A sound environment passes its validation; each flaw is found by the check that is there for it, and by no other."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.env_card import EnvCard
from verl_agentic.base.errors import ConfigError, EnvUnavailableError
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Action, Message, Observation, Reward, ToolCall, ToolResult
from verl_agentic.episode.env_package import EnvPackage
from verl_agentic.evaluate.env_validation import leaks, validate_env
from verl_agentic.evaluate.env_validation.answer_checks import exceeds_chance
from verl_agentic.evaluate.env_validation.validate_env import Validation, rows_to_validate, validate
from verl_agentic.log.files.rows import write_rows

_SCHEMA = {
    "type": "function",
    "function": {
        "name": "open_box",
        "description": "Opens a box.",
        "parameters": {"type": "object", "properties": {"box": {"type": "string"}}, "required": ["box"]},
    },
}


class OpenBox:
    name = "open_box"
    schema: Mapping[str, Any] = _SCHEMA

    def __init__(self, row: EnvRow) -> None:
        self._row = row

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        if arguments != {"box": self._row.extra["box"]}:
            return ToolResult("Error: no such box", is_error=True)
        return ToolResult(f"inside: {self._row.ground_truth}")


class BoxEnv(ToolEnv):
    """Opens the right box and says what is in it. Sound; the flawed ones overwrite one thing."""

    def __init__(self, row: EnvRow) -> None:
        super().__init__(row, [OpenBox(row)])

    async def score(self, transcript: Transcript) -> Reward:
        return Reward(float(transcript.final_answer == self.row.ground_truth))


def make_row(number: int, split: str = "test") -> EnvRow:
    return EnvRow(
        prompt=(Message("user", f"What is in box b{number}?"),),
        ground_truth=f"treasure{number}",
        data_source="boxes",
        extra={"task_id": f"{split}{number}", "box": f"b{number}"},
    )


def make_rows(*, split: str, count: int, seed: int) -> list[EnvRow]:
    first = 1000 * seed + (500 if split == "test" else 0)
    return [make_row(first + i, split) for i in range(count)]


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    def next_message(messages: Sequence[Message]) -> Message:
        told = [message.content for message in messages if message.role == "tool"]
        if told:
            return Message("assistant", told[0].removeprefix("inside: "))
        return Message("assistant", "", tool_calls=(ToolCall("open_box", {"box": row.extra["box"]}),))

    return next_message


@pytest.fixture
def package(tmp_path: Path) -> EnvPackage:
    write_rows([make_row(i) for i in range(4)], tmp_path / "example.jsonl")
    return EnvPackage(
        env_id="boxes", folder=tmp_path, make_env=BoxEnv, make_rows=make_rows, gold=gold, demonstrator=None
    )


@pytest.fixture
def check(
    package: EnvPackage, tiny_chat: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Validation]:
    tokenizer, codec = tiny_chat
    monkeypatch.setattr(leaks, "_SETTLE_S", 0.3)

    def run(*, rows: Sequence[EnvRow] | None = None, **changes: Any) -> Validation:
        rows = [make_row(0)] if rows is None else rows
        return asyncio.run(validate(replace(package, **changes), rows, codec=codec, tokenizer=tokenizer))

    return run


def wrong(found: Validation) -> dict[str, str]:
    """Returns check -> first problem, of the checks that failed."""
    return {check.check: check.evidence["problems"][0] for check in found.checks if check.status == "fail"}


def test_a_sound_environment_passes_every_check(check: Callable[..., Validation]) -> None:
    found = check(rows=[make_row(i) for i in range(3)])
    assert found.ok and not wrong(found)
    assert [c.check for c in found.checks] == [
        "rows",
        "reset is deterministic",
        "gold scores 1",
        "null scores 0",
        "echo scores 0",
        "malformed scores 0",
        "scripts are not paid",
        "replays agree",
        "guesses are not paid",
        "spelling is free",
        "answer is hidden",
        "tokens and masks",
        "nothing is left",
        "rows are unchanged",
        "event loop is free",
    ]
    assert {"start_s_median", "start_s_p95", "step_s_median", "step_s_p95", "close_s_median"} <= set(found.figures)
    as_json = json.loads(json.dumps(found.to_dict()))
    assert (as_json["env"], as_json["ok"], as_json["rows"], len(as_json["checks"])) == ("boxes", True, 3, 15)


def test_every_kind_of_malformed_turn_is_played(check: Callable[..., Validation]) -> None:
    played: list[Action] = []

    class Watched(BoxEnv):
        async def step(self, action: Action) -> Observation:
            played.append(action)
            return await super().step(action)

    assert check(make_env=Watched).ok
    errors = {call.error for action in played for call in action.tool_calls}
    names = {call.name for action in played for call in action.tool_calls}
    arguments = [call.arguments for action in played for call in action.tool_calls if call.error is None]
    assert "no_such_tool" in names and "" in names
    assert any(errors - {None}), "calls that cannot be read"
    assert {} in arguments and {"no_such_argument": 1} in arguments
    assert {"box": {"not": ["a", "string"]}} in arguments
    assert any(len(str(given.get("box"))) >= 49_999 for given in arguments)
    assert any("<|im_end|>" in str(given.get("box")) for given in arguments)
    assert any("\x00" in str(given.get("box")) for given in arguments)
    assert any(len(action.tool_calls) == 2 for action in played)
    assert any("\x00" in action.content for action in played)
    assert any(len(action.content) > 40_000 for action in played)


class ScoresAll(BoxEnv):
    async def score(self, transcript: Transcript) -> Reward:
        return Reward(1.0)


class ScoresNone(BoxEnv):
    async def score(self, transcript: Transcript) -> Reward:
        return Reward(0.5)


class ScoresEcho(BoxEnv):
    async def score(self, transcript: Transcript) -> Reward:
        is_echo = transcript.final_answer == self.row.prompt[0].content
        return Reward(1.0) if is_echo else await super().score(transcript)


class RaisesOnWrongArguments(BoxEnv):
    async def step(self, action: Action) -> Observation:
        for call in action.tool_calls:
            if call.name == "open_box" and call.error is None:
                call.arguments["box"].encode()
        return await super().step(action)


class RaisesInScore(BoxEnv):
    async def score(self, transcript: Transcript) -> Reward:
        if not transcript.final_answer:
            raise RuntimeError("nothing to score")
        return await super().score(transcript)


class RewardsUnknownTools(BoxEnv):
    async def score(self, transcript: Transcript) -> Reward:
        if any(call.name == "no_such_tool" for action in transcript.actions for call in action.tool_calls):
            return Reward(1.0)
        return await super().score(transcript)


class TellsTheAnswer(BoxEnv):
    async def step(self, action: Action) -> Observation:
        observation = await super().step(action)
        return replace(
            observation,
            messages=tuple(
                replace(m, content=f"Error: expected {self.row.ground_truth}") if m.content.startswith("Error") else m
                for m in observation.messages
            ),
        )


class AsksWithTheAnswer(BoxEnv):
    async def start(self) -> tuple[Message, ...]:
        return (Message("user", f"Is {str(self.row.ground_truth).upper()} in the box?"),)


_counter = itertools.count()


class StartsDifferently(BoxEnv):
    async def start(self) -> tuple[Message, ...]:
        return (Message("user", f"Episode {next(_counter)}"),)


class AnswersDifferently(BoxEnv):
    async def step(self, action: Action) -> Observation:
        observation = await super().step(action)
        return replace(observation, messages=(*observation.messages, Message("user", f"Step {next(_counter)}")))


class FailsToStart(BoxEnv):
    async def start(self) -> tuple[Message, ...]:
        raise OSError("no disk")


class HasNoServer(BoxEnv):
    async def start(self) -> tuple[Message, ...]:
        raise EnvUnavailableError("no server at http://127.0.0.1:1; start it")


class ChangesItsRow(BoxEnv):
    async def start(self) -> tuple[Message, ...]:
        self.row.extra["seen"] = True  # type: ignore[index]
        return self.row.prompt


@pytest.mark.sample(1, slow=4)
@pytest.mark.parametrize(
    ("make_env", "problems"),
    [
        (ScoresNone, {"gold scores 1": "row 0 (test0): scored 0.5, stopped by answered",
                      "null scores 0": "null: scored 0.5", "echo scores 0": "", "malformed scores 0": "",
                      "scripts are not paid": "always 'sorry': mean outcome 0.5"}),
        (ScoresAll, {"null scores 0": "row 0 (test0), null: scored 1",
                     **dict.fromkeys(("echo scores 0", "malformed scores 0", "scripts are not paid"), ""),
                     "guesses are not paid": "extended: 1 of 1 rows"}),
        (ScoresEcho, {"echo scores 0": "row 0 (test0), echo: scored 1"}),
        (RaisesOnWrongArguments, {"malformed scores 0": "void (infra_error), got EnvError"}),
        (RaisesInScore, {"null scores 0": "void (infra_error), got ScoringError", "malformed scores 0": ""}),
        (RewardsUnknownTools, {"malformed scores 0": "row 0 (test0), unknown tool: scored 1"}),
        (TellsTheAnswer, {"answer is hidden": "row 0 (test0): the ground truth is in the observations of '"}),
        (AsksWithTheAnswer, {"answer is hidden": "row 0 (test0): the ground truth is in the prompt"}),
        (StartsDifferently, {"reset is deterministic": "two starts gave different prompts", "replays agree": ""}),
        (AnswersDifferently, {"replays agree": "repeated turns got different observations"}),
        (ChangesItsRow, {"rows are unchanged": "row 0 (test0): an episode changed its row"}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)  # fmt: skip
def test_a_flaw_is_found_by_the_checks_that_are_there_for_it(
    check: Callable[..., Validation], make_env: type[BoxEnv], problems: dict[str, str]
) -> None:
    found = wrong(check(make_env=make_env))
    assert set(found) == set(problems)
    for name, text in problems.items():
        assert text in found[name]


_plays: Counter[str] = Counter()


class PaysOnce(BoxEnv):
    """Pays for the first play of a row in this process."""

    async def score(self, transcript: Transcript) -> Reward:
        reward = await super().score(transcript)
        if reward.outcome:
            _plays[f"{self.row.ground_truth}"] += 1
        return reward if _plays[f"{self.row.ground_truth}"] <= 1 else Reward(0.0)


class PaysOthers(BoxEnv):
    """Pays one row less after another row was played."""

    async def score(self, transcript: Transcript) -> Reward:
        reward = await super().score(transcript)
        _plays["last"], last = self.row.extra["box"][1:], _plays["last"]
        return Reward(reward.outcome, parts={"hurry": 0.1 * (str(last) < self.row.extra["box"][1:])})


class ShapingDrifts(BoxEnv):
    """Pays a part that grows, and only where the task is not done."""

    async def score(self, transcript: Transcript) -> Reward:
        reward = await super().score(transcript)
        return reward if reward.outcome else Reward(0.0, parts={"effort": 1e-6 * next(_counter)})


class TurnsDrift(BoxEnv):
    async def step(self, action: Action) -> Observation:
        return replace(await super().step(action), reward=1e-3 * next(_counter))


class SharesItsBox(BoxEnv):
    """Lets siblings that are played at once see each other."""

    under_way: ClassVar[Counter[str]] = Counter()

    async def start(self) -> tuple[Message, ...]:
        self.under_way[self.row.extra["box"]] += 1
        return await super().start()

    async def score(self, transcript: Transcript) -> Reward:
        beside = self.under_way[self.row.extra["box"]] - 1
        return Reward((await super().score(transcript)).outcome, parts={"company": -0.1 * beside})

    async def close(self) -> None:
        self.under_way[self.row.extra["box"]] -= 1


class FailsOnce(BoxEnv):
    async def score(self, transcript: Transcript) -> Reward:
        _plays["fails"] += 1
        if _plays["fails"] % 7 == 6:
            raise RuntimeError("the grader was busy")
        return await super().score(transcript)


class ForgetsItsSeed(BoxEnv):
    async def score(self, transcript: Transcript) -> Reward:
        reward = await super().score(transcript)
        return Reward(reward.outcome, parts={"luck": 0.1 * random.random()})


@pytest.mark.slow
@pytest.mark.sample(1, slow=2)
@pytest.mark.parametrize(
    ("make_env", "problem"),
    [
        (PaysOnce, "the solution: outcome differs between runs, got 1, 0, 0, 0, 0"),
        (PaysOthers, "part 'hurry' differs between runs"),
        (ShapingDrifts, "null: part 'effort' differs between runs"),
        (TurnsDrift, "reward of turn 0 differs between runs"),
        (SharesItsBox, "part 'company' differs between runs"),
        (FailsOnce, "runs failed (infra_error), got ScoringError"),
        (ForgetsItsSeed, "part 'luck' differs between runs"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_an_environment_that_rewards_the_same_turns_differently_is_found(
    check: Callable[..., Validation], make_env: type[BoxEnv], problem: str
) -> None:
    _plays.clear()
    found = check(make_env=make_env, rows=[make_row(i) for i in range(3)])
    (replays,) = [c for c in found.checks if c.check == "replays agree"]
    assert any(problem in text for text in replays.evidence["problems"]), replays.evidence


@pytest.mark.sample(1)
@pytest.mark.parametrize("outcomes", list(itertools.product([0.0, 1.0], repeat=2)), ids=str)
def test_any_pattern_of_rewards_in_the_first_plays_but_a_constant_one_is_found(
    check: Callable[..., Validation], outcomes: tuple[float, ...]
) -> None:
    left = list(outcomes)

    class Pattern(BoxEnv):
        async def score(self, transcript: Transcript) -> Reward:
            reward = await super().score(transcript)
            return Reward(left.pop(0) if reward.outcome and left else reward.outcome)

    assert bool(wrong(check(make_env=Pattern))) == (0.0 in outcomes)


@pytest.mark.slow
def test_randomness_that_is_seeded_by_the_row_is_sound(check: Callable[..., Validation]) -> None:
    class Seeded(BoxEnv):
        async def start(self) -> tuple[Message, ...]:
            self.rng = random.Random(str(self.row.extra["task_id"]))
            return (*await super().start(), Message("user", f"Hint {self.rng.random()}"))

        async def score(self, transcript: Transcript) -> Reward:
            reward = await super().score(transcript)
            return Reward(reward.outcome, parts={"luck": 0.1 * self.rng.random()} if reward.outcome else {})

    assert not wrong(check(make_env=Seeded, rows=[make_row(i) for i in range(3)]))


def test_an_environment_that_does_not_start_is_told_in_every_check_and_ends_nothing(
    check: Callable[..., Validation],
) -> None:
    found = wrong(check(make_env=FailsToStart))
    start = r"row 0 \(test0\): start failed, got OSError: no disk \(.*test_validate_env.py:\d+ in start\)"
    assert re.fullmatch(start, found["reset is deterministic"])
    assert re.search(r"void \(infra_error\), got EnvError: .*no disk \(.*:\d+ in start\)", found["gold scores 1"])


def test_equal_failures_are_one_line_with_their_number_and_one_traceback(check: Callable[..., Validation]) -> None:
    found = check(make_env=FailsToStart, rows=[make_row(i) for i in range(3)])
    checks = {finding.check: finding for finding in found.checks}
    for name in ("reset is deterministic", "gold scores 1", "malformed scores 0"):
        finding = checks[name]
        count = len(finding.evidence["problems"])
        assert count >= 3 and finding.found.startswith(f"{count} x ") and "\n" not in finding.found
    (trace,) = checks["reset is deterministic"].evidence["tracebacks"]
    assert trace.endswith("OSError: no disk\n")


@pytest.mark.parametrize(("delay_s", "problem"), [(0.0, "KeyError: 'box'"), (9.0, "Error: no result within 0.1 s")])
def test_a_solution_that_fails_because_of_a_tool_names_the_failed_call(
    check: Callable[..., Validation], delay_s: float, problem: str
) -> None:
    class Broken(OpenBox):
        timeout_s = 0.1

        async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
            await asyncio.sleep(delay_s)
            raise KeyError("box")

    class BrokenEnv(BoxEnv):
        def __init__(self, row: EnvRow) -> None:
            ToolEnv.__init__(self, row, [Broken(row)])

    found = wrong(check(make_env=BrokenEnv))["gold scores 1"]
    assert "its last failed call, of 'open_box': " in found and problem in found
    assert ("in call)" in found) == (delay_s == 0.0)


@pytest.mark.parametrize("blocks", [True, False])
def test_code_that_blocks_the_event_loop_is_named_with_the_time_and_code_that_waits_is_not(
    package: EnvPackage, tiny_chat: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch, blocks: bool
) -> None:
    class Slow(BoxEnv):
        waits: ClassVar[list[int]] = [1]

        async def start(self) -> tuple[Message, ...]:
            if self.waits:
                self.waits.clear()
                await (asyncio.sleep(1.5) if not blocks else sleep_blocking())
            return await super().start()

    async def sleep_blocking() -> None:
        time.sleep(1.5)

    monkeypatch.setattr(validate_env, "_BLOCKED_S", 0.7)
    monkeypatch.setattr(validate_env, "_MAX_BLOCKED_S", 0.7)
    monkeypatch.setattr(leaks, "_SETTLE_S", 0.3)
    tokenizer, codec = tiny_chat
    reports: list[tuple[str, str]] = []
    tried = replace(package, make_env=Slow)
    found = asyncio.run(
        validate(tried, [make_row(0)], codec=codec, tokenizer=tokenizer, on_progress=lambda *r: reports.append(r))
    )
    places = {place for _, place in reports if place}
    problems = wrong(found)
    assert {text for text, _ in reports} >= {"gold scores 1", "gold scores 1: 1 episodes"}
    assert set(problems) == ({"event loop is free"} if blocks else set()), problems
    if blocks:
        assert all(re.fullmatch(r".*test_validate_env.py:\d+ in sleep_blocking", place) for place in places) and places
        blocked = re.search(
            r"in sleep_blocking: blocked the event loop for ([\d.]+) s; await", problems["event loop is free"]
        )
        assert blocked is not None and 1.2 < float(blocked[1]) < 10
    else:
        assert not places


def test_a_gold_that_raises_is_told_with_its_place(check: Callable[..., Validation]) -> None:
    def broken_gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
        raise KeyError("answer")

    found = wrong(check(gold=broken_gold))
    assert "KeyError: 'answer' (" in found["gold scores 1"] and "in broken_gold)" in found["gold scores 1"]
    assert not any("KeyError: 'the solution'" in text for text in found.values())


def test_a_server_that_cannot_be_reached_ends_the_validation_at_the_first_start(
    check: Callable[..., Validation],
) -> None:
    with pytest.raises(EnvUnavailableError, match="no server at"):
        check(make_env=HasNoServer)


def test_a_missing_and_a_wrong_solution_are_found(check: Callable[..., Validation]) -> None:
    assert wrong(check(gold=None)) == {"gold scores 1": "the package has no gold(row); add the solution of its tasks"}
    wrong_gold = check(gold=lambda row: lambda messages: Message("assistant", "nothing"))
    assert wrong(wrong_gold) == {"gold scores 1": "row 0 (test0): scored 0, stopped by answered"}
    raising = wrong(check(gold=lambda row: lambda messages: 1 // 0))
    assert "ZeroDivisionError" in raising["gold scores 1"]


def repeated(*, split: str, count: int, seed: int) -> list[EnvRow]:
    return [make_row(1, split) for _ in range(count)]


def random_rows(*, split: str, count: int, seed: int) -> list[EnvRow]:
    return [make_row(next(_counter), split) for _ in range(count)]


def shared(*, split: str, count: int, seed: int) -> list[EnvRow]:
    return [make_row(i, split) for i in range(count)]


def few(*, split: str, count: int, seed: int) -> list[EnvRow]:
    return make_rows(split=split, count=count, seed=seed)[1:]


def nameless(*, split: str, count: int, seed: int) -> list[EnvRow]:
    return [replace(r, extra={"box": r.extra["box"]}) for r in make_rows(split=split, count=count, seed=seed)]


@pytest.mark.slow
@pytest.mark.sample(1, slow=2)
@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (repeated, "make_rows gave the same train task twice"),
        (random_rows, "make_rows gave different train rows for the same arguments"),
        (shared, "train and test share tasks"),
        (few, "make_rows was asked for 3 train rows and made 2"),
        (nameless, "train rows must have extra['task_id']"),
    ],
)
def test_rows_that_do_not_keep_their_promises_are_found(
    check: Callable[..., Validation], make: Callable[..., list[EnvRow]], problem: str
) -> None:
    assert wrong(check(make_rows=make, rows=[make_row(i) for i in range(3)])) == {"rows": problem}


@pytest.mark.slow
def test_rows_without_prompt_or_that_are_no_json_and_missing_examples_are_found(
    check: Callable[..., Validation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = make_row(1)
    odd = replace(good, extra={**good.extra, "set": {1, 2}})
    assert wrong(check(rows=[odd])) == {"rows": "row 0 (test1): extra and ground_truth must be plain JSON values"}
    (tmp_path / "example.jsonl").unlink()
    assert not wrong(check(rows=[good])), "only bundled environments need examples"
    monkeypatch.setattr(validate_env, "envs_dir", lambda: tmp_path.parent)
    assert wrong(check(rows=[good])) == {"rows": "example.jsonl must have at least 4 rows"}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("truth", "skipped"),
    [("ab", "shorter than 3 characters"), ({"a": 1}, "neither text nor number"), (True, "neither")],
)
def test_ground_truths_that_give_nothing_away_are_skipped_with_the_reason(
    check: Callable[..., Validation], truth: Any, skipped: str
) -> None:
    class Told(BoxEnv):
        async def score(self, transcript: Transcript) -> Reward:
            return Reward(float(transcript.final_answer == str(self.row.ground_truth)))

    row = replace(make_row(1), prompt=(Message("user", f"Is it {truth}?"),), ground_truth=truth)
    found = check(rows=[row], make_env=Told)
    assert "answer is hidden" not in wrong(found)
    assert skipped in next(c.evidence["detail"] for c in found.checks if c.check == "answer is hidden")


_kept: list[Any] = []


def leave_task() -> None:
    _kept.append(asyncio.ensure_future(asyncio.sleep(3600)))


def leave_descriptor() -> None:
    _kept.append(os.open(os.devnull, os.O_RDONLY))


def leave_file() -> None:
    _kept.append(tempfile.mkstemp()[1])


def leave_process() -> None:
    _kept.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))


def leave_thread() -> None:
    stop = threading.Event()
    threading.Thread(target=stop.wait, daemon=True).start()
    _kept.append(stop)


def forget() -> None:
    for thing in _kept:
        if isinstance(thing, int):
            os.close(thing)
        elif isinstance(thing, subprocess.Popen):
            thing.communicate()
        elif isinstance(thing, threading.Event):
            thing.set()
    _kept.clear()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("leave", "kinds"),
    [
        (leave_task, {"asyncio tasks"}),
        (leave_descriptor, {"open descriptors"}),
        (leave_file, {"open descriptors", "temporary files"}),
        (leave_process, {"child processes", "open descriptors"}),
        (leave_thread, {"threads"}),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_is_left_behind_is_found_by_its_kind(
    check: Callable[..., Validation], leave: Callable[[], None], kinds: set[str]
) -> None:
    class Leaving(BoxEnv):
        async def close(self) -> None:
            leave()

    try:
        found = check(make_env=Leaving, rows=[make_row(1)])
        (problems,) = (c.evidence["problems"] for c in found.checks if c.check == "nothing is left")
        assert {problem.partition(":")[0] for problem in problems} == kinds
    finally:
        forget()


@pytest.mark.slow
def test_what_only_a_cancelled_episode_leaves_is_found(check: Callable[..., Validation]) -> None:
    class Leaving(BoxEnv):
        played = 0

        async def step(self, action: Action) -> Observation:
            self.played += 1
            return await super().step(action)

        async def score(self, transcript: Transcript) -> Reward:
            self.played = 0
            return await super().score(transcript)

        async def close(self) -> None:
            if self.played:
                leave_descriptor()

    try:
        assert (
            "open descriptors: 4 more after 12 environments"
            in wrong(check(make_env=Leaving, rows=[make_row(1)]))["nothing is left"]
        )
    finally:
        forget()


@pytest.mark.slow
def test_a_pool_that_is_filled_once_is_no_leak(check: Callable[..., Validation]) -> None:
    class Pooled(BoxEnv):
        async def start(self) -> tuple[Message, ...]:
            if not _kept:
                for _ in range(8):
                    leave_descriptor()
            return await super().start()

    try:
        assert check(make_env=Pooled, rows=[make_row(1)]).ok
    finally:
        forget()


def test_the_rows_to_play_are_the_examples_and_new_test_rows(package: EnvPackage, tmp_path: Path) -> None:
    rows = rows_to_validate(package, count=3)
    assert [row.extra["task_id"] for row in rows] == [
        "test0",
        "test1",
        "test2",
        "test3",
        "test500",
        "test501",
        "test502",
    ]
    with pytest.raises(ConfigError, match=r"example\.jsonl"):
        rows_to_validate(replace(package, make_rows=None, folder=tmp_path / "empty"), count=3)


# Policies without a model.


class Open(OpenBox):
    """Opens any box."""

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        return ToolResult(
            f"inside: {self._row.ground_truth}" if arguments.get("box") == self._row.extra["box"] else "-"
        )


class PaysForMentions(ToolEnv):
    def __init__(self, row: EnvRow) -> None:
        super().__init__(row, [Open(row)])

    async def score(self, transcript: Transcript) -> Reward:
        return Reward(float(any(self.row.ground_truth in action.content for action in transcript.actions)))


class PaysYes(BoxEnv):
    async def score(self, transcript: Transcript) -> Reward:
        is_right = (await super().score(transcript)).outcome
        is_lucky = self.row.extra["box"].endswith("0") and "yes" in transcript.final_answer
        return Reward(max(is_right, float(is_lucky)))


class PaysCalls(BoxEnv):
    async def step(self, action: Action) -> Observation:
        return replace(await super().step(action), reward=0.3 * bool(action.tool_calls))


class PaysSorry(BoxEnv):
    async def score(self, transcript: Transcript) -> Reward:
        return Reward(max((await super().score(transcript)).outcome, float("sorry" in transcript.final_answer)))


class BreaksOnYes(BoxEnv):
    async def score(self, transcript: Transcript) -> Reward:
        assert "yes" not in transcript.final_answer
        return await super().score(transcript)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("env", "problem"),
    [
        (PaysForMentions, "dump of all tool outputs: mean outcome 1"),
        (PaysYes, "always 'yes': mean outcome 0.5"),
        (PaysCalls, "loop with a counter: mean reward 1.8, and the solution 1.3"),
        (PaysSorry, "always 'sorry': mean outcome 1"),
        (BreaksOnYes, "always 'yes': 2 episodes are void"),
    ],
)
def test_a_policy_without_a_model_that_is_paid_is_found(
    env: Any, problem: str, check: Callable[..., Validation]
) -> None:
    found = wrong(check(rows=[make_row(0), make_row(1)], make_env=env))
    assert found["scripts are not paid"].startswith(problem)


@pytest.mark.slow
def test_an_environment_may_declare_what_luck_is_paid(check: Callable[..., Validation]) -> None:
    rows = [make_row(0), make_row(1)]
    for bound, is_right in ((0.5, True), (0.4, False)):
        card = EnvCard(kind="boxes", size="unlimited", max_scripted=bound)
        assert ("scripts are not paid" not in wrong(check(rows=rows, make_env=PaysYes, card=card))) == is_right


class PaysExtended(BoxEnv):
    async def score(self, transcript: Transcript) -> Reward:
        return Reward(float(transcript.final_answer.startswith(self.row.ground_truth)))


class PaysZero(BoxEnv):
    async def score(self, transcript: Transcript) -> Reward:
        is_zero = transcript.final_answer == "0"
        return Reward(max((await super().score(transcript)).outcome, float(is_zero)))


class PaysTheQuestion(BoxEnv):
    async def score(self, transcript: Transcript) -> Reward:
        is_copied = transcript.final_answer == self.row.prompt[-1].content
        return Reward(
            max((await super().score(transcript)).outcome, float(is_copied and bool(transcript.actions[:-1])))
        )


@pytest.mark.slow
@pytest.mark.sample(1, slow=1)
@pytest.mark.parametrize(
    ("env", "problem"),
    [
        (PaysExtended, "extended: 8 of 8 rows"),
        (PaysZero, "always '0': 8 of 8 rows, the answer of 0"),
        (PaysTheQuestion, "a line of the question: 8 of 8 rows"),
    ],
)
def test_a_guess_that_is_paid_is_found(env: Any, problem: str, check: Callable[..., Validation]) -> None:
    rows = [make_row(number) for number in range(8)]
    assert wrong(check(rows=rows, make_env=env))["guesses are not paid"].startswith(problem)


@pytest.mark.slow
def test_a_guess_is_played_once_in_a_row(check: Callable[..., Validation]) -> None:
    played: Counter[tuple[str, str]] = Counter()

    class Watched(BoxEnv):
        async def score(self, transcript: Transcript) -> Reward:
            played[self.row.extra["box"], transcript.final_answer] += 1
            return await super().score(transcript)

    rows = [replace(make_row(number), ground_truth=f"treasure{number % 2}") for number in range(8)]
    assert "guesses are not paid" not in wrong(check(rows=rows, make_env=Watched))
    guesses = {key: count for key, count in played.items() if key[1] in ("treasure0", "treasure1", "-1", "x")}
    golds = {(row.extra["box"], row.ground_truth) for row in rows}
    assert len(guesses) == 4 * 8 and {count for key, count in guesses.items() if key not in golds} == {1}


@pytest.mark.slow
def test_an_answer_that_must_have_its_spaces_is_found(check: Callable[..., Validation]) -> None:
    class ExactList(BoxEnv):
        async def score(self, transcript: Transcript) -> Reward:
            return Reward(float(transcript.final_answer == self.row.ground_truth["answer"]))

    rows = [replace(make_row(number), ground_truth={"answer": f"[{number}, 7]"}) for number in range(4)]
    gold = lambda row: lambda messages: Message("assistant", row.ground_truth["answer"])  # noqa: E731
    found = wrong(check(rows=rows, make_env=ExactList, gold=gold))
    assert found["spelling is free"] == "without spaces: 4 of 4 rows, such as '[0,7]'"


@pytest.mark.parametrize(("num_paid", "is_above"), [(2, False), (3, False), (4, False), (6, True), (8, True)])
def test_chance_is_that_of_the_binomial_distribution(num_paid: int, is_above: bool) -> None:
    assert exceeds_chance(num_paid, 8, 1 / 9) == is_above and not exceeds_chance(0, 8, 0.0)
