"""The bridge to TRL behaves as GRPOTrainer of TRL 1.16 (`trl/trainer/grpo_trainer.py`)."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError, DataError, ScoringError
from verl_agentic.base.types import Action, Message, Reward, StopReason, ToolCall
from verl_agentic.bridges.trl import make_env, rows_of
from verl_agentic.bridges.trl.env import TrlEnv
from verl_agentic.episode.env_package import EnvPackage, load_env_package
from verl_agentic.evaluate.env_validation.validate_env import validate


class Counter:
    """An environment of TRL."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.value = 0

    def reset(self, start: int = 0, **kwargs: Any) -> str | None:
        self.value, self.columns = start, kwargs
        return f" Start at {start}." if start else None

    def add(self, number: int) -> dict[str, int]:
        """Adds a number.

        Args:
            number: what to add.
        """
        if number > 100:
            raise ValueError("too large")
        self.value += number
        return {"value": self.value}

    async def wait(self) -> list[dict[str, str]]:
        """Waits."""
        return [{"type": "text", "text": "waited"}]

    def lose(self) -> str:
        """Loses the connection."""
        raise ConnectionResetError("gone")

    def sleep(self) -> str:
        """Sleeps."""
        time.sleep(0.3)
        return "slept"

    def _hidden(self) -> None: ...


class Scored(Counter):
    def get_reward(self) -> float:
        return self.value / 10


def double(number: int) -> int:
    """Doubles a number.

    Args:
        number: what to double.
    """
    return 2 * number


@dataclass
class Rollout:
    env: TrlEnv
    prompt: tuple[Message, ...]
    results: list[Message]
    reward: Reward


async def play(
    example: Mapping[str, Any], *calls: tuple[str, dict[str, Any]], make: Callable[..., Any] = make_env, **options: Any
) -> Rollout:
    """Makes the calls one after the other, and says `done`."""
    (row,) = rows_of([example])
    env = make(row, **options)
    prompt = await env.start()
    messages, actions = list(prompt), []
    for name, arguments in calls:
        call = ToolCall(name, arguments)
        actions.append(Action(turn=len(actions), text="", content="", tool_calls=(call,)))
        messages.append(actions[-1].to_message())
        messages += (await env.step(actions[-1])).messages
    actions.append(Action(turn=len(actions), text="done", content="done"))
    messages.append(actions[-1].to_message())
    assert (await env.step(actions[-1])).stop is StopReason.ANSWERED
    transcript = Transcript(messages=tuple(messages), actions=tuple(actions), stop_reason=StopReason.ANSWERED)
    reward = await env.score(transcript)
    await env.close()
    return Rollout(env, prompt, [m for m in messages if m.role == "tool"], reward)


ASK = {"prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Count."}]}


async def test_public_methods_are_tools_and_their_results_are_those_of_trl() -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("add", {"number": 5}), ("add", {"number": 500}), ("wait", {}), ("double", {"number": 4}), ("add", {"n": 1}),
    ]  # fmt: skip
    played = await play({**ASK, "start": 3}, *calls, environment_factory=Scored, tools=[double])
    assert [tool.name for tool in played.env.tools] == ["double", "add", "lose", "sleep", "wait"]
    assert played.prompt[-1].content == "Count. Start at 3." and played.prompt[0].content == "Be brief."
    told = [message.content for message in played.results]
    assert told[:4] == ["{'value': 8}", "{'error': 'too large'}", "waited", "8"]
    assert [message.error_kind for message in played.results] == [None, "tool_raised", None, None, "wrong_arguments"]
    assert played.reward.outcome == 0.8


async def test_reset_gets_all_columns_and_may_return_nothing() -> None:
    seen: list[Any] = []

    def reward(prompts: Any, completions: Any, environments: Any, level: Any, **kwargs: Any) -> list[float]:
        seen.append((prompts, environments[0].columns, level))
        return [1.0]

    played = await play({**ASK, "level": 2}, environment_factory=Counter, reward_funcs=reward)
    assert played.prompt[-1].content == "Count."
    assert seen == [([ASK["prompt"]], {**ASK, "level": 2}, [2])]


