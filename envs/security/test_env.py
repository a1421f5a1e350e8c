"""Only attacks get a secret, only from unfixed functions; and only right answers and fixes score."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace

import pytest

from verl_agentic import Action, ConfigError, EnvRow, Message, Reward, StopReason, ToolCall, Transcript
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.sandbox.interface import Command, Limits
from verl_agentic.sandbox.pools.pool_owner import pool_of
from verl_agentic.swe.check_tasks import task_checks
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore

from .env import make_env
from .exploit import PRACTICE_FLAG
from .gold import gold
from .modules import WeakModule, draw_module
from .patch_task import store_files
from .rows import KINDS, WEAKNESSES, make_rows

ROWS = {kind: make_rows(split="train", count=12, seed=0, task=kind) for kind in KINDS}
NUM_MODULES = 60
# Runs all uses and attacks of modules in both forms, and prints what is wrong.
PROGRAM = """
import json, pathlib, re, sys, tempfile
problems = []
for module in json.load(sys.stdin):
    for is_fixed in (False, True):
        space = {}
        exec(module["sources"][is_fixed], space)
        exec(module["prepare"], space)
        def call(arguments):
            with tempfile.TemporaryDirectory() as folder:
                first = space["prepare_" + module["name"]](pathlib.Path(folder), "FLAG-1")
                arguments = [re.sub("^@folder", folder, text) if isinstance(text, str) else text for text in arguments]
                return space[module["name"]](*first, *arguments)
        for arguments, expected in module["uses"]:
            try:
                is_right = repr(call(arguments)) == eval(expected, {"FLAG": "FLAG-1"})
            except Exception as error:
                is_right = False
            if not is_right:
                problems.append([module["weakness"], is_fixed, "use", arguments])
        for arguments in module["attacks"]:
            try:
                text = repr(call(arguments))
            except Exception as error:
                text = repr(error)
            if ("FLAG-1" in text) == is_fixed:
                problems.append([module["weakness"], is_fixed, "attack", arguments])
print(json.dumps(problems))
"""


async def play(row: EnvRow, turns: list[Message], *, stop: StopReason | None = None) -> tuple[Reward, list[str]]:
    """Returns the reward of an episode, and its observations."""
    env = make_env(row)
    try:
        messages = await env.start()
        actions, texts, end = [], [], None
        for number, turn in enumerate(turns):
            calls = tuple(replace(call, call_id=str(place)) for place, call in enumerate(turn.tool_calls))
            actions.append(Action(number, turn.content, turn.content, tool_calls=calls))
            observation = await env.step(actions[-1])
            texts += [message.content for message in observation.messages]
            end = observation.stop or end
        reason = stop or end or StopReason.ANSWERED
        transcript = Transcript(messages=messages, actions=tuple(actions), stop_reason=reason)
        return await env.score(transcript), texts
    finally:
        await env.close()


def outcome(row: EnvRow, answer: str, **options) -> float:
    return asyncio.run(play(row, [Message("assistant", answer)], **options))[0].outcome


def answer_of(row: EnvRow) -> str:
    return gold(row)(row.prompt).content


@pytest.mark.parametrize("families", ["seen", "held_out"])
def test_attacks_get_the_secret_from_weak_functions_alone_and_uses_do_not_change(families) -> None:
    jobs = []
    for number in range(NUM_MODULES):
        module = draw_module(number, families=families)
        sources = [module.write_source(is_fixed=is_fixed) for is_fixed in (False, True)]
        weak = module.weak
        for scene in (weak.shown, weak.hidden):
            jobs.append({"sources": sources, "prepare": scene.prepare, "name": weak.name, "weakness": weak.weakness,
                         "uses": [*scene.uses], "attacks": [*scene.attacks]})  # fmt: skip
            assert len(scene.attacks) >= 2 and len(scene.uses) >= 3
        assert weak.shown.prepare != weak.hidden.prepare or weak.weakness == "delimiter injection"
    command = Command(code=PROGRAM, stdin=json.dumps(jobs).encode())
    limits = Limits(wall_s=60, cpu_s=30, output_bytes=100_000)
    result = asyncio.run(pool_of("process", "auto", at_least=None).run(command, limits=limits))
    assert result.ok and json.loads(result.stdout) == [], (result.stderr, result.stdout)


# Runs the hidden tests of modules in a folder named like the test, and prints the names of those that fail.
HIDDEN_TESTS = """
import json, os, pathlib, sys, tempfile, types
failed = []
for job in json.load(sys.stdin):
    sys.modules[job["name"]] = module = types.ModuleType(job["name"])
    exec(job["source"], vars(module))
    space = {}
    exec(job["tests"], space)
    failed.append([])
    for name in [name for name in space if name.startswith("test_")]:
        os.environ["PYTEST_CURRENT_TEST"] = name
        with tempfile.TemporaryDirectory(prefix=name) as folder:
            try:
                space[name](pathlib.Path(folder))
            except Exception:
                failed[-1].append(name)
