"""Judge-and-revise: what the policy judges as bad leaves its context, and right verdicts are rewarded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from verl_agentic import EnvRow, Episode, EpisodeLimits, Message, run_episode, scripted
from verl_agentic.cpu.testing import tiny_codecs
from verl_agentic.episode.attempt.compaction import DROPPED
from verl_agentic.episode.records.episode_samples import to_sample
from verl_agentic.rewards.component import load_component

from .env import make_env
from .rows import make_rows

ROW = next(row for row in make_rows(split="test", count=20, seed=0) if row.extra["hops"] == 2)
OTHER = next(row for row in make_rows(split="test", count=20, seed=5) if row.extra["hops"] == 1).extra["queries"][0]
FIRST, SECOND = ROW.extra["queries"]
LIMITS = EpisodeLimits(max_response_tokens=6_000, max_context_tokens=8_000, max_turns=9, max_retries=0)


@pytest.fixture(scope="module")
def codecs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    tokenizer, codecs = tiny_codecs(tmp_path_factory.mktemp("model"), "reseek", "chat")
    return {"tokenizer": tokenizer, **codecs}


async def play(codecs: dict[str, Any], *turns: str, protocol: str = "reseek", row: EnvRow = ROW) -> tuple[Episode, str]:
    """Plays turns; returns the episode and the context of its last turn."""
    prompts: list[Sequence[Message]] = []

    def next_text(messages: Sequence[Message]) -> str:
        prompts.append(list(messages))
        return turns[sum(m.role == "assistant" for m in messages)]

    setup = scripted(next_text, codec=codecs[protocol], tokenizer=codecs["tokenizer"], limits=LIMITS)
    make: Any = lambda row: make_env(row, judge=True)  # noqa: E731
    episode = await run_episode(row, make_env=make, setup=setup, request_id="r")
    return episode, "\n".join(message.content for message in prompts[-1])


def search(query: str) -> str:
    return f"<think>I look.</think><search>{query}</search>"


YES, NO, ANSWER = "<judge>Yes</judge>", "<judge>No</judge>", f"<answer>{ROW.ground_truth}</answer>"


async def test_a_bad_result_is_removed_and_the_good_ones_lead_to_the_answer(codecs: Any) -> None:
    episode, context = await play(codecs, search(FIRST), YES, search(OTHER), NO, search(SECOND), YES, ANSWER)
    assert episode.reward.outcome == 1.0 and len(episode.trajectories) == 2
    assert [f'Doc 1(Title: "{name}")' in context for name in (FIRST, OTHER, SECOND)] == [True, False, True]
    before, after = (codecs["tokenizer"].decode(row.token_ids) for row in episode.trajectories)
    assert f'Doc 1(Title: "{OTHER}")' in before and f'Doc 1(Title: "{OTHER}")' not in after
    assert DROPPED in after and NO in before


@pytest.mark.parametrize(
    ("verdicts", "value"),
    [((YES, NO, YES), 1.0), ((YES, YES, YES), 1 / 3), ((NO, NO, NO), -1 / 3), ((NO, YES, NO), -1.0)],
)
async def test_verdicts_are_rewarded_by_what_the_results_contain(
    codecs: Any, verdicts: tuple[str, str, str], value: float
) -> None:
    turns = [part for pair in zip(map(search, (FIRST, OTHER, SECOND)), verdicts, strict=True) for part in pair]
    episode, _ = await play(codecs, *turns, ANSWER)
    graded = load_component("reseek").make({})(to_sample(episode, ROW, id="r"))
    assert graded.value == pytest.approx(value)
    assert set(graded.turns) == {1, 3, 5}  # each on the turn of the verdict


async def test_a_verdict_on_nothing_and_an_unclear_one_are_errors_for_the_policy(codecs: Any) -> None:
    episode, context = await play(codecs, NO, search(FIRST), "<judge>maybe</judge>", YES, YES, ANSWER)
    results = [message.content for message in episode.messages if message.role == "tool"]
    assert ["Error" in text for text in results] == [True, False, True, False, True]
    assert len(episode.trajectories) == 1 and "Doc 1" in context and episode.reward.outcome == 1.0


async def test_the_tool_works_in_the_chat_protocol(codecs: Any) -> None:
    call = '<tool_call>\n{{"name": "{}", "arguments": {{"{}": "{}"}}}}\n</tool_call>'
    turns = [call.format("search", "query", OTHER), call.format("judge", "verdict", "bad"), ROW.ground_truth]
    episode, context = await play(codecs, *turns, protocol="chat")
    assert "Doc 1" not in context and DROPPED in context and episode.reward.outcome == 1.0