async def test_reward_functions_get_messages_or_text_and_the_sum_is_weighted() -> None:
    seen: dict[str, Any] = {}

    def exact(completions: Any, solution: Any, log_metric: Any, log_extra: Any, **kwargs: Any) -> list[float]:
        seen.update(completions=completions, kwargs=sorted(kwargs))
        log_metric("length", 4.0)
        log_extra("solution", solution)
        return [float(completions[0][-1]["content"] == solution[0])]

    async def style(prompts: Any, **kwargs: Any) -> list[float | None]:
        return [0.5]

    def other_task(**kwargs: Any) -> list[float | None]:
        return [None]

    functions = [other_task, exact, style]
    calls = [("double", {"number": 4})]
    played = await play(
        {**ASK, "solution": "done"}, *calls, tools=[double], reward_funcs=functions, reward_weights=[5, 1, 0.2]
    )
    assert (played.reward.outcome, played.reward.parts, played.reward.total) == (1.0, {"style": 0.1}, 1.1)
    assert (played.reward.info, played.reward.details) == ({"length": 4.0}, {"solution": "done"})
    assert seen["kwargs"] == ["prompts"]  # neither environments nor prompt are columns here
    called, result, answer = seen["completions"][0]
    assert called["tool_calls"][0]["function"] == {"name": "double", "arguments": {"number": 4}}
    assert (result["role"], result["name"], result["content"]) == ("tool", "double", "8")
    assert answer == {"role": "assistant", "content": "done"}
    texts: list[Any] = []

    def of_text(prompts: Sequence[str], completions: Sequence[str], **kwargs: Any) -> list[float]:
        texts.append((prompts, completions))
        return [1.0]

    await play({"prompt": "Say it."}, reward_funcs=of_text)
    assert texts == [(["Say it."], ["done"])]


async def test_the_environments_own_reward_is_the_outcome_and_functions_shape_it() -> None:
    def bonus(**kwargs: Any) -> list[float]:
        return [0.25]

    played = await play(ASK, ("add", {"number": 10}), environment_factory=Scored, reward_funcs=[bonus])
    assert (played.reward.outcome, played.reward.parts) == (1.0, {"bonus": 0.25})


@pytest.mark.parametrize("given", [[None], [float("nan")]])
async def test_no_reward_that_applies_is_a_failure_and_not_a_zero(given: list[Any]) -> None:
    with pytest.raises(ScoringError, match="reward function"):
        await play(ASK, reward_funcs=lambda **kwargs: given)
    with pytest.raises(ScoringError, match=r"\[1, 2\]"):
        await play(ASK, reward_funcs=lambda **kwargs: [1, 2])


async def test_instances_are_reset_and_used_again_one_per_rollout() -> None:
    class Mine(Scored):
        made = 0

    first, second = await asyncio.gather(
        *(play(ASK, ("add", {"number": n}), ("wait", {}), environment_factory=Mine) for n in (1, 2))
    )
    assert sorted([first.reward.outcome, second.reward.outcome]) == [0.1, 0.2] and Mine.made == 2
    assert (await play(ASK, environment_factory=Mine)).reward.outcome == 0.0 and Mine.made == 2


async def test_an_instance_that_failed_or_is_still_busy_is_not_used_again() -> None:
    class Mine(Scored):
        made = 0

    (row,) = rows_of([ASK])
    env = make_env(row, environment_factory=Mine)
    await env.start()
    with pytest.raises(ConnectionResetError):  # voids the episode, as no score follows
        await next(tool for tool in env.tools if tool.name == "lose").call({})
    await env.close()
    assert (await play(ASK, environment_factory=Mine)).reward.outcome == 0.0 and Mine.made == 2
    env = make_env(row, environment_factory=Mine)
    await env.start()
    env._tool_timeout_s = 0.05
    action = Action(turn=0, text="", content="", tool_calls=(ToolCall("sleep", {}),))
    messages = (await env.step(action)).messages
    assert [message.error_kind for message in messages] == ["tool_timeout"]
    await env.score(Transcript(messages=messages, actions=(action,), stop_reason=StopReason.MAX_TURNS))
    await play(ASK, environment_factory=Mine)
    assert Mine.made == 3


