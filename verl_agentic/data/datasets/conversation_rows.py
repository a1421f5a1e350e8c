"""SFT rows from conversations of messages, with the ids and the mask of a rollout.

verl's `MultiTurnSFTDataset` renders each message alone, so templates that join tool outputs or close thoughts give
other tokens than a rollout. Parquet gives each schema and each call the keys of all others. Here the loop of training
makes the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.types import Action, Message, Observation, Reward, StopReason, ToolResult
from verl_agentic.episode.codec.codec import Codec
from verl_agentic.episode.collect import AMPLE_LIMITS, run_episodes, scripted
from verl_agentic.episode.records.episode import Episode

Shape = Literal["sft", "cpt"]
_CONVERSATION = "conversation"


async def with_ids(
    records: Sequence[Mapping[str, Any]], *, codec: Codec, tokenizer: Any, shape: Shape
) -> list[dict[str, Any] | str]:
    """Returns each record with `input_ids` and `loss_mask`, for `TrajectoryDataset`; or the reason why it has none.

    Args:
        records: with `messages`, and optionally the schemas of `tools`.
        codec: protocol of the rows.
        tokenizer: of the model that will be trained.
        shape: `sft` trains the messages of the assistant, `cpt` (continual pretraining) every token.

    Raises:
        ConfigError: a record has no messages.
    """
    conversations = [_Conversation.of(record) for record in records]
    episodes = await run_episodes(
        [EnvRow(prompt=conversation.prompt, extra={_CONVERSATION: conversation}) for conversation in conversations],
        make_env=lambda row: row.extra[_CONVERSATION],
        setup_for=lambda index, row: scripted(
            conversations[index].turn, codec=codec, tokenizer=tokenizer, limits=AMPLE_LIMITS
        ),
    )
    return [
        conversation.fault(episode) or {**record, **_make_token_columns(episode, shape)}
        for record, conversation, episode in zip(records, conversations, episodes, strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class _SchemaTool:
    """A tool that the prompt shows and nobody calls."""

    schema: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.schema["function"]["name"]

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        raise NotImplementedError("the results are in the conversation")


@dataclass(frozen=True, kw_only=True)
class _Conversation:
    """An environment that repeats a conversation."""

    messages: Sequence[Message]
    tools: Sequence[_SchemaTool]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> _Conversation:
        if not record.get("messages"):
            raise ConfigError(
                f"only conversations have token ids, got a row with {sorted(record)}; leave out the tokenizer"
            )
        messages = [Message.from_dict(message) for message in record["messages"]]
        return cls(messages=messages, tools=[_SchemaTool(schema=tool) for tool in record.get("tools") or ()])

    @property
    def places(self) -> list[int]:
        """Places of the assistant's messages."""
        return [place for place, message in enumerate(self.messages) if message.role == "assistant"]

    @property
    def prompt(self) -> tuple[Message, ...]:
        return tuple(self.messages[: next(iter(self.places), None)])

    def turn(self, messages: Sequence[Message]) -> Message:
        return self.messages[self.places[sum(message.role == "assistant" for message in messages)]]

    def fault(self, episode: Episode) -> str | None:
        """Returns why the episode is not this conversation."""
        if episode.is_void:
            return f"no ids: {episode.error}"
        parsed_calls = [_list_calls(action.to_message()) for action in episode.actions]
        recorded_calls = [_list_calls(self.messages[place]) for place in self.places]
        if parsed_calls != recorded_calls:
            return f"the protocol reads other calls: {parsed_calls} for {recorded_calls}"
        thoughts = [self.messages[place].reasoning.strip("\n") for place in self.places]
        if any(thought not in action.text for thought, action in zip(thoughts, episode.actions, strict=True)):
            return "the protocol writes no thoughts: remove them from the conversation, or use another protocol"
        return None

    async def start(self) -> tuple[Message, ...]:
        return self.prompt

    async def step(self, action: Action) -> Observation:
        start, *later = self.places[action.turn :]
        if not later:
            return Observation(stop=StopReason.ANSWERED)
        calls = iter(action.tool_calls)
        answers = self.messages[start + 1 : later[0]]
        return Observation(
            tuple(_link_to_call(message, calls) if message.role == "tool" else message for message in answers)
        )

    async def score(self, transcript: Transcript) -> Reward:
        return Reward(0.0)  # nobody reads it

    async def close(self) -> None: ...


def _link_to_call(message: Message, calls: Any) -> Message:
    """Returns a tool's output as that of the next call."""
    call = next(calls, None)
    return Message("tool", message.content, name=call.name, call_id=call.call_id) if call else message


def _list_calls(message: Message) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, dict(call.arguments)) for call in message.tool_calls]


def _make_token_columns(episode: Episode, shape: Shape) -> dict[str, list[int]]:
    (trajectory,) = episode.trajectories
    ids = trajectory.token_ids
    mask = [0] * len(trajectory.prompt_ids) + trajectory.response_mask
    return {"input_ids": ids, "loss_mask": [1] * len(ids) if shape == "cpt" else mask}
