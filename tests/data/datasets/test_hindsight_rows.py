"""Stored episodes as supervised rows, failed ones under the task that they did."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import END, CharCodec, CharTokenizer, FakeEnv, decode, encode, episode_setup
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import DataError
from verl_agentic.base.types import Action, Message, Observation, Reward, StopReason, ToolCall
from verl_agentic.data.datasets.hindsight_rows import HindsightRows, write_hindsight_rows
from verl_agentic.episode.env_package import EnvPackage, load_env_package
from verl_agentic.episode.policies.policy import ScriptedPolicy
from verl_agentic.episode.records.episode_samples import to_sample
from verl_agentic.episode.run_episode import run_episode
from verl_agentic.evaluate.policies.chat_messages import plain_text
from verl_agentic.graders.stored_samples import StoredSample
from verl_agentic.log.files.record_files import read_json_lines
from verl_agentic.rewards.sample import Sample


class Tokenizer(CharTokenizer):
    eos_token_id = END


class Codec(CharCodec):
    """Prints the tools into the prompt."""

    async def encode_prompt(self, messages: Sequence[Message], tools: Sequence[Any]) -> list[int]:
        return encode(f"[{','.join(tool['name'] for tool in tools)}]") + await super().encode_prompt(messages, tools)


class Open:
    name = "open"
    schema = {"name": "open"}  # noqa: RUF012


class Shop(FakeEnv):
    """A shop whose pages are opened; the task names the right one."""

    def __init__(self, row: EnvRow) -> None:
        super().__init__(row, tools=(Open(),))
        self.page = "home"

    async def step(self, action: Any) -> Observation:
        if not action.tool_calls:
            return Observation(stop=StopReason.ANSWERED)
        self.page = action.tool_calls[0].name
        return Observation((Message("tool", f"page of {self.page}"), Message("user", "go on")), reward=0.25)

    async def score(self, transcript: Transcript) -> Reward:
        return Reward(float(self.page == self.row.ground_truth), {"speed": 0.1})


def describe(sample: Sample) -> str | None:
    seen = [text for turn in sample.turns for text in turn.observations if text.startswith("page of ")]
    return f"find {seen[-1].removeprefix('page of ')}" if seen else None


PACKAGE = EnvPackage(
    env_id="shop",
    folder=Path("shop"),
    make_env=lambda row: Shop(row),
    make_rows=None,
    gold=None,
    demonstrator=None,
    describe=describe,
)


async def play(want: str, *turns: str) -> Sample:
    row = EnvRow(prompt=(Message("system", "shop"), Message("user", f"find {want}")), ground_truth=want)
    policy = ScriptedPolicy(
        lambda messages: turns[sum(m.role == "assistant" for m in messages)], encode=encode, end_ids=[END]
    )
    made = replace(episode_setup(policy), tokenizer=Tokenizer(), codec=Codec())
    episode = await run_episode(row, make_env=Shop, setup=made, request_id="r")
    return to_sample(episode, row, id=want)


async def write(samples: Sequence[Sample], folder: Path, **options: Any) -> tuple[HindsightRows, list[dict[str, Any]]]:
    path = folder / "rows.jsonl"
    options = {"package": PACKAGE, "codec": Codec(), "tokenizer": Tokenizer(), **options}
    counts = await write_hindsight_rows(samples, path, **options)
    return counts, [row for _, row in read_json_lines(path)]


async def test_a_failure_becomes_a_row_of_the_task_that_it_did_and_a_success_stays(tmp_path: Path) -> None:
    # V-HER: the failed episode itself is no row to learn from; its copy and the success are.
    failed, solved = await play("A", "call:B", "done"), await play("C", "call:C", "done")
    counts, rows = await write([failed, solved], tmp_path)
    assert counts == HindsightRows(solved=1, relabelled=1, left_out=0)
    answer = "call:{0}$\n<tool>page of {0}<user>go on<assistant>done$"
    assert [decode(row["input_ids"]) for row in rows] == [
        f"[open]<system>shop<user>find {page}<assistant>" + answer.format(page) for page in "BC"
    ]


async def test_turns_of_a_server_of_messages_get_the_form_of_the_codec(tmp_path: Path) -> None:
    solved = await play("C", "call:C", "done")
    calls = (ToolCall("C", {}),)
    first = replace(solved.turns[0], text=plain_text(Message("assistant", solved.turns[0].content, tool_calls=calls)))
    assert first.text != solved.turns[0].text.removesuffix("$")
    sent = replace(solved, turns=(first, *solved.turns[1:]))
    (counts, rows), (_, wanted) = await write([sent], tmp_path), await write([solved], tmp_path)
    assert counts.left_out == 0 and rows == wanted


async def test_the_mask_is_that_of_a_rollout_and_no_log_prob_of_the_old_prompt_is_left(tmp_path: Path) -> None:
    _, (row,) = await write([await play("A", "call:B", "done")], tmp_path)
    assert set(row) == {"input_ids", "loss_mask"}
    trained = decode([t for t, m in zip(row["input_ids"], row["loss_mask"], strict=True) if m])
    assert trained == "call:B$done$"


async def test_a_success_is_told_again_token_for_token(tmp_path: Path) -> None:
    row = EnvRow(prompt=(Message("user", "find C"),), ground_truth="C")
    policy = ScriptedPolicy(
        lambda messages: ("call:D", "call:C", "done")[sum(m.role == "assistant" for m in messages)],
        encode=encode,
        end_ids=[END],
    )
    made = replace(episode_setup(policy), tokenizer=Tokenizer(), codec=Codec())
    episode = await run_episode(row, make_env=Shop, setup=made, request_id="r")
    stored = StoredSample(
        group="g", session=0, step=1, split="train", sample=to_sample(episode, row, id="c"), score={"acc": 1.0}
    )
    sample = stored.sample
    _, (told,) = await write([sample], tmp_path)
    assert told["input_ids"] == episode.trajectories[0].token_ids
    assert told["loss_mask"][len(episode.trajectories[0].prompt_ids) :] == episode.trajectories[0].response_mask


async def test_what_did_nothing_to_speak_of_or_was_cut_in_a_turn_is_left_out(tmp_path: Path) -> None:
    idle = await play("A", "done")
    cut = replace(await play("A", "call:B", "done"), stop_reason=StopReason.MAX_TOKENS)
    counts, rows = await write([idle, cut], tmp_path)
    assert counts == HindsightRows(solved=0, relabelled=0, left_out=2) and rows == []


async def test_an_episode_that_reads_otherwise_when_it_is_written_again_is_left_out(tmp_path: Path) -> None:
    class Lossy(Tokenizer):
        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            return encode(text.replace("!", "."))

    samples = [await play("A", "call:B", "done!"), await play("A", "call:B", "done")]
    counts, _ = await write(samples, tmp_path, tokenizer=Lossy())
    assert counts == HindsightRows(solved=0, relabelled=1, left_out=1)


async def test_an_episode_in_which_other_calls_are_read_is_left_out(tmp_path: Path) -> None:
    class Deaf(Codec):
        async def decode_action(self, token_ids: Sequence[int], *, turn: int, tools: Sequence[Any]) -> Action:
            return replace(await super().decode_action(token_ids, turn=turn, tools=tools), tool_calls=())

    counts, rows = await write([await play("A", "call:A", "done")], tmp_path, codec=Deaf())
    assert counts == HindsightRows(solved=0, relabelled=0, left_out=1) and rows == []


async def test_an_outcome_that_counts_as_a_success_can_be_lower(tmp_path: Path) -> None:
    half = replace(await play("A", "call:B", "done"), env=Reward(0.5))
    counts, _ = await write([half], tmp_path, solved_at=0.5)
    assert counts == HindsightRows(solved=1, relabelled=0, left_out=0)


@pytest.mark.parametrize("env", ["python_math", "code_tests"])
async def test_maths_and_code_are_refused(env: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"'{env}' has no describe\(sample\).* as in maths and code"):
        await write([await play("A", "call:B", "done")], tmp_path, package=load_env_package(env))


async def test_an_episode_that_its_environment_did_not_score_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'A'"):
        await write([replace(await play("A", "call:B", "done"), env=None)], tmp_path)


def test_a_package_offers_what_its_module_does(tmp_path: Path) -> None:
    folder = tmp_path / "hindsight_shop"
    folder.mkdir()
    (folder / "__init__.py").write_text("def make_env(row):\n    ...\n\n\ndef describe(sample):\n    return sample\n")
    package = load_env_package(str(folder))
    assert package.describe is not None and package.describe("x") == "x"  # type: ignore[arg-type]
    assert load_env_package("text_game").describe is not None


@settings(max_examples=20)
@given(wants=st.lists(st.tuples(st.sampled_from("AB"), st.sampled_from("ABC")), max_size=5))
def test_every_episode_is_a_row_or_left_out(wants: list[tuple[str, str]], tmp_path_factory: Any) -> None:
    async def check() -> None:
        samples = [await play(want, f"call:{got}", "done") for want, got in wants]
        counts, rows = await write(samples, tmp_path_factory.mktemp("rows"))
        assert (counts.solved, counts.left_out) == (sum(a == b for a, b in wants), 0)
        assert len(rows) == counts.solved + counts.relabelled == len(wants)

    asyncio.run(check())