async def test_a_row_chooses_one_of_several_environments_which_may_own_the_prompt() -> None:
    factories = {"a": Counter, "b": "verl_agentic.bridges.trl.example:GuessNumber"}
    game = {"environment": "b", "secret": 3, "low": 1, "high": 9}
    played = await play(game, ("guess", {"number": 3}), environment_factory=factories)
    assert played.prompt == (Message("user", " It is between 1 and 9."),) and played.reward.outcome == 1.0
    with pytest.raises(DataError, match="'c'"):
        await play({"environment": "c"}, environment_factory=factories)


async def test_without_a_reward_the_outcome_is_left_to_a_rubric() -> None:
    assert not (await play(ASK, environment_factory=Counter)).reward.is_scored


def test_the_files_of_the_docs_are_an_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "from_trl.md").read_text()
    for name in ("guess_number.py", "guess_env/__init__.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(page.split(f"# {name}\n")[1].split("```")[0])
    monkeypatch.syspath_prepend(tmp_path)
    package = load_env_package(str(tmp_path / "guess_env"))
    assert package.make_rows is not None
    rows = package.make_rows(split="test", count=2, seed=0)
    env_config = {"environment_factory": "guess_number:GuessNumber", "reward_funcs": ["guess_number:found"]}
    for make in (package.make_env, functools.partial(make_env, **env_config)):
        played = asyncio.run(play(rows[0].ground_truth, ("guess", {"number": 80}), make=make))
        assert played.prompt[-1].content.endswith("you are done. It is between 0 and 100.")
        assert (played.results[0].content, played.reward.outcome) == ("right", 1.0)
    assert len(rows) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tools": [double], "reward_funcs": lambda completion_ids, **kwargs: [0]}, "completion_ids"),
        ({"tools": [double], "reward_funcs": lambda trainer_state, **kwargs: [0]}, "trainer_state"),
        ({"tools": ["json:no_such"], "reward_funcs": lambda **kwargs: [0]}, "no_such"),
        ({"tools": [double], "reward_funcs": [], "reward_weights": [1]}, "one per function"),
    ],
)
async def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        await play(ASK, **options)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("solution", "is_found"), [(r"3\sqrt{2}", True), (r"$3\sqrt{2}$", False)])
async def test_a_solution_that_its_reward_cannot_read_is_found_by_the_validation(
    solution: str, is_found: bool, tiny_chat: tuple[Any, Any], tmp_path: Path
) -> None:
    from math_verify import parse, verify

    def accuracy(completions: Sequence[Any], solution: Sequence[str], **columns: Any) -> list[float]:
        pairs = zip(completions, solution, strict=True)
        read = functools.partial(parse, parsing_timeout=None)
        return [float(verify(read(t), read(texts[-1]["content"]), timeout_seconds=None)) for texts, t in pairs]

    def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
        return lambda messages: Message("assistant", r"\boxed{3\sqrt{2}}")

    make = functools.partial(make_env, reward_funcs=[accuracy])
    package = EnvPackage(env_id="own", folder=tmp_path, make_env=make, make_rows=None, gold=gold, demonstrator=None)
    rows = rows_of([{**ASK, "solution": solution}])
    tokenizer, codec = tiny_chat
    checks = (await validate(package, rows, codec=codec, tokenizer=tokenizer)).checks
    assert ("gold scores 1" in [check.check for check in checks if check.status == "fail"]) == is_found
