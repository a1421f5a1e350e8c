"""The environment `swe` in the episode loop: text protocols, shortened conversations, and branches."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verl_agentic import EnvRow, Message, StopReason, ToolCall
from verl_agentic.cpu.testing import tiny_codecs
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.compaction import SUMMARY_REQUEST, Compaction
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.collect import scripted
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.methods.branching import run_branching_episode
from verl_agentic.methods.branching_rule import Branching

PACKAGE = load_env_package("swe")
LIMITS = EpisodeLimits(max_response_tokens=20_000, max_context_tokens=40_000, max_turns=12, max_retries=0)
FORMS = (("bash", "mini_swe", "bash", "command"), ("r2e", "r2e", "execute_bash", "cmd"))


@pytest.fixture(scope="module")
def row() -> EnvRow:
    assert PACKAGE.make_rows is not None
    return PACKAGE.make_rows(split="test", count=1, seed=0)[0]


class Looks:
    """Runs commands, then those of the solution; summarises when it is asked to."""

    def __init__(self, row: EnvRow, tool: str, argument: str, *commands: str) -> None:
        assert PACKAGE.gold is not None
        self._gold, self._played = PACKAGE.gold(row), 0
        self._looks = [ToolCall(tool, {argument: command}) for command in commands]

    def __call__(self, messages: Sequence[Message]) -> Message | str:
        if messages[-1].content == SUMMARY_REQUEST:
            return "I looked at numbers."
        self._played += 1
        if self._played <= len(self._looks):
            return Message("assistant", "I look.", tool_calls=(self._looks[self._played - 1],))
        return self._gold([messages[0], *[Message("assistant", "")] * (self._played - len(self._looks) - 1)])


def setup_of(folder: Path, script: Any, protocol: str, *, limits: EpisodeLimits = LIMITS) -> EpisodeSetup:
    tokenizer, codecs = tiny_codecs(folder, protocol)
    tokenizer.model_max_length = 10**9
    return scripted(script, codec=codecs[protocol], tokenizer=tokenizer, limits=limits)


def played(row: EnvRow, scaffold: str, setup: EpisodeSetup) -> Episode:
    make_env = functools.partial(PACKAGE.make_env, scaffold=scaffold)
    return asyncio.run(run_episode(row, make_env=make_env, setup=setup, request_id="r"))


def trained(episode: Episode, tokenizer: Any) -> list[str]:
    """Returns the texts of the tokens with mask 1, by turn."""
    (trajectory,) = episode.trajectories
    texts: dict[int, list[int]] = {}
    for token, mask, turn in zip(trajectory.response_ids, trajectory.response_mask, trajectory.turn_ids, strict=True):
        if mask:
            texts.setdefault(turn, []).append(token)
    return [tokenizer.decode(ids) for _, ids in sorted(texts.items())]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("scaffold", "protocol", "tool", "argument"), FORMS)
def test_the_solution_scores_in_a_text_form_and_exactly_its_turns_are_trained(
    tmp_path: Path, row: EnvRow, scaffold: str, protocol: str, tool: str, argument: str
) -> None:
    script = Looks(row, tool, argument, "ls quill", "git status --short")
    setup = setup_of(tmp_path, script, protocol)
    episode = played(row, scaffold, setup)
    assert (episode.reward.outcome, episode.stop_reason) == (1.0, StopReason.ENV_DONE), episode.error
    texts = trained(episode, setup.tokenizer)
    assert texts == [action.text for action in episode.actions] and len(texts) == 4
    opening = "```bash\n" if protocol == "mini_swe" else "<function="
    assert all(opening in text and text.endswith("<|im_end|>") for text in texts)
    shown = setup.tokenizer.decode(episode.trajectories[0].response_ids)
    assert "texts.py" in shown and not any("texts.py" in text for text in texts[:2])


def test_turns_without_a_function_end_the_episode(tmp_path: Path, row: EnvRow) -> None:
    setup = setup_of(tmp_path, lambda messages: "I think that it is fine.", "r2e")
    episode = played(row, "r2e", setup)
    assert (episode.stop_reason, episode.reward.outcome) == (StopReason.NO_ACTION, 0.0)
    assert len(episode.actions) == 3
    assert sum("no function call was found" in message.content for message in episode.messages) == 2


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize("strategy", ["drop_observations", "summary"])
def test_a_shortened_conversation_keeps_the_repository(tmp_path: Path, row: EnvRow, strategy: Any) -> None:
    script = Looks(row, "bash", "command", "echo x > seen.txt; seq 150", *["seq 200"] * 3)
    setup = setup_of(tmp_path, script, "chat")
    longest = len(setup.tokenizer.encode("\n".join(map(str, range(200)))))
    limits = replace(LIMITS, max_response_tokens=5 * longest, max_context_tokens=5 * longest + 4_000)
    compaction = Compaction(strategy=strategy, keep_last=1, min_room_tokens=2 * longest, max_summary_tokens=64)
    episode = played(row, "bash", replace(setup, limits=limits, compaction=compaction))
    assert len(episode.trajectories) > 1, "the budget holds no episode without compaction"
    assert (episode.reward.outcome, episode.stop_reason) == (1.0, StopReason.ENV_DONE), episode.error
    assert "seen.txt" in {*episode.reward.details["accepted"], *episode.reward.details["refused"]}


@pytest.mark.slow
def test_a_branch_makes_the_edits_of_its_source_in_a_sandbox_of_its_own(tmp_path: Path, row: EnvRow) -> None:
    look = ToolCall("bash", {"command": "ls quill; echo x > made.txt"})
    assert PACKAGE.gold is not None
    gold = PACKAGE.gold(row)

    def script(messages: Sequence[Message]) -> Message:
        said = [message for message in messages if message.role == "assistant"]
        return gold([messages[0], *said[1:]]) if said else Message("assistant", "", tool_calls=(look,))

    async def run() -> list[tuple[Episode, list[list[int]]]]:
        branching = Branching(initial=1, probability=1.0, entropy_weight=0.0)
        make_env = functools.partial(PACKAGE.make_env, scaffold="bash")
        plays = (
            run_branching_episode(row, make_env=make_env, setup=setup_of(tmp_path, script, "chat"),
                                  request_id=name, branching=branching, group="g", vocab_size=1_000)
            for name in "ab"
        )  # fmt: skip
        return await asyncio.gather(*plays)

    (source, _), (branch, (shared,)) = asyncio.run(run())
    assert [one.reward.outcome for one in (source, branch)] == [1.0, 1.0]
    assert [one.numbers()["branched"] for one in (source, branch)] == [0.0, 1.0]
    assert branch.numbers()["branch_refused"] == 0.0
    count = sum(place == 0 for place in shared)
    assert 0 < count < len(shared)
    assert source.trajectories[0].response_ids[:count] == branch.trajectories[0].response_ids[:count]
    for one in (source, branch):
        assert "made.txt" in {*one.reward.details["accepted"], *one.reward.details["refused"]}
