"""code_tests validated: solutions score 1, everything else 0, and nothing of the hidden tests is ever seen."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from verl_agentic import (
    Action,
    ConfigError,
    DataError,
    EnvRow,
    EpisodeLimits,
    Message,
    Reward,
    StopReason,
    ToolCall,
    Transcript,
    read_rows,
    run_episode,
    scripted,
)
from verl_agentic.cpu.testing import tiny_codecs
from verl_agentic.sandbox.interface import Command, CommandResult, Limits
from verl_agentic.sandbox.pools.pool_owner import pool_of

from . import env as env_module
from .env import make_env
from .families import FAMILIES, reference_output, reference_solution
from .gold import gold
from .rows import make_rows

EXAMPLES = read_rows(Path(__file__).with_name("example.jsonl"))
ADD = "a, b = map(int, input().split())\nprint(a + b)"
Policy = Callable[[Sequence[Message]], Message]


def added(**answers: str) -> str:
    """Returns tests of a program that adds two numbers: `a1b2="3"` is `1 2` -> `3`."""
    inputs = [name.strip("a").replace("b", " ") for name in answers]
    return json.dumps({"inputs": inputs, "outputs": list(answers.values()), "fn_name": None})


SUM = EnvRow(
    prompt=(Message("user", "Add two numbers."),),
    ground_truth=added(a3b4="7", a10b20="30", a5b5="10", a0b1="1"),
    extra={"task_id": "sum", "public_tests": added(a1b2="3", a2b2="4")},
)


def run(code: Any, tool: str = "run_tests") -> Message:
    return Message("assistant", "", tool_calls=(ToolCall(tool, {"code": code}),))


def fenced(code: str) -> Message:
    return Message("assistant", f"Here it is.\n```python\n{code}\n```")


async def play(task: EnvRow, *turns: Message, policy: Policy | None = None, **config: Any) -> tuple[Reward, list[str]]:
    """Returns the reward, and what the tools answered; an episode that has no turns left was cut."""
    script = iter(turns)
    env = make_env(task, **config)
    messages, actions, stop = list(await env.start()), [], None
    while stop is None:
        message = policy(messages) if policy else next(script, None)
        if message is None:
            stop = StopReason.MAX_TURNS
            break
        text = message.content
        actions.append(Action(turn=len(actions), text=text, content=text, tool_calls=message.tool_calls))
        observation = await env.step(actions[-1])
        messages += [message, *observation.messages]
        stop = observation.stop
    reward = await env.score(Transcript(messages=tuple(messages), actions=tuple(actions), stop_reason=stop))
    await env.close()
    return reward, [message.content for message in messages if message.role == "tool"]


# Rows and their solution


@pytest.mark.sample(5)
@pytest.mark.parametrize("task", make_rows(split="test", count=len(FAMILIES), seed=3), ids=lambda t: t.extra["family"])
async def test_the_reference_solution_of_every_family_passes_its_hidden_tests(task: EnvRow) -> None:
    reward, answers = await play(task, policy=gold(task))
    assert reward.outcome == 1.0 and reward.info == {"pass_rate": 1.0} and reward.parts == {}
    assert answers == ["All 3 public tests passed."]


LIMITS = EpisodeLimits(max_response_tokens=8000, max_context_tokens=12_000, max_turns=3)


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Any:
    tokenizer, codecs = tiny_codecs(tmp_path_factory.mktemp("model"))
    return tokenizer, codecs["chat"]


@pytest.mark.sample(4)
@pytest.mark.parametrize("task", EXAMPLES, ids=lambda task: task.extra["task_id"])
async def test_the_gold_policy_solves_every_example_through_the_loop(chat: Any, task: EnvRow) -> None:
    tokenizer, codec = chat
    episode = await run_episode(
        task,
        make_env=make_env,
        setup=scripted(gold(task), codec=codec, tokenizer=tokenizer, limits=LIMITS),
        request_id="r",
    )
    assert episode.error is None and episode.reward.outcome == 1.0
    assert episode.numbers()["tool_calls"] == 1.0 and episode.numbers()["tool_errors"] == 0.0


async def test_a_task_without_public_tests_is_solved_in_one_turn_without_a_tool(chat: Any) -> None:
    (task,) = make_rows(split="train", count=1, seed=0, public_tests=0)
    tokenizer, codec = chat
    assert "run_tests" not in str(task.prompt) and not make_env(task, run_tests=False).tools
    setup = scripted(gold(task), codec=codec, tokenizer=tokenizer, limits=replace(LIMITS, max_turns=1))
    episode = await run_episode(task, make_env=partial(make_env, run_tests=False), setup=setup, request_id="r")
    assert episode.error is None and episode.reward.outcome == 1.0
    assert len(episode.actions) == 1 and episode.stop_reason is StopReason.ANSWERED


def test_the_solution_is_in_the_ground_truth_only_on_request() -> None:
    plain, solved = (make_rows(split="train", count=1, seed=0, solution=solution)[0] for solution in (False, True))
    family, parameters = FAMILIES[solved.extra["family"]], json.loads(solved.extra["parameters"])
    truth = json.loads(solved.ground_truth)
    assert truth.pop("solution") == reference_solution(family, parameters)
    assert truth == json.loads(plain.ground_truth)
    assert replace(solved, ground_truth=plain.ground_truth) == plain


# Parameters, input and what a hand finds.
BY_HAND = {
    "caesar": ({"SHIFT": 2, "KEEP": "vowels", "SWAP": True}, "abyZ a!", "ADAb A!"),
    "run_lengths": ({"MIN": 2, "CAP": 5, "LETTER_FIRST": True, "SEP": ":"}, '"aaaaaaabcc"', '"a:5a:2bc:2"'),
    # a, b, a, aba
    "palindromes": ({"LOW": 1, "HIGH": 3, "DISTINCT": False, "IGNORE_CASE": True}, '"abA"', "4"),
    "word_sort": ({"MIN": 2, "KEY": "last", "FALLING": True, "COUNT": 2, "SEP": "-"}, "ab c bb za", "ab-bb"),
    "multiples": ({"A": 2, "B": 3, "MODE": "one"}, "6", "9"),  # 2 + 3 + 4
    "digit_root": ({"BASE": 10, "K": 2, "C": 1}, "49", "[9, 2]"),  # 99 -> 18 -> 9
    "recurrence": ({"F0": 1, "F1": 2, "A": 3, "B": 1, "M": 50}, "2\n2\n3", "7\n23"),  # 3*2+1, 3*7+2
    "prime_class": ({"M": 4, "R": 1}, "2 20", "3 17"),  # 5, 13, 17
    "windows": ({"K": 2, "STEP": 1, "RING": True, "MEASURE": "sum", "BEST": "max"}, "[5, 1, 9]", "14"),  # 9 + 5
    "top_remainders": ({"M": 3, "MIN": 1, "K": 2, "SMALL_FIRST": False}, "[3, 1, 4, 2, 6, -1]", "[2, 1]"),
    "merge_intervals": ({"GAP": 1, "MIN": 2, "TOTAL": False}, "[[5, 6], [0, 3], [4, 4]]", "[[0, 6]]"),
    "zigzag": ({"FLIP": 2, "ADD": 1, "DROP": 5}, "[1, 2, 3, 4, 5]", "[1, 2, 4]"),  # 1 2 | 5 4 | 5
    "bookings": ({"SEP": ",", "KIND": "paid", "MIN": 5, "TOP": 2}, "3\na,5,paid\nb,9,open\nc,5,paid", "a 5\nc 5"),
    "calculator": ({"ORDER": "+-*", "M": 50}, '"2*3+4-1"', "12"),  # 2 * (7 - 1)
    "settings": (
        {"SEP": ";", "DEFAULT": 3, "KEEP": "last", "MIN": 2, "BACKWARDS": True},
        '"a=5;b;a=1;c=2"',
        '[["c", 2], ["b", 3]]',
    ),
    "coins": ({"COINS": [2, 5], "FEWEST": True, "M": 97}, "11", "4"),  # 5 + 2 + 2 + 2
    "grid_paths": ({"DOWN": 1, "DIAGONAL": True, "M": 100}, "2 3\n...\n#..", "4"),
    # ab -> ba is one exchange; deleting c costs 2.
    "edit_distance": ({"INSERT": 1, "DELETE": 2, "REPLACE": 3, "SWAP": 1}, '"abc"\n"ba"', "3"),
    "climbing_subsequence": ({"LOW": 1, "HIGH": 3, "LENGTH": False}, "[4, 9, 5, 8]", "17"),  # 4 + 5 + 8
    # 0 -> 1 costs 5 + 1, 1 -> 2 costs 5 + 1 + 7; the direct road costs 20 + 1 + 7.
    "roads": ({"TOLL": 1, "ENTRY": 7, "EVERY": 2, "ONE_WAY": True}, "3 3\n0 1 5\n1 2 5\n0 2 20", "19"),
    # 0 and 4 are too far from each other, 2 and 3 have the sum 5.
    "groups": (
        {"NEAR": 2, "SKIP": 5, "MIN": 2, "SIZES": True},
        "6\n[[0, 1], [1, 2], [0, 4], [2, 3], [4, 5]]",
        "[3, 2]",
    ),
    "job_order": ({"M": 3, "R": 0, "SMALL_FIRST": True}, "3\n[[2, 0], [1, 2]]", "[1, 2, 0]"),
    "reach": (
        {"K": 1, "START": 1, "SKIP": 4, "EXACT": False, "ONE_WAY": False},
        "5\n[[0, 1], [2, 3], [1, 3], [0, 4]]",
        "[0, 1]",
    ),
}


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_reference_solutions_agree_with_a_calculation_by_hand(name: str) -> None:
    parameters, text, expected = BY_HAND[name]
    assert reference_output(FAMILIES[name], parameters, text) == expected


@pytest.mark.slow
def test_rows_are_repeatable_and_a_task_has_the_same_tests_whatever_the_seed() -> None:
    assert len(FAMILIES) >= 12
    rows = make_rows(split="train", count=115, seed=1)
    assert rows == make_rows(split="train", count=115, seed=1) != make_rows(split="train", count=115, seed=2)
    assert len({task.extra["task_id"] for task in rows}) == len({task.prompt[-1].content for task in rows}) == 115
    by_id = {task.extra["task_id"]: task for task in make_rows(split="train", count=230, seed=2)}
    shared = [task for task in rows if task.extra["task_id"] in by_id]
    assert shared and all(by_id[task.extra["task_id"]] == task for task in shared)


@pytest.mark.slow
def test_the_splits_share_no_task() -> None:
    tasks = {
        split: {(t.extra["family"], t.extra["parameters"]) for t in make_rows(split=split, count=184, seed=0)}
        for split in ("train", "test")
    }
    assert not tasks["train"] & tasks["test"] and len(tasks["train"]) == len(tasks["test"]) == 184


def test_hidden_tests_are_others_than_the_public_ones_and_no_constant_passes_them() -> None:
    for task in make_rows(split="train", count=46, seed=5):
        public, hidden = json.loads(task.extra["public_tests"]), json.loads(task.ground_truth)
        assert (len(public["inputs"]), len(hidden["inputs"])) == (3, 10)
        assert len({*public["inputs"], *hidden["inputs"]}) == 13
        assert len(set(hidden["outputs"])) >= 3
        assert reference_solution(FAMILIES[task.extra["family"]], json.loads(task.extra["parameters"])) not in str(task)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"split": "dev"}, "got 'dev'"),
        ({"families": ["sorting"]}, "families some of"),
        ({"hidden_tests": 2}, "got 3 and 2"),
        ({"public_tests": -1}, "got -1 and 10"),
        ({"families": ["zigzag"], "count": 300}, "'test'"),
    ],
)
def test_impossible_wishes_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_rows(**{"split": "test", "count": 1, "seed": 0, **options})


# The tool


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (ADD, "All 2 public tests passed."),
        ("print(3)", "1 of 2 public tests passed.\n\nTest 2: wrong answer\ninput:\n2 2\nexpected:\n4\ngot:\n3"),
        ("print()", "Test 1: wrong answer\ninput:\n1 2\nexpected:\n3\ngot:\n[nothing]\n\nTest 2"),
        ("print('y' * 5000)", "got:\n" + "y" * 400 + "[4600 characters cut]\n"),
        ("def add(:", "The program is no valid Python: invalid syntax (solution.py, line 1)"),
        ("def f():\n    return 1 / 0\nf()", 'got:\n  File "solution.py", line 3, in <module>\n    f()'),
        ("while True: pass", "Test 1: no result in time\ninput:\n1 2\nexpected:\n3\n\nTest 2: no result in time"),
        (7, 'Error: the arguments must be {"code": "<string>"}'),
    ],
    ids=["right", "wrong", "nothing", "long", "syntax", "raises", "endless", "no-text"],
)
async def test_a_run_tells_which_public_tests_fail_and_how(code: Any, answer: str) -> None:
    _, answers = await play(SUM, run(code), test_s=0.5)
    assert answer in answers[0] and "main.py" not in answers[0] and len(answers[0]) < 1500


async def test_only_so_many_failures_are_shown() -> None:
    _, (answer,) = await play(SUM, run("print(0)"), shown_failures=1)
    assert answer.count("wrong answer") == 1 and answer.endswith("\n\n1 more failed.")


async def test_functions_and_methods_are_tested_by_their_results() -> None:
    public = json.dumps({"inputs": ["[1, 2]\n3"], "outputs": ["[4, 5]"], "fn_name": "shift"})
    hidden = json.dumps({"inputs": ["[]\n1", "[7]\n-7"], "outputs": ["[]", "[0]"], "fn_name": "shift"})
    task = replace(SUM, ground_truth=hidden, extra={"public_tests": public})
    function = "def shift(xs, k):\n    print('noise')\n    return [x + k for x in xs]"
    method = "class Solution:\n    def shift(self, xs, k):\n        return [x + k for x in xs]"
    for code, outcome in [(function, 1.0), (method, 1.0), ("def shift(xs, k):\n    return xs", 0.0)]:
        assert (await play(task, run(code), fenced(code)))[0].outcome == outcome
    _, (answer,) = await play(task, run("def shift(xs, k):\n    return xs"))
    assert "input:\n[1, 2]\n3\nexpected:\n[4, 5]\ngot:\n[1, 2]" in answer


async def test_the_python_tool_is_there_only_when_asked_for() -> None:
    _, (answer,) = await play(SUM, run("print(6 * 7)", "python"), python=True)
    assert answer == "42"
    _, (answer,) = await play(SUM, run("print(6 * 7)", "python"))
    assert answer == "Error: unknown tool 'python'; known tools: ['run_tests']"


# Scoring


@pytest.mark.parametrize(
    ("turns", "outcome", "pass_rate"),
    [
        ([fenced(ADD)], 1.0, 1.0),
        ([run("print(3)"), run(ADD), fenced(ADD)], 1.0, 1.0),
        ([Message("assistant", f"```python\nprint(1)\n```\nNo:\n```py\n{ADD}\n```")], 1.0, 1.0),
        ([fenced(f"{ADD}\n```\nor\n```python\nprint(7)")], 0.0, 0.25),
        ([fenced("print({'1 2': 3, '2 2': 4}[input()])")], 0.0, 0.0),
        ([fenced("a, b = map(int, input().split())\nprint(a + b if a < 9 else 0)")], 0.0, 0.75),
        ([Message("assistant", f"Here it is:\n{ADD}")], 1.0, 1.0),
        ([Message("assistant", "Print the sum of a and b.")], 0.0, 0.0),
        ([Message("assistant", "")], 0.0, 0.0),
        ([run(ADD)], 0.0, 0.0),
        ([replace(run(ADD), content=fenced(ADD).content)], 0.0, 0.0),
        ([fenced("import os, signal; os.kill(os.getppid(), signal.SIGKILL)")], 0.0, 0.0),
    ],
    ids=[
        "first",
        "fixed",
        "last-block",
        "not-the-last",
        "public-only",
        "almost",
        "unfenced",
        "prose",
        "empty",
        "never-answers",
        "call-last",
        "kills",
    ],
)
async def test_all_hidden_tests_must_pass_and_the_share_is_told(
    turns: list[Message], outcome: float, pass_rate: float
) -> None:
    reward, _ = await play(SUM, *turns)
    assert (reward.outcome, reward.total, reward.info) == (outcome, outcome, {"pass_rate": pass_rate})


async def test_a_program_that_knows_the_public_tests_by_heart_scores_0() -> None:
    for task in make_rows(split="train", count=4, seed=0, families=["caesar", "roads"]):
        public = json.loads(task.extra["public_tests"])
        outputs = {text.strip(): output for text, output in zip(public["inputs"], public["outputs"], strict=True)}
        code = f"import sys\nprint({outputs!r}.get(sys.stdin.read().strip()))"
        reward, answers = await play(task, run(code), fenced(code))
        assert answers == ["All 3 public tests passed."] and reward.outcome == 0.0


async def test_the_share_of_passed_tests_is_added_only_with_a_weight() -> None:
    almost = fenced("a, b = map(int, input().split())\nprint(a + b if a < 9 else 0)")
    reward, _ = await play(SUM, almost, pass_rate_weight=0.5)
    assert (reward.outcome, dict(reward.parts), reward.total) == (0.0, {"pass_rate": 0.375}, 0.375)
    with pytest.raises(ConfigError, match="pass_rate_weight"):
        make_env(SUM, pass_rate_weight=1.5)
    with pytest.raises(ConfigError, match="shown_failures"):
        make_env(SUM, shown_failures=0)


@pytest.mark.parametrize("bad", [{"ground_truth": "[]"}, {"ground_truth": None}, {"extra": {}}])
def test_a_row_without_tests_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="tests"):
        make_env(replace(SUM, **bad))


def test_the_solution_of_a_foreign_row_is_not_known() -> None:
    with pytest.raises(DataError, match="families"):
        gold(SUM)


# Hidden tests stay hidden

CANARIES = {"input": "canary-in-5d1f", "output": "canary-out-8c2e"}
NOSY = """
import glob, os, subprocess, sys
print(dict(os.environ), sys.argv, sorted(globals()))
for folder, _, names in [*os.walk("."), *os.walk(os.path.expanduser("~")), *os.walk("/tmp")]:
    for name in names:
        try:
            print(open(os.path.join(folder, name), errors="replace").read(3000))
        except OSError:
            pass
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    try:
        print(open(path, errors="replace").read(3000))
    except OSError:
        pass
