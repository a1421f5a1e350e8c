"""Pairs of trajectories of one prompt, a better and a worse one: data for DPO.

A pair is `{"prompt", "tools", "chosen", "rejected"}`: messages, optional schemas of
the tools in the prompt, and two continuations, each a list of messages. The policy wrote those of the assistant. Such a
message has `content` and `tool_calls`, which the protocol writes, or `text`, which is used as sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

from verl_agentic.agent_loops.codec.codec import Codec, Schema
from verl_agentic.data.stored_samples import Split, StoredSample
from verl_agentic.errors import DataError
from verl_agentic.rewards.sample import Sample, Turn
from verl_agentic.trajectory import Trajectory
from verl_agentic.types import Message

SIDES = ("chosen", "rejected")


def preference_pairs(
    stored: Sequence[StoredSample],
    *,
    tools_of: Callable[[Sample], Sequence[Schema]] = lambda sample: (),
    min_gap: float = 0.0,
    splits: Collection[Split] = ("train",),
) -> list[dict[str, Any]]:
    """Returns one pair per group whose scores differ: the best and the worst sibling.

    Siblings without a score, without a turn, or with a prompt of their own (guidance) are left out. Ties go to the
    first sibling.

    Args:
        stored: trajectories of a run (`sample_log.read_samples`).
        tools_of: the tools of a trajectory, which the run does not store.
        min_gap: pairs whose scores differ by at most this are left out.
        splits: splits to use; validation only if named.
    """
    by_key = sorted((one for one in stored if one.split in splits), key=lambda one: (*one.key, one.session))
    groups = (list(members) for _, members in groupby(by_key, key=lambda one: one.key))
    pairs = []
    for group in groups:
        paid = [one for one in group if one.score and "score" in one.score and one.sample.turns]
        siblings = [one for one in paid if one.sample.prompt == paid[0].sample.prompt]
        if not siblings:
            continue
        best, worst = max(siblings, key=_score), min(siblings, key=_score)
        if _score(best) - _score(worst) > min_gap:
            pairs.append(
                {
                    "prompt": [message.to_dict() for message in best.sample.prompt],
                    "tools": [dict(schema) for schema in tools_of(best.sample)],
                    "chosen": written_messages(best.sample),
                    "rejected": written_messages(worst.sample),
                    "scores": [_score(best), _score(worst)],
                }
            )
    return pairs


async def encode_pair(pair: Mapping[str, Any], *, codec: Codec, tokenizer: Any) -> dict[str, Trajectory]:
    """Returns both sides of a pair as training rows; the mask is that of RL, because the same codec makes it.

    Args:
        pair: see the module.
        codec: the protocol.
        tokenizer: the one that the codec is made of.

    Raises:
        DataError: a part is missing or malformed, or one side does not begin with a turn of the policy.
    """
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
    seen, turn = list(prompt), -1
    for is_policy, messages in groupby(answer, key=lambda message: message.get("role") == "assistant"):
        if not is_policy:
            new = [Message.from_dict(message) for message in messages]
            edit = await codec.encode_context(seen, new, stream=row.token_ids, tools=tools)
            row.drop_tail(edit.removed)
            row.append_context(edit.token_ids, turn=turn)
            seen += new
            continue
        for number, message in enumerate(messages):
            if number:
                raise DataError(f"two messages of the assistant follow each other, got {answer!r}; join them")
            turn += 1
            ids = _sampled_ids(message, codec=codec, tokenizer=tokenizer)
            row.append_sampled(ids, None, turn=turn, untrained=codec.untrained_spans(ids))
            seen.append((await codec.decode_action(ids, turn=turn, tools=tools)).to_message())
    row.trim_context()
    return row


def _sampled_ids(message: Mapping[str, Any], *, codec: Codec, tokenizer: Any) -> list[int]:
    """Returns the tokens of a turn; a truncated text has no end of turn."""
    if "text" in message:
        return tokenizer.encode(message["text"], add_special_tokens=False)
    text = codec.render_action(Message.from_dict(message))
    has_end = bool(codec.stop_texts) and text.endswith(tuple(codec.stop_texts))
    return [*tokenizer.encode(text, add_special_tokens=False), *([] if has_end else [tokenizer.eos_token_id])]


def _score(one: StoredSample) -> float:
    assert one.score is not None
    return one.score["score"]


def written_messages(sample: Sample) -> list[dict[str, Any]]:
    """Returns the continuation of a trajectory, in the form of a pair."""
    messages: list[dict[str, Any]] = []
    for turn in sample.turns:
        messages.append({"role": "assistant", "text": turn.text})
        messages.extend(_answers(turn))
    return messages


def _answers(turn: Turn) -> list[dict[str, Any]]:
    """Returns the observations of a turn: results of its calls in order, and messages of a user between them."""
    waiting = [call for call in turn.calls if call.result is not None]
    answers: list[dict[str, Any]] = []
    for content in turn.observations:
        if waiting and waiting[0].result == content:
            answers.append({"role": "tool", "content": content, "name": waiting.pop(0).name})
        else:
            answers.append({"role": "user", "content": content})
    return answers
