"""Best of K by Q: the most valued of several turns is played, and a Q function that fails is no turn of the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fakes import END, ROW, CharTokenizer, FakeEnv, decode, encode, episode_setup

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Message
from verl_agentic.episode.policies.policy import Completion
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.evaluate.policies.best_of import BestOfPolicy, QFunction, TokenValue


class Varied:
    """Samples `texts` in turn."""

    def __init__(self, *texts: str) -> None:
        self.texts, self.requests = texts, list[str]()

    async def generate(
        self, prompt_ids: Sequence[int], *, messages: Sequence[Message], max_tokens: int, request_id: str
    ) -> Completion:
        text = self.texts[len(self.requests) % len(self.texts)]
        self.requests.append(request_id)
        if text in ("context_full", "content_filter"):
            return Completion(token_ids=(), log_probs=None, finish_reason=text)
        return Completion(token_ids=[*encode(text), END], log_probs=None, finish_reason="stop")


async def play(q: QFunction | TokenValue, *texts: str, count: int = 3) -> tuple[Episode, Varied]:
    policy = Varied(*texts)
    best = BestOfPolicy(policy=policy, tokenizer=CharTokenizer(), value=q, count=count)
    episode = await run_episode(ROW, make_env=FakeEnv, setup=episode_setup(best), request_id="r")
    return episode, policy


async def test_the_labelled_action_of_k_is_executed() -> None:
    episode, policy = await play(lambda messages, text: float("42" in text), "41", "42", "43")
    assert [action.content for action in episode.actions] == ["42"] and episode.reward.outcome == 1.0
    assert len(policy.requests) == 3 and len(set(policy.requests)) == 3


async def test_a_value_may_depend_on_the_conversation_and_be_awaited() -> None:
    async def q(messages: Sequence[Message], text: str) -> float:
        has_called = any(message.role == "tool" for message in messages)
        return float(text.startswith("call") != has_called)

    episode, _ = await play(q, "42", "call:x", count=2)
    assert [bool(action.tool_calls) for action in episode.actions] == [True, False]


async def test_a_model_may_value_the_tokens_of_the_turn() -> None:
    class Tokens:
        async def of(self, prompt_ids: Sequence[int], response_ids: Sequence[int], mask: Sequence[int]) -> float:
            asked.append((list(prompt_ids), list(mask)))
            return float(response_ids[1] == encode("43")[1])

    asked: list[Any] = []
    episode, _ = await play(Tokens(), "41", "42", "43")
    assert [action.content for action in episode.actions] == ["43"]
    assert asked == [(episode.trajectories[0].prompt_ids, [1, 1, 1])] * 3


async def test_the_first_of_equal_turns_is_taken() -> None:
    episode, _ = await play(lambda messages, text: 0.0, "42", "41", count=2)
    assert [action.content for action in episode.actions] == ["42"]


async def test_turns_that_a_server_refuses_are_not_chosen_unless_it_refuses_all() -> None:
    episode, _ = await play(lambda messages, text: -float(len(text)), "context_full", "42", "content_filter")
    assert [action.content for action in episode.actions] == ["42"]
    refused, _ = await play(lambda messages, text: 0.0, "content_filter")
    assert (refused.stop_reason.value, refused.is_void) == ("content_filter", False)


@pytest.mark.parametrize("value", [float("nan"), "high", None])
async def test_a_q_function_that_fails_voids_the_episode(value: Any) -> None:
    episode, _ = await play(lambda messages, text: value, "42")
    assert episode.is_void and "the Q function" in str(episode.error)


def test_one_turn_is_nothing_to_choose_from() -> None:
    with pytest.raises(ConfigError, match="at least 2 turns"):
        BestOfPolicy(policy=Varied("x"), tokenizer=CharTokenizer(), value=lambda messages, text: 0.0, count=1)


async def test_attempts_at_a_task_take_different_turns_and_other_tasks_do_not_matter() -> None:
    policy = Varied("go north", "go south")
    best = BestOfPolicy(policy=policy, tokenizer=CharTokenizer(), value=None, count=2, diversity=1.0)

    async def turn_of(*messages: Message) -> str:
        found = await best.generate([1], messages=messages, max_tokens=9, request_id="r")
        return decode(list(found.token_ids)).removesuffix("$")

    task, other = Message("user", "where to?"), Message("user", "and here?")
    assert [await turn_of(task), await turn_of(task), await turn_of(other)] == ["go north", "go south", "go north"]
    said = Message("assistant", "go north")
    assert await turn_of(task, said, Message("tool", "a wall")) == "go north"  # another place of the task


async def test_without_a_q_function_the_likelier_turn_is_taken_unless_it_is_too_similar() -> None:
    class Likely(Varied):
        async def generate(self, *args: Any, **kwargs: Any) -> Completion:
            found = await super().generate(*args, **kwargs)
            log_prob = -0.1 if "north" in decode(list(found.token_ids)) else -0.5
            return replace(found, log_probs=[log_prob] * len(found.token_ids))

    for diversity, second in ((0.1, "go north"), (5.0, "go south")):
        policy = Likely("go south", "go north")
        best = BestOfPolicy(policy=policy, tokenizer=CharTokenizer(), value=None, count=2, diversity=diversity)
        found = [await best.generate([1], messages=[], max_tokens=9, request_id="r") for _ in range(2)]
        assert [decode(list(one.token_ids)).removesuffix("$") for one in found] == ["go north", second]
