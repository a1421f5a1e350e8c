"""Pairs of trajectories of one prompt, a better and a worse one: data for DPO.

A pair is `{"prompt", "tools", "chosen", "rejected"}`: messages, optional schemas of
the tools in the prompt, and two continuations, each a list of messages. The policy wrote those of the assistant. Such a
message has `content` and `tool_calls`, which the protocol writes, or `text`, which is used as sampled.

A pair of ids has `prompt_ids`, and `chosen_ids` and `chosen_mask`, `rejected_ids` and `rejected_mask` in place of
messages. `verl-agentic data export --as pairs` writes such pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.base.trajectory import Trajectory
from verl_agentic.base.types import Message
from verl_agentic.data.datasets.id_rows import trajectory_of_ids
from verl_agentic.episode.codec.codec import Codec, Schema, render_next_action
from verl_agentic.rewards.sample import Sample, Turn

SIDES = ("chosen", "rejected")


async def encode_pair(pair: Mapping[str, Any], *, codec: Codec, tokenizer: Any) -> dict[str, Trajectory]:
    """Returns both sides of a pair as training rows; the mask is that of RL, because the same codec makes it.

    Args:
        pair: see the module.
        codec: the protocol.
        tokenizer: the one that the codec is made of.

    Raises:
        DataError: a part is missing or malformed, or one side does not begin with a turn of the policy.
    """
    if "prompt_ids" in pair:
        vocab_size = len(tokenizer)
        return {
            side: trajectory_of_ids(pair, ids=f"{side}_ids", mask=f"{side}_mask", vocab_size=vocab_size)
            for side in SIDES
        }
    if missing := sorted({"prompt", *SIDES} - set(pair)):
        raise DataError(f"a pair lacks {missing}, got the keys {sorted(pair)}; it has prompt, chosen and rejected")
    prompt = [Message.from_dict(message) for message in pair["prompt"]]
    tools = [dict(schema) for schema in pair.get("tools") or ()]
    return {
        side: await encode_answer(prompt, pair[side], tools=tools, codec=codec, tokenizer=tokenizer) for side in SIDES
    }


async def encode_answer(
    prompt: Sequence[Message],
    answer: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Schema],
    codec: Codec,
    tokenizer: Any,
) -> Trajectory:
    """Returns a prompt and one continuation as a training row.

    Args:
        prompt: messages.
        answer: messages, see the module.
        tools: schemas that the prompt offers.
        codec: the protocol.
        tokenizer: the one that the codec is made of.

    Raises:
        DataError: it does not begin with a turn of the policy, or has two such turns in a row.
    """
    if not answer or answer[0].get("role") != "assistant":
        raise DataError(f"a continuation must begin with a message of the assistant, got {answer!r}; fix it")
    row = Trajectory(prompt_ids=list(await codec.encode_prompt(prompt, tools)))
    history, turn = list(prompt), -1
    for is_policy, messages in groupby(answer, key=lambda message: message.get("role") == "assistant"):
        if not is_policy:
            new = [Message.from_dict(message) for message in messages]
            edit = await codec.encode_context(history, new, stream=row.token_ids, tools=tools)
            row.drop_tail(edit.removed)
            row.append_context(edit.token_ids, turn=turn)
            history += new
            continue
        for number, message in enumerate(messages):
            if number:
                raise DataError(f"two messages of the assistant follow each other, got {answer!r}; join them")
            turn += 1
            ids = _sampled_ids(message, before=history, codec=codec, tokenizer=tokenizer)
            row.append_sampled(ids, None, turn=turn, untrained=codec.untrained_spans(ids))
            history.append((await codec.decode_action(ids, turn=turn, tools=tools)).to_message())
    row.trim_context()
    return row


def _sampled_ids(message: Mapping[str, Any], *, before: Sequence[Message], codec: Codec, tokenizer: Any) -> list[int]:
    """Returns the tokens of a turn; a truncated text has no end of turn."""
    if "text" in message:
        return tokenizer.encode(message["text"], add_special_tokens=False)
    text = render_next_action(codec, Message.from_dict(message), before=before)
    has_end = bool(codec.stop_texts) and text.endswith(tuple(codec.stop_texts))
    return [*tokenizer.encode(text, add_special_tokens=False), *([] if has_end else [tokenizer.eos_token_id])]


def written_messages(sample: Sample) -> list[dict[str, Any]]:
    """Returns the continuation of a trajectory, in the form of a pair."""
    messages: list[dict[str, Any]] = []
    for turn in sample.turns:
        messages.append({"role": "assistant", "text": turn.text})
        messages.extend(_label_observations(turn))
    return messages


def _label_observations(turn: Turn) -> list[dict[str, Any]]:
    """Returns the observations of a turn: results of its calls in order, and messages of a user between them."""
    waiting = [call for call in turn.calls if call.result is not None]
    answers: list[dict[str, Any]] = []
    for content in turn.observations:
        if waiting and waiting[0].result == content:
            answers.append({"role": "tool", "content": content, "name": waiting.pop(0).name})
        else:
            answers.append({"role": "user", "content": content})
    return answers
