"""An outcome needs a complete answer outside reasoning: in every bundled environment and the skeleton, and every
protocol that each of them can be played in."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.paths import envs_dir
from verl_agentic.base.text.reasoning import strip_thoughts
from verl_agentic.base.types import Action, StopReason, ToolCall
from verl_agentic.cli import main
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.collect import scripted
from verl_agentic.episode.env_package import EnvPackage, load_env_package
from verl_agentic.episode.protocols.load_protocol import load_protocol
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.verl.rollout.model_codec import load_codec

PLAYED = (
    ("python_math", "chat"),
    ("python_math", "retool"),
    ("everyday", "chat"),
    ("everyday", "python_tags"),
    ("search_qa", "chat"),
    ("search_qa", "search_r1"),
    ("search_qa", "research"),
    ("code_tests", "chat"),
    ("function_calling", "chat"),
    ("function_calling", "toolrl"),
    ("repo_search", "chat"),
    ("swe_edit", "chat"),
    ("browse", "chat"),
    ("model_router", "chat"),
    ("self_play", "chat"),
    ("skeleton", "chat"),
)
BROKEN_CALLS = (
    *('<tool_call>\n{"name": "x", "arguments": }\n</tool_call>', '<tool_call>{"name": "x", "argu', "<tool_call>"),
    *("<tool_call></tool_call>", '<tool_call>["x"]</tool_call>'),
)


@dataclass(frozen=True, repr=False)
class Game:
    """A row of an environment, the turns that solve it, and a codec."""

    package: EnvPackage
    row: EnvRow
    codec: Any
    tokenizer: Any
    protocol: str

    def solve(self) -> list[str]:
        """Returns the turns of the solution without its thoughts; the last one is the answer."""
        assert self.package.gold is not None
        episode = self.play(self.package.gold(self.row))
        assert (episode.reward.outcome, episode.stop_reason) == (1.0, StopReason.ANSWERED), episode.error
        turns = [action.text.removesuffix(self.tokenizer.eos_token) for action in episode.actions]
        return [re.sub(r"^<think>.*?</think>\n", "", turn) for turn in turns]

    def play(self, script: Any, **limits: Any) -> Episode:
        budgets: dict[str, Any] = {"max_response_tokens": 6_000, "max_context_tokens": 12_000, "max_retries": 0}
        setup = scripted(
            script, codec=self.codec, tokenizer=self.tokenizer, limits=EpisodeLimits(**{**budgets, **limits})
        )
        return asyncio.run(run_episode(self.row, make_env=self.package.make_env, setup=setup, request_id="r"))

    def play_turns(self, turns: Sequence[str], **limits: Any) -> Episode:
        return self.play(
            lambda messages: turns[min(sum(m.role == "assistant" for m in messages), len(turns) - 1)],
            max_turns=len(turns),
            **limits,
        )


@pytest.fixture(scope="module")
def games(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], tuple[Game, list[str]]]:
    folder = tmp_path_factory.mktemp("envs")
    assert main(["env", "new", "skeleton", "--dir", str(folder)]) == 0
    made = {}
    for env_id, protocol in PLAYED:
        package = load_env_package(str(folder / "skeleton") if env_id == "skeleton" else env_id)
        assert package.make_rows is not None
        rows = package.make_rows(split="train", count=40 if env_id == "function_calling" else 8, seed=0)
        rows = [r for r in rows if r.extra.get("role") != "propose"]
        row = next(r for r in rows if env_id != "function_calling" or r.extra["case"] == "missing_parameter")
        tokenizer, codec = load_codec(str(tiny_model), protocol=protocol)
        tokenizer.model_max_length = 10**9
        game = Game(package, row, codec, tokenizer, protocol)
        made[env_id, protocol] = game, game.solve()
    return made


def spoilt(answer: str, protocol: str, filler: str, broken: str) -> Iterator[str]:
    """Yields turns that hold the right answer and give none that is complete and outside reasoning.

    Args:
        answer: the right answer, as the protocol writes it.
        protocol: its name.
        filler: other words.
        broken: a call that cannot be carried out.
    """
    answer = strip_thoughts(answer)
    yield f"<think>{filler}{answer}</think>"
    yield f"<think>{filler}{answer}"
    yield f"<think>{filler}</think><think>{answer}</think>"
    yield f"<think>{filler}<think>{answer}"
    form = load_protocol(protocol).answer
    if form is None:
        yield f"{filler}\n{answer}</think>"
        yield f"<think>{filler}{answer}</think>\n{broken}"
        yield f"{answer}\n{broken}"
        yield f"{broken.removesuffix('<tool_call>')}\n{answer}\n{broken}"
        return
    opening, closing = form.tags
    yield answer.replace(closing, "")
    yield f"{filler}{answer.replace(closing, '')}"
    yield answer.replace(opening, f"{opening}<think>").replace(closing, f"</think>{closing}")
    yield answer.replace(opening, f"{opening}<think>")


@pytest.mark.nightly
@given(
    game=st.sampled_from(PLAYED),
    filler=st.text("ab 7.\n", max_size=12),
    broken=st.sampled_from(BROKEN_CALLS),
)
def test_a_right_answer_in_reasoning_unclosed_or_beside_a_broken_call_earns_nothing(
    games: Any, game: tuple[str, str], filler: str, broken: str
) -> None:
    played, turns = games[game]
    for text in spoilt(turns[-1], game[1], filler, broken):
        episode = played.play_turns([*turns[:-1], text])
        assert not episode.is_void and episode.reward.outcome == 0.0, (text, episode.error)


@pytest.mark.slow
@pytest.mark.sample(1, slow=12)
@pytest.mark.parametrize("game", PLAYED, ids="-".join)
@pytest.mark.parametrize("before", ["", "<think>first</think>\n", "<think>one</think> <think>two</think>\n"])
def test_a_complete_answer_outside_reasoning_is_paid(games: Any, game: tuple[str, str], before: str) -> None:
    played, turns = games[game]
    assert played.play_turns([*turns[:-1], before + turns[-1]]).reward.outcome == 1.0


@pytest.mark.sample(1)
@pytest.mark.parametrize("game", PLAYED, ids="-".join)
def test_a_turn_that_a_budget_cuts_is_no_answer(games: Any, game: tuple[str, str]) -> None:
    played, turns = games[game]
    if load_protocol(game[1]).stop:
        return  # a closing tag ends the turn, so nothing complete can be cut
    episode = played.play_turns(
        [*turns[:-1], turns[-1] + "\n and more" * 200], max_turn_tokens=len(played.tokenizer.encode(turns[-1])) + 20
    )
    assert episode.stop_reason is StopReason.MAX_TOKENS and episode.reward.outcome == 0.0


def test_every_bundled_environment_that_is_answered_in_words_is_played_here() -> None:
    own = {path.parent.name for path in envs_dir().glob("*/__init__.py")}  # bridges have tests of their own
    by_state = {
        "text_game",
        "swe",
        "swe_tiny",
        "shop",
        "household",
        "support_desk",
        "security",
    }  # the words of their last turn do not matter
    assert {env_id for env_id, _ in PLAYED} == {*own, "skeleton"} - by_state


def final(content: str, *calls: ToolCall, answer: str | None = None) -> str:
    action = Action(turn=0, text=content, content=content, tool_calls=calls, answer=answer)
    return Transcript(messages=(), actions=(action,), stop_reason=StopReason.ANSWERED).final_answer


@pytest.mark.parametrize(
    "opening", ["<think>", "<seed:think>", "<thinking>", "<reasoning>", "<thought>", "<THINK>", "[THINK]"]
)
def test_the_final_answer_leaves_out_reasoning_and_is_empty_beside_a_call(opening: str) -> None:
    closing = f"{opening[0]}/{opening[1:]}"
    assert final(f"{opening}41{closing} 42") == "42"
    assert final(f"41{closing}42") == "42"
    assert final(f"42 {opening}41") == "42"
    assert final(f"{opening}42") == final(f"42{closing}") == final(f"{opening}42{closing}") == ""
    assert final("", answer=f"{opening}42{closing}") == "" and final("41", answer="42") == "42"
    assert final("42", ToolCall("x", {})) == final("42", ToolCall("", {}, error="no JSON", error_kind="empty")) == ""
    assert final(" 42\n") == " 42\n"
