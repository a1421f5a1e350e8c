"""Tools that appear or disappear in mid-episode: the policy gets a message, and no earlier token changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from fakes import END, ROW, encode, episode_setup

from verl_agentic.base.env import EnvRow
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Action, Message, Observation, SegmentKind, ToolResult
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.compaction import Compaction
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.attempt.tool_changes import LOST_TOOLS, NEW_TOOLS
from verl_agentic.episode.codec.codec import Schema
from verl_agentic.episode.policies.policy import Completion
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode

Chat = tuple[Any, Any]
LIMITS = EpisodeLimits(max_response_tokens=2_000, max_context_tokens=4_000, max_turns=12, max_retries=0)


class Named:
    """A tool with one integer argument, and a new schema on each access."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def schema(self) -> Schema:
        parameters = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
        return {"type": "function", "function": {"name": self.name, "description": "", "parameters": parameters}}

    async def call(self, arguments: Any) -> ToolResult:
        return ToolResult(f"{self.name} ran")


class Changing(ToolEnv):
    """Has the tools `lists[i]` after i turns."""

    def __init__(self, row: EnvRow, lists: Sequence[str]) -> None:
        self._lists = [[Named(name) for name in names] for names in lists]
        super().__init__(row, self._lists.pop(0))

    async def step(self, action: Action) -> Observation:
        observation = await super().step(action)
        if self._lists:
            self.use_tools(self._lists.pop(0))
        return observation


@dataclass
class Recorder:
    """Plays a script, and keeps what the engine saw."""

    encode: Callable[[str], list[int]]
    end: int
    turns: list[str]
    seen: list[list[int]] = field(default_factory=list)

    async def generate(self, prompt_ids: Sequence[int], **_: object) -> Completion:
        self.seen.append(list(prompt_ids))
        ids = [*self.encode(self.turns[len(self.seen) - 1]), self.end]
        return Completion(token_ids=ids, log_probs=[-1.0] * len(ids), finish_reason="stop")


async def play(lists: Sequence[str], turns: list[str], **options: Any) -> tuple[Episode, Recorder]:
    recorder = Recorder(encode, END, turns)
    setup = episode_setup(recorder, LIMITS, has_rubric=True, **options)  # type: ignore[arg-type]
    return await run_episode(ROW, make_env=lambda row: Changing(row, lists), setup=setup, request_id="r"), recorder


def notices(episode: Episode) -> list[str]:
    return [m.content for m in episode.messages[1:] if m.role == "user"]


def assert_the_row_is_what_the_engine_saw(episode: Episode, recorder: Recorder) -> None:
    (row,) = episode.trajectories
    starts = [i for i, mask in enumerate(row.response_mask) if mask and not (i and row.response_mask[i - 1])]
    assert [row.prompt_ids + row.response_ids[:start] for start in starts] == recorder.seen


async def test_new_and_lost_tools_are_announced_after_the_observation_and_not_trained() -> None:
    episode, recorder = await play(["a", "ab", "b"], ["call:a", "call:b", "call:a", "42"])
    assert notices(episode) == [f"{NEW_TOOLS}\nb", f"{LOST_TOOLS} a"]
    results = [(m.content, m.error_kind) for m in episode.messages if m.role == "tool"]
    assert results[:2] == [("a ran", None), ("b ran", None)] and results[2][1] == "unknown_tool"
    (row,) = episode.trajectories
    message = encode(f"\n<tool>a ran<user>{NEW_TOOLS}\nb<assistant>")
    assert row.response_ids[: 7 + len(message) + 7] == [*encode("call:a$"), *message, *encode("call:b$")]
    assert row.response_mask[: 7 + len(message) + 7] == [1] * 7 + [0] * len(message) + [1] * 7
    assert [s.kind for s in row.segments()][:3] == [SegmentKind.MODEL, SegmentKind.TOOL, SegmentKind.MODEL]
    assert_the_row_is_what_the_engine_saw(episode, recorder)
    assert episode.numbers()["tools_offered"] == 2.0


async def test_equal_tools_and_another_order_are_no_change() -> None:
    episode, _ = await play(["ab", "ab", "ba"], ["call:a", "call:b", "42"])
    assert notices(episode) == []


async def test_a_turn_after_the_change_is_read_with_the_new_schemas_and_one_before_it_is_not(tiny_chat: Chat) -> None:
    tokenizer, codec = tiny_chat

    def call(name: str, x: Any) -> str:
        return "<tool_call>\n" + json.dumps({"name": name, "arguments": {"x": x}}) + "\n</tool_call>"

    turns = [call("b", "wrong"), call("b", "wrong"), call("b", 1), "done"]
    recorder = Recorder(tokenizer.encode, tokenizer.eos_token_id, turns)
    setup = EpisodeSetup(policy=recorder, codec=codec, tokenizer=tokenizer, limits=LIMITS, has_rubric=True)  # type: ignore[arg-type]
    row = EnvRow(prompt=(Message("system", "Be brief."), Message("user", "Go.")))
    episode = await run_episode(row, make_env=lambda r: Changing(r, ["a", "ab"]), setup=setup, request_id="r")
    results = [(m.error_kind, m.content) for m in episode.messages if m.role == "tool"]
    assert [kind for kind, _ in results] == ["unknown_tool", "wrong_arguments", None], episode.error
    assert [m.content for m in episode.messages if m.role == "user"][1:] == [
        f"{NEW_TOOLS}\n{json.dumps(Named('b').schema)}"
    ]
    assert_the_row_is_what_the_engine_saw(episode, recorder)
    (trained,) = episode.trajectories
    assert '"name": "b"' not in tokenizer.decode(trained.prompt_ids)  # the prompt keeps its tools
    assert f"{NEW_TOOLS}\n{json.dumps(Named('b').schema)}" in tokenizer.decode(trained.response_ids)


async def test_the_prompt_of_a_new_row_has_the_tools_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[str] = []
    how = Compaction(strategy="drop_observations", keep_last=0, min_room_tokens=1_950, max_rows=3)
    setup = episode_setup(Recorder(encode, END, ["call:a", "call:b", "42"]), LIMITS, has_rubric=True, compaction=how)  # type: ignore[arg-type]
    encode_prompt = setup.codec.encode_prompt

    async def recording(messages: Sequence[Message], tools: Sequence[Schema]) -> list[int]:
        rendered.append("".join(schema["function"]["name"] for schema in tools))
        return await encode_prompt(messages, tools)

    monkeypatch.setattr(setup.codec, "encode_prompt", recording)
    episode = await run_episode(ROW, make_env=lambda row: Changing(row, ["a", "ab"]), setup=setup, request_id="r")
    assert rendered[:2] == ["a", "ab"] and len(episode.trajectories) > 1
    assert [m.error_kind for m in episode.messages if m.role == "tool"] == [None, None]


async def test_a_forced_tool_is_one_of_the_new_ones() -> None:
    from verl_agentic.episode.attempt.episode_setup import Exploration

    episode, _ = await play(["a", "b"], ["", "", "42"], exploration=Exploration(epsilon_tool=1.0))
    assert [action.tool_calls[0].name for action in episode.actions[:2]] == ["a", "b"]