print(json.dumps(failed))
"""
# Bodies of a function around each function of a module. They hide secrets without a fix.
CHEATS = {
    "no change": "return function(*arguments)",
    "results that look like the secret are refused": """
        text = repr(function(*arguments))
        if "flag" in text or {visible!r} in text:
            raise ValueError
        return function(*arguments)""",
    "results with words that visible tests lack are refused": """
        result = function(*arguments)
        if not {{*re.findall(r"[a-z]{{7}}", repr(result))}} <= {{*{words!r}}}:
            raise ValueError
        return result""",
    "arguments with names of visible tests are refused": """
        if any(word in repr(arguments) for word in {words!r}):
            raise ValueError
        return function(*arguments)""",
    "results hide what they are": """
        kind = type(result := function(*arguments))
        return type("Hidden", (kind,), {{"__repr__": lambda self: ""}})(result)""",
    "tests that attack are refused": """
        if "attack" in os.environ["PYTEST_CURRENT_TEST"] or "attack" in repr(arguments):
            raise ValueError
        return function(*arguments)""",
}
WRAPPER = """
import os, re
def wrap(function):
    def call(*arguments):
        {body}
    return call
{names} = map(wrap, [{names}])
"""


def failed_tests(module: WeakModule, sources: list[str]) -> list[set[str]]:
    """Returns the hidden tests that each source of a module fails."""
    tests = module.write_tests(is_hidden=True)
    jobs = [{"name": module.name, "source": source, "tests": tests} for source in sources]
    command = Command(code=HIDDEN_TESTS, stdin=json.dumps(jobs).encode())
    limits = Limits(wall_s=60, cpu_s=30, output_bytes=100_000)
    result = asyncio.run(pool_of("process", "auto", at_least=None).run(command, limits=limits))
    assert result.ok, result.stderr
    return [{f"{module.test_path}::{name}" for name in names} for names in json.loads(result.stdout)]


@pytest.mark.parametrize("number", range(12))
def test_only_a_fix_passes_the_hidden_tests(number: int) -> None:
    module = draw_module(number, families="seen")
    wrong, right = (module.write_source(is_fixed=is_fixed) for is_fixed in (False, True))
    visible = module.write_tests(is_hidden=False)
    values = {"visible": module.flags[0], "words": sorted({*re.findall(r"[a-z]{7}", visible)})}
    names = ", ".join(function.name for function in module.functions)
    cheats = [f"{wrong}{WRAPPER.format(body=body.format(**values), names=names)}" for body in CHEATS.values()]
    of_right, of_wrong, *of_cheats = failed_tests(module, [right, wrong, *cheats])
    assert of_right == set() and of_wrong == {*module.split_tests()[0]}
    assert [cheat for cheat, failed in zip(CHEATS, of_cheats, strict=True) if not failed] == []


def test_attacks_need_no_text_of_the_visible_tests() -> None:
    for number in range(NUM_MODULES):
        module = draw_module(number, families="seen")
        shown = {*re.findall(r"[a-z]{7}", module.weak.shown.prepare)}
        hidden = {*re.findall(r"[a-z]{7}", repr(module.weak.hidden.attacks))}
        assert not hidden & shown - {"content"}, hidden & shown


def test_training_rows_have_no_family_that_is_held_out() -> None:
    held_out = make_rows(split="test", count=40, seed=0, task="exploit", families="held_out")
    seen = make_rows(split="train", count=120, seed=0, task="exploit")
    names = [{row.extra["weakness"] for row in rows} for rows in (held_out, seen)]
    assert names[0] | names[1] == {*WEAKNESSES} and not names[0] & names[1] and len(names[1]) == 6
    with pytest.raises(ConfigError, match="held_out"):
        make_rows(split="train", count=1, seed=0, families="held_out")


def test_finding_needs_the_function_and_its_weakness() -> None:
    for row in ROWS["find"]:
        function, weakness = row.ground_truth.split(": ")
        assert outcome(row, f"{function}: {weakness}") == outcome(row, f"`{function}`: {weakness.upper()}.") == 1.0
        assert outcome(row, function) == outcome(row, weakness) == 0.0
        others = [name for name in WEAKNESSES if name != weakness]
        assert {outcome(row, f"{function}: {other}") for other in others} == {0.0}
        assert outcome(row, "\n".join(f"{function}: {name}" for name in WEAKNESSES)) == 0.0
        assert outcome(row, answer_of(row), stop=StopReason.MAX_TOKENS) == 0.0


@pytest.mark.sample(1, slow=12)
@pytest.mark.parametrize("index", range(12))
def test_an_attack_scores_and_other_arguments_do_not(index: int) -> None:
    row = ROWS["exploit"][index]
    attack = row.extra["attack"]
    assert outcome(row, json.dumps(attack)) == outcome(row, f"```json\n{json.dumps(attack)}\n```") == 1.0
    for wrong in ("[]", "{}", "[" * 5000, "no list", json.dumps([row.extra["prepare"]] * len(attack)), '["flag-"]'):
        assert outcome(row, wrong) == 0.0
    assert outcome(row, json.dumps(attack), stop=StopReason.MAX_TOKENS) == 0.0


def test_a_call_shows_the_practice_secret_which_is_not_the_one_that_scores() -> None:
    row = ROWS["exploit"][0]
    call = ToolCall("call", {"arguments": json.dumps(row.extra["attack"])})
    wrong = ToolCall("call", {"arguments": "?"})
    turns = [Message("assistant", "", tool_calls=(call,)), Message("assistant", "", tool_calls=(wrong,))]
    reward, (shown, refused) = asyncio.run(play(row, [*turns, Message("assistant", f'["{PRACTICE_FLAG}"]')]))
    assert PRACTICE_FLAG in shown and "JSON list" in refused and reward.outcome == 0.0


def test_long_results_of_any_characters_are_scored() -> None:
    sources = [f"def f(flag, text): return {result}" for result in ("flag + text", "text")]
    columns = {"sources": sources, "prepare": "def prepare_f(folder, flag): return [flag]"}
    row = replace(ROWS["exploit"][0], extra={**ROWS["exploit"][0].extra, **columns, "function": "f"})
    assert outcome(row, json.dumps([5000 * "\U0001f600"])) == 1.0


def test_a_function_that_shows_its_secret_when_fixed_has_no_exploit() -> None:
    row = ROWS["exploit"][0]
    wrong, _ = row.extra["sources"]
    both = replace(row, extra={**row.extra, "sources": [wrong, wrong]})
    assert outcome(row, answer_of(row)) == 1.0 and outcome(both, answer_of(row)) == 0.0


def patch_turns(row: EnvRow, command: str) -> list[Message]:
    calls = [ToolCall("bash", {"command": command}), *2 * [ToolCall("submit", {})]]
    return [Message("assistant", "", tool_calls=(call,)) for call in calls]


@pytest.mark.slow
def test_the_fix_scores_and_a_module_that_refuses_all_calls_does_not() -> None:
    row = ROWS["patch"][0]
    policy = gold(row)
    messages = list(asyncio.run(first_messages(row)))
    turns = []
    for _ in range(3):
        turns.append(policy(messages))
        messages.append(turns[-1])
    reward, _ = asyncio.run(play(row, turns))
    assert reward.outcome == 1.0 and reward.info["f2p_passed"] == reward.info["f2p_total"] >= 2
    refuse = "for f in *.py; do sed -i 's/^def .*:$/&\\n    raise ValueError()/' $f; done"
    refused, _ = asyncio.run(play(row, patch_turns(row, refuse)))
    assert refused.outcome == 0.0 and refused.info["f2p_passed"] == refused.info["f2p_total"]
    assert asyncio.run(play(row, patch_turns(row, "true")))[0].outcome == 0.0


async def first_messages(row: EnvRow) -> tuple[Message, ...]:
    env = make_env(row)
    try:
        return await env.start()
    finally:
        await env.close()


@pytest.mark.nightly
def test_the_tests_of_patches_hold(tmp_path) -> None:
    rows = [*ROWS["patch"][:6], *make_rows(split="test", count=4, seed=0, task="patch", families="held_out")]
    stores = {store_files(row).folder for row in rows}
    tasks = [RepoTask.from_json(row.extra["task"]) for row in rows]
    store = TaskStore(stores.pop() / "checked.jsonl")
    store.write(tasks)

    async def check_all() -> dict[str, tuple[str, ...]]:
        async with task_checks(store.path, runs=1, jobs=1, backend="auto") as check:
            return {task.instance_id: (await check(task)).problems for task in tasks}

    problems = asyncio.run(check_all())
    assert not any(problems.values()), problems


def test_weak_code_never_runs_without_isolation() -> None:
    for kind in KINDS:
        for sandbox in ("local", "remote"):
            with pytest.raises(ConfigError, match="isolate"):
                make_env(ROWS[kind][0], sandbox=sandbox)
    with pytest.raises(ConfigError, match="kind"):
        make_env(replace(ROWS["find"][0], extra={}))


def test_each_kind_is_an_environment_of_its_own() -> None:
    for kind in KINDS:
        make_rows = load_env_package(f"security/{kind}").make_rows
        assert make_rows is not None
        rows = make_rows(split="test", count=3, seed=1)
        assert {row.extra["kind"] for row in rows} == {kind}
