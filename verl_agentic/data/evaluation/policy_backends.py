"""Who plays an evaluation: a server that speaks tokens, or one that speaks messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from verl_agentic.agent_loops.attempt.attempt import Setting
from verl_agentic.agent_loops.codec.codec import Codec
from verl_agentic.agent_loops.limits import EpisodeLimits
from verl_agentic.agent_loops.policies.byte_tokenizer import ByteTokenizer
from verl_agentic.agent_loops.policies.chat_messages import ChatConversation
from verl_agentic.agent_loops.policies.completions import CompletionsPolicy, Endpoint, Sampling
from verl_agentic.data.evaluation.evaluation_run import Attempt, Seat
from verl_agentic.errors import PolicyError
from verl_agentic.types import Message

Mode = Literal["completions", "chat"]
_GREETING = "Hi"


@dataclass(frozen=True, kw_only=True)
class Seating:
    """What the episodes of an evaluation have in common."""

    endpoint: Endpoint
    limits: EpisodeLimits
    sampling: Sampling
    """Its seed is that of the first attempt; the others' follow."""
    tokenizer: Any = None
    """The model's; None where there is none at hand."""
    codec: Codec | None = None
    """Of the tokenizer."""


async def take_seats(mode: Mode, seating: Seating) -> Callable[[Attempt], Seat]:
    """Returns who plays an attempt, after one small request that shows whether the server can do what is needed.

    Args:
        mode: `completions` (needs tokenizer and codec) or `chat`.
        seating: the server, and how it is asked.

    Raises:
        ConfigError: the server gives no token ids, or refuses key, model or URL. PolicyError: it refuses or fails.
    """
    seating = replace(seating, limits=await _limits_of(seating))
    if mode == "completions":
        await _speak_tokens(seating)
        return lambda attempt: _token_seat(seating, attempt)
    field = await _max_tokens_field(seating.endpoint)
    return lambda attempt: _message_seat(seating, attempt, field)


async def _limits_of(seating: Seating) -> EpisodeLimits:
    """Returns the limits, with a context that is no longer than that of the model, where the server says it."""
    listed = await seating.endpoint.models()
    longest = listed.get(seating.endpoint.config.model, {}).get("max_model_len")
    limits = seating.limits
    if not isinstance(longest, int) or longest >= limits.max_context_tokens:
        return limits
    response = min(limits.max_response_tokens, longest)
    return replace(limits, max_context_tokens=longest, max_response_tokens=response)


async def _speak_tokens(seating: Seating) -> None:
    policy = CompletionsPolicy(seating.endpoint, sampling=seating.sampling, stop_texts=(), stop_token_ids=())
    prompt_ids = seating.tokenizer.encode(_GREETING)
    await policy.generate(prompt_ids, messages=(), max_tokens=1, request_id="check")


async def _max_tokens_field(endpoint: Endpoint) -> str:
    """Returns what the server calls the length of an answer; OpenAI's newer models refuse the older name."""
    conversation = ChatConversation(endpoint, sampling=Sampling())
    try:
        await conversation.generate((), messages=(Message("user", _GREETING),), max_tokens=1, request_id="check")
    except PolicyError as error:
        if "max_completion_tokens" not in str(error):
            raise
        return "max_completion_tokens"
    return "max_tokens"


def _token_seat(seating: Seating, attempt: Attempt) -> Seat:
    assert seating.codec is not None
    policy = CompletionsPolicy(
        seating.endpoint,
        sampling=_sampling_of(seating, attempt),
        stop_texts=seating.codec.stop_texts,
        stop_token_ids=seating.codec.stop_token_ids,
    )
    setting = Setting(policy=policy, codec=seating.codec, tokenizer=seating.tokenizer, limits=seating.limits)
    return Seat(setting=setting, usage=policy.usage, has_exact_ids=True)


def _message_seat(seating: Seating, attempt: Attempt, max_tokens_field: str) -> Seat:
    tokenizer = seating.tokenizer or ByteTokenizer()
    conversation = ChatConversation(
        seating.endpoint,
        sampling=_sampling_of(seating, attempt),
        tokenizer=tokenizer,
        codec=seating.codec,
        max_tokens_field=max_tokens_field,
    )
    setting = Setting(policy=conversation, codec=conversation, tokenizer=tokenizer, limits=seating.limits)
    return Seat(setting=setting, usage=conversation.usage, has_exact_ids=False)


def _sampling_of(seating: Seating, attempt: Attempt) -> Sampling:
    seed = seating.sampling.seed
    return seating.sampling if seed is None else replace(seating.sampling, seed=seed + attempt.number)
