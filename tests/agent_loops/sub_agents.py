"""Episodes whose policy hands parts of its task to fresh copies of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fakes import END, LIMITS, ROW, CharCodec, decode, encode, episode_setup

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.tools.delegate import DelegateTool
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Action, Message, Reward, ToolCall
from verl_agentic.episode.policies.policy import ScriptedPolicy
from verl_agentic.episode.records.episode import Episode
from verl_agentic.episode.run_episode import run_episode


class Codec(CharCodec):
    """`call:TOOL:task` hands over a task; two of them may stand in one turn, separated by `;`."""

    async def decode_action(self, token_ids: Sequence[int], *, turn: int, tools: Sequence[object]) -> Action:
        text = decode(token_ids).rstrip("$")
        parts = [part.split(":", 2) for part in text.split(";") if part.startswith("call:")]
        calls = tuple(ToolCall(tool, {"task": ":".join(task)}) for _, tool, *task in parts)
        return Action(turn=turn, text=text, content="" if calls else text, tool_calls=calls)


class Env(ToolEnv):
    async def score(self, transcript: Transcript) -> Reward:
        return Reward(float(transcript.final_answer == "sum 5"))


def next_text(messages: Sequence[Message]) -> str:
    first, last = messages[0], messages[-1]
    if first.content.startswith("count"):
        return first.content.split()[-1]
    if last.role == "tool":
        return f"sum {sum(int(m.content) for m in messages if m.role == 'tool')}"
    return "call:delegate:count 2;call:delegate:count 3"


async def play(policy: object, *, row: EnvRow = ROW, **limits: object) -> Episode:
    chosen = replace(episode_setup(policy, replace(LIMITS, max_retries=0, **limits)), codec=Codec())  # type: ignore[arg-type]
    return await run_episode(row, make_env=lambda r: Env(r, [DelegateTool()]), setup=chosen, request_id="r")


def script() -> ScriptedPolicy:
    return ScriptedPolicy(next_text, encode=encode, end_ids=[END])