"""


async def test_hidden_tests_are_in_no_observation_prompt_environment_or_command_before_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[Command] = []

    class Recorder:
        def __init__(self, *args: Any, **options: Any) -> None:
            self.pool = pool_of(*args, **options)

        async def run(self, command: Command, *, limits: Limits) -> CommandResult:
            sent.append(command)
            return await self.pool.run(command, limits=limits)

    monkeypatch.setattr(env_module, "pool_of", Recorder)
    hidden = {"inputs": [CANARIES["input"], "1 1"], "outputs": [CANARIES["output"], "2"], "fn_name": None}
    env = make_env(replace(SUM, ground_truth=json.dumps(hidden)), python=True)
    texts = [message.content for message in await env.start()]
    texts += [json.dumps(tool.schema) for tool in env.tools]
    calls = [run(NOSY), run(NOSY, "python"), run("raise ValueError(open('tests.json').read())")]
    for turn, message in enumerate(calls):
        action = Action(turn=turn, text="", content="", tool_calls=message.tool_calls)
        texts += [answer.content for answer in (await env.step(action)).messages]
    assert "1 2" in texts[-1]  # the nosy program does read what is there
    for canary in CANARIES.values():
        assert not any(canary in text for text in [*texts, *map(_all_of, sent), *os.environ.values()])

    sent.clear()
    final = Action(turn=3, text="", content=fenced(NOSY).content)
    reward = await env.score(Transcript(messages=(), actions=(final,), stop_reason=StopReason.ANSWERED))
    (judged,) = sent
    assert reward.outcome == 0.0 and not judged.env
    assert CANARIES["input"] in _all_of(judged) and CANARIES["output"] not in _all_of(judged)
    await env.close()


def _all_of(command: Command) -> str:
    """Returns everything that goes into the sandbox."""
    texts = [command.code or "", *(command.argv or ()), command.stdin.decode(), *command.env.values()]
    return "\n".join([*texts, *(content.decode() for content in command.files.values())])


async def test_a_backend_can_be_named_and_one_that_is_too_weak_is_refused() -> None:
    task = make_rows(split="test", count=1, seed=1, families=["caesar"])[0]
    reward, answers = await play(task, policy=gold(task), sandbox="local")
    assert (reward.outcome, answers) == (1.0, ["All 3 public tests passed."])
    with pytest.raises(ConfigError, match="process_limits"):
        make_env(task, sandbox="local", at_least="namespaces")
