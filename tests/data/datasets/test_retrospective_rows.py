"""Failed episodes that a model rewrites: only solved ones become rows, which are marked and never for RL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from fakes import END, ROW, CharCodec, CharTokenizer, FakeEnv, decode, encode, episode_setup

from verl_agentic.base.errors import DataError
from verl_agentic.base.types import Message
from verl_agentic.data.datasets.retrospective_rows import write_retrospective_rows
from verl_agentic.episode.env_package import EnvPackage
from verl_agentic.episode.policies.policy import ScriptedPolicy
from verl_agentic.episode.records.episode_samples import to_sample
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.graders.models.chat_model import ChatModel
from verl_agentic.graders.models.client import Reply
from verl_agentic.log.files.record_files import read_json_lines
from verl_agentic.log.files.rows import row_of_columns
from verl_agentic.rewards.sample import Sample

PACKAGE = EnvPackage(
    env_id="fake", folder=Path("fake"), make_env=lambda row: FakeEnv(row), make_rows=None, gold=None, demonstrator=None
)


class Tokenizer(CharTokenizer):
    eos_token_id = END


async def sample_of(answer: str) -> Sample:
    policy = ScriptedPolicy(lambda messages: answer, encode=encode, end_ids=[END])
    episode = await run_episode(ROW, make_env=FakeEnv, setup=episode_setup(policy), request_id="r")
    return to_sample(episode, ROW, id=answer)


async def rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *replies: str | None) -> tuple[int, list[str]]:
    asked: list[str] = []

    async def ask(self: ChatModel, messages: Sequence[Message]) -> Reply:
        asked.append(messages[0].content)
        return Reply(text=replies[len(asked) - 1])

    monkeypatch.setattr(ChatModel, "ask", ask)
    samples = [await sample_of("42"), *[await sample_of("41")] * len(replies)]
    count = await write_retrospective_rows(
        samples,
        tmp_path / "rows.jsonl",
        package=PACKAGE,
        codec=CharCodec(),
        tokenizer=Tokenizer(),
        model=ChatModel(url="http://h/v1", model="m"),
    )
    return count, asked


async def test_a_rewritten_episode_that_is_solved_becomes_a_marked_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, asked = await rewritten(tmp_path, monkeypatch, "So: <turn>call:x</turn> then <turn> 42 </turn>")
    assert count == 1 and len(asked) == 1  # the solved episode is left alone
    assert "agent: 41" in asked[0] and ROW.prompt[-1].content in asked[0]
    ((_, row),) = read_json_lines(tmp_path / "rows.jsonl")
    assert row["synthetic"] is True
    trained = [token for token, mask in zip(row["input_ids"], row["loss_mask"], strict=True) if mask]
    assert decode([token for token in trained if token != END]) == "call:x42"


@pytest.mark.parametrize("reply", ["<turn>41</turn>", "<turn>call:x</turn>", "42", "", None])
async def test_a_rewriting_that_does_not_solve_the_task_gives_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: str | None
) -> None:
    assert (await rewritten(tmp_path, monkeypatch, reply))[0] == 0


async def test_a_synthetic_row_is_no_row_of_rl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await rewritten(tmp_path, monkeypatch, "<turn>42</turn>")
    row = json.loads((tmp_path / "rows.jsonl").read_text())
    with pytest.raises(DataError, match="'prompt'"):
        row_of_columns(row, "a row")
