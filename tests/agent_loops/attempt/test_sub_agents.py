"""Sub-agents: a part of the task is played by a fresh copy of the policy; its turns are rows of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fakes import END, LIMITS, ROW, decode, encode, episode_setup
from sub_agents import Codec, Env, next_text, play, script

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.tools.delegate import DelegateTool
from verl_agentic.base.types import Message, StopReason
from verl_agentic.episode.policies.policy import Completion, ScriptedPolicy
from verl_agentic.episode.run_episode import run_episode


async def test_a_sub_agent_sees_its_task_only_and_its_row_is_trained_with_that_context() -> None:
    episode = await play(script())
    assert episode.reward.outcome == 1.0 and episode.stop_reason is StopReason.ANSWERED
    first, second, own = episode.trajectories
    rows = {(decode(row.prompt_ids), decode(row.response_ids)) for row in (first, second)}
    assert rows == {("<user>count 2<assistant>", "2$"), ("<user>count 3<assistant>", "3$")}
    assert all(row.response_mask == [1, 1] for row in (first, second))
    assert decode(own.response_ids).endswith("sum 5$")
    assert episode.numbers()["sub_agents"] == 2.0 and episode.numbers()["rows"] == 3.0
    # Its own tools; those of its sub-agents are not offered to it.
    assert episode.numbers()["tools_offered"] == 1.0


async def test_each_row_carries_the_role_of_its_agent() -> None:
    def next_text(messages: Sequence[Message]) -> str:
        first, last = messages[0], messages[-1]
        if first.content.startswith("count"):
            return first.content.split()[-1]
        return "call:delegate:count 2;call:check:count 3" if last.role == "user" else "sum 5"

    policy = ScriptedPolicy(next_text, encode=encode, end_ids=[END])
    tools = [DelegateTool(agent="solver"), DelegateTool(name="check", agent="reviewer")]
    setup = replace(episode_setup(policy, replace(LIMITS, max_retries=0)), codec=Codec())  # type: ignore[arg-type]
    episode = await run_episode(ROW, make_env=lambda row: Env(row, tools), setup=setup, request_id="r")
    roles = {decode(row.response_ids): row.agent for row in episode.trajectories[:2]}
    assert roles == {"2$": "solver", "3$": "reviewer"} and episode.trajectories[2].agent == ""
    assert [row.agent for row in (await play(script())).trajectories] == ["sub_agent", "sub_agent", ""]
    with pytest.raises(ConfigError, match="agent"):
        DelegateTool(agent="agent")


async def test_the_outcome_lies_in_the_agents_own_row() -> None:
    rewards = (await play(script())).token_rewards()
    assert [sum(row) for row in rewards] == [0.0, 0.0, 1.0]


async def test_what_sub_agents_sample_counts_against_the_budget_of_the_episode() -> None:
    # The first turn has 44 tokens and the sub-agents' two each: the budget of 47 leaves the second of them 1.
    episode = await play(script(), max_episode_tokens=47)
    assert episode.stop_reason is StopReason.MAX_TOKENS
    assert sum(row.num_model_tokens for row in episode.trajectories) <= 48


async def test_a_task_that_no_sub_agent_can_hold_is_the_policys_mistake_and_no_failure() -> None:
    def next_text(messages: Sequence[Message]) -> str:
        return "call:delegate:" + "x" * 200 if messages[-1].role == "user" else "I give up"

    limits = replace(LIMITS, max_response_tokens=700, max_context_tokens=700, max_retries=0)
    policy = ScriptedPolicy(next_text, encode=encode, end_ids=[END])
    episode = await run_episode(
        ROW,
        make_env=lambda row: Env(row, [DelegateTool(instructions="i" * 500)]),  # too long with the task
        setup=replace(episode_setup(policy, limits), codec=Codec()),  # type: ignore[arg-type]
        request_id="r",
    )
    assert episode.stop_reason is StopReason.ANSWERED, episode.error
    (told,) = (m.content for m in episode.messages if m.role == "tool")
    assert told.startswith("Error: nobody can take this task: the prompt has 725 tokens")
    assert episode.numbers()["call_error/wrong_arguments"] == 1.0 and len(episode.trajectories) == 1


@pytest.mark.parametrize("hang", [True, False], ids=["hangs", "fails"])
async def test_an_episode_whose_sub_agent_cannot_be_played_is_void_and_its_sibling_is_ended(hang: bool) -> None:
    ended = []

    class Broken(ScriptedPolicy):
        async def generate(self, prompt_ids: Sequence[int], **options: object) -> Completion:
            try:
                if "count 3" in decode(prompt_ids)[:16]:
                    await asyncio.sleep(0.05)
                    if not hang:
                        raise ConnectionError("server gone")
                    await asyncio.sleep(60)
                if "count 2" in decode(prompt_ids)[:16]:
                    await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.append(decode(prompt_ids))
                raise
            return await super().generate(prompt_ids, **options)  # type: ignore[arg-type]

    episode = await play(Broken(next_text, encode=encode, end_ids=[END]), turn_timeout_s=0.2)
    assert episode.is_void and not any(any(row.response_mask) for row in episode.trajectories)
    assert "<user>count 2<assistant>" in ended
    assert episode.error_kind in ("env", "policy", None)


@pytest.mark.parametrize(
    ("says", "limits", "reason"),
    [
        ("call:nothing", {}, "it used all of its turns"),
        ("x" * 40, {"max_turn_tokens": 30}, "it used all of its tokens"),
        ("", {}, "it said nothing"),
    ],
)
async def test_a_sub_agent_without_an_answer_gives_its_parent_an_error_that_says_why(
    says: str, limits: dict[str, Any], reason: str
) -> None:
    def next_text(messages: Sequence[Message]) -> str:
        if messages[0].content == "work":
            return says
        return "call:delegate:work" if messages[-1].role == "user" else "sum 5"

    policy = ScriptedPolicy(next_text, encode=encode, end_ids=[END])
    episode = await play(policy, max_response_tokens=900, max_context_tokens=1_000, **limits)
    (told,) = (m for m in episode.messages if m.role == "tool")
    assert told.content == f"Error: the helper gave no answer: {reason}; ask for less, or ask again"
    assert (told.is_error, told.error_kind) == (True, "no_answer")
    assert episode.numbers()["call_error/no_answer"] == 1.0 and episode.reward.outcome == 1.0
    assert len(episode.trajectories) == 2, "what the sub-agent did is trained"


async def test_a_runner_that_returns_nothing_is_an_error_for_the_parent() -> None:
    async def run(prompt: object, **options: object) -> str:
        return " \n"

    tool = DelegateTool()
    tool.use(run)
    result = await tool.call({"task": "work"})
    assert (result.is_error, result.error_kind) == (True, "no_answer")


def test_a_sub_agent_that_could_delegate_is_refused_before_anything_is_played() -> None:
    with pytest.raises(ConfigError, match="'delegate'"):
        DelegateTool([DelegateTool()])
    with pytest.raises(ConfigError, match="max_turns"):
        DelegateTool(max_turns=0)
    with pytest.raises(ConfigError, match="max_calls"):
        DelegateTool(max_calls=0)


async def test_a_nested_delegate_ends_the_run_instead_of_voiding_episodes() -> None:
    with pytest.raises(ConfigError, match="cannot delegate"):
        await run_episode(
            ROW,
            make_env=lambda row: Env(row, [DelegateTool([DelegateTool()])]),
            setup=episode_setup(script()),
            request_id="r",
        )


async def test_an_untrained_sub_agent_leaves_no_row_but_its_tokens_count() -> None:
    class Checking(Env):
        def use_sub_agents(self, run: Any) -> None:
            super().use_sub_agents(lambda prompt, **options: run(prompt, **options, is_trained=False))  # type: ignore[arg-type]

    chosen = replace(episode_setup(script(), replace(LIMITS, max_retries=0)), codec=Codec())
    episode = await run_episode(ROW, make_env=lambda r: Checking(r, [DelegateTool()]), setup=chosen, request_id="r")
    (own,) = episode.trajectories
    assert (episode.num_side_rows, episode.reward.outcome, episode.numbers()["sub_agents"]) == (0, 1.0, 2.0)
    assert decode(own.response_ids).endswith("sum 5$")
