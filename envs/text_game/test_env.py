"""text_game validated in the loop, with tokens: the solution scores 1 in every protocol, everything else 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from verl_agentic import EnvRow, Episode, EpisodeLimits, Message, StopReason, read_rows, run_episode, scripted
from verl_agentic.cpu.testing import tiny_codecs

from .env import make_env
from .gold import gold
from .rows import make_rows

EXAMPLES = read_rows(Path(__file__).with_name("example.jsonl"))
LIMITS = EpisodeLimits(max_response_tokens=20_000, max_context_tokens=30_000, max_turns=16)
PROTOCOLS = ("chat", "ragen", "json_action")


@pytest.fixture(scope="module")
def codecs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    tokenizer, codecs = tiny_codecs(tmp_path_factory.mktemp("model"), *PROTOCOLS)
    return {"tokenizer": tokenizer, **codecs}


async def play(
    codecs: dict[str, Any], row: EnvRow, next_text: Any, *, protocol: str = "chat", **config: Any
) -> Episode:
    return await run_episode(
        row,
        make_env=lambda row: make_env(row, **config),
        setup=scripted(next_text, codec=codecs[protocol], tokenizer=codecs["tokenizer"], limits=LIMITS),
        request_id="r",
    )


def solved(codecs: dict[str, Any], row: EnvRow, protocol: str = "chat") -> Any:
    next_message = gold(row)
    return lambda messages: codecs[protocol].render_action(next_message(messages))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("row", [*EXAMPLES, *make_rows(split="test", count=4, seed=3, actions_per_turn=3)])
async def test_the_solution_scores_1_in_every_protocol(codecs: dict[str, Any], row: EnvRow, protocol: str) -> None:
    episode = await play(codecs, row, solved(codecs, row, protocol), protocol=protocol)
    assert (episode.stop_reason, episode.reward.outcome) == (StopReason.ENV_DONE, 1.0)
    assert len(episode.actions) == -(-row.extra["optimal_actions"] // row.extra["actions_per_turn"])
    assert episode.numbers()["tool_errors"] == 0.0


@pytest.mark.parametrize(
    ("protocol", "text"),
    [
        ("chat", '<tool_call>\n{"name": "act", "arguments": {"action": "down"}}\n</tool_call>'),
        ("ragen", "<think>down</think><answer> down </answer>"),
        ("json_action", '{"action": "down"}'),
    ],
)
async def test_an_action_that_the_schema_does_not_name_is_answered_with_those_that_it_names(
    codecs: dict[str, Any], protocol: str, text: str
) -> None:
    episode = await play(codecs, EXAMPLES[0], lambda messages: text, protocol=protocol)
    assert episode.info["invalid_actions"] == episode.info["call_error/wrong_arguments"] == LIMITS.max_turns
    assert '"Up", "Right", "Down", "Left"' in episode.messages[2].content


@pytest.mark.sample(1)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_silence_and_echo_score_0(codecs: dict[str, Any], protocol: str) -> None:
    for next_text in (lambda messages: "", lambda messages: messages[-1].content, lambda messages: "I have won."):
        for row in EXAMPLES:
            episode = await play(codecs, row, next_text, protocol=protocol)
            assert not episode.is_void and episode.reward.outcome == 0.0


async def test_turn_rewards_stand_on_the_last_token_of_their_turns(codecs: dict[str, Any]) -> None:
    row = EXAMPLES[0]
    episode = await play(codecs, row, solved(codecs, row), dense_reward=0.5)
    share = 0.5 / row.extra["optimal_actions"]
    assert episode.turn_rewards == pytest.approx(dict.fromkeys(range(row.extra["optimal_actions"]), share))
    (rewards,), (trajectory,) = episode.token_rewards(), episode.trajectories
    paid = [index for index, reward in enumerate(rewards) if reward]
    assert len(paid) == row.extra["optimal_actions"] and sum(rewards) == pytest.approx(1.5)
    assert all(trajectory.response_mask[index] == 1 for index in paid)
    assert all(index + 1 == len(rewards) or trajectory.response_mask[index + 1] == 0 for index in paid)


async def test_a_policy_that_never_acts_rightly_plays_on_until_a_budget_ends_it(codecs: dict[str, Any]) -> None:
    text = '<tool_call>\n{"name": "act", "arguments": {"action": "fly"}}\n</tool_call>'
    for row in EXAMPLES:
        episode = await play(codecs, row, lambda messages: text)
        assert (episode.stop_reason, episode.reward.outcome) == (StopReason.MAX_TURNS, 0.0)
        assert episode.numbers()["tool_errors"] == LIMITS.max_turns


async def test_a_policy_that_stopped_acting_is_told_and_may_go_on(codecs: dict[str, Any]) -> None:
    row = EXAMPLES[0]
    next_text = solved(codecs, row)

    def hesitates(messages: Any) -> str:
        is_first = not any(message.role == "assistant" for message in messages)
        return "Let me think." if is_first else next_text(messages)

    assert (await play(codecs, row, hesitates)).stop_reason == StopReason.NO_ACTION
    episode = await play(codecs, row, hesitates, no_action_turns=2)
    assert (episode.stop_reason, episode.reward.outcome) == (StopReason.ENV_DONE, 1.0)
    assert Message("user", "An action is needed. Possible actions: Up, Right, Down, Left") in episode.messages


async def test_the_compact_style_takes_few_tokens(codecs: dict[str, Any]) -> None:
    tokens = {}
    for style in ("full", "compact"):
        (row,) = make_rows(split="train", count=1, seed=0, game="frozen_lake", style=style)
        episode = await play(codecs, row, solved(codecs, row))
        (trajectory,) = episode.trajectories
        tokens[style] = len(trajectory.prompt_ids) + len(trajectory.response_ids)
    assert tokens["compact"] < 0.7 * tokens["full"]
