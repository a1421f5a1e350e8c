"""Policy backends for evaluation: servers of tokens, and servers of messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from verl_agentic.agent_loops.attempt.attempt import EpisodeSetup
from verl_agentic.agent_loops.codec.codec import Codec
from verl_agentic.agent_loops.limits import EpisodeLimits
from verl_agentic.agent_loops.policies.byte_tokenizer import ByteTokenizer
from verl_agentic.agent_loops.policies.chat_messages import ChatConversation
from verl_agentic.agent_loops.policies.completions import CompletionsPolicy, Endpoint, Sampling
from verl_agentic.data.evaluation.evaluation_run import EvaluationAttempt, PolicyBackend
from verl_agentic.errors import PolicyError
from verl_agentic.types import Message

Mode = Literal["completions", "chat"]
_GREETING = "Hi"


@dataclass(frozen=True, kw_only=True)
class BackendConfig:
    """Settings that all episodes of an evaluation share."""

    endpoint: Endpoint
    limits: EpisodeLimits
    sampling: Sampling
    """Its seed is for the first attempt; later attempts use the next seeds."""
    tokenizer: Any = None
    """The model's tokenizer, or None."""
    codec: Codec | None = None
    """Made from the tokenizer."""


async def connect(mode: Mode, config: BackendConfig) -> Callable[[EvaluationAttempt], PolicyBackend]:
    """Returns a function attempt -> backend, after one small request that tests the server.

    Args:
        mode: `completions` (needs tokenizer and codec) or `chat`.
        config: server and settings.

    Raises:
        ConfigError: the server gives no token ids, or refuses key, model or URL. PolicyError: it refuses or fails.
    """
    config = replace(config, limits=await _limits_of(config))
    if mode == "completions":
        await _speak_tokens(config)
        return lambda attempt: _token_backend(config, attempt)
    field = await _max_tokens_field(config.endpoint)
    return lambda attempt: _message_backend(config, attempt, field)


async def _limits_of(config: BackendConfig) -> EpisodeLimits:
    """Returns the limits, with a context no longer than the model's, if the server reports it."""
    listed = await config.endpoint.models()
    longest = listed.get(config.endpoint.config.model, {}).get("max_model_len")
    limits = config.limits
    if not isinstance(longest, int) or longest >= limits.max_context_tokens:
        return limits
    response = min(limits.max_response_tokens, longest)
    return replace(limits, max_context_tokens=longest, max_response_tokens=response)


async def _speak_tokens(config: BackendConfig) -> None:
    policy = CompletionsPolicy(config.endpoint, sampling=config.sampling, stop_texts=(), stop_token_ids=())
    prompt_ids = config.tokenizer.encode(_GREETING)
    await policy.generate(prompt_ids, messages=(), max_tokens=1, request_id="check")


async def _max_tokens_field(endpoint: Endpoint) -> str:
    """Returns the server's name of the maximum length; OpenAI's newer models refuse the older name."""
    conversation = ChatConversation(endpoint, sampling=Sampling())
    try:
        await conversation.generate((), messages=(Message("user", _GREETING),), max_tokens=1, request_id="check")
    except PolicyError as error:
        if "max_completion_tokens" not in str(error):
            raise
        return "max_completion_tokens"
    return "max_tokens"


def _token_backend(config: BackendConfig, attempt: EvaluationAttempt) -> PolicyBackend:
    assert config.codec is not None
    policy = CompletionsPolicy(
        config.endpoint,
        sampling=_sampling_of(config, attempt),
        stop_texts=config.codec.stop_texts,
        stop_token_ids=config.codec.stop_token_ids,
    )
    setup = EpisodeSetup(policy=policy, codec=config.codec, tokenizer=config.tokenizer, limits=config.limits)
    return PolicyBackend(setup=setup, usage=policy.usage, has_exact_ids=True)


def _message_backend(config: BackendConfig, attempt: EvaluationAttempt, max_tokens_field: str) -> PolicyBackend:
    tokenizer = config.tokenizer or ByteTokenizer()
    conversation = ChatConversation(
        config.endpoint,
        sampling=_sampling_of(config, attempt),
        tokenizer=tokenizer,
        codec=config.codec,
        max_tokens_field=max_tokens_field,
    )
    setup = EpisodeSetup(policy=conversation, codec=conversation, tokenizer=tokenizer, limits=config.limits)
    return PolicyBackend(setup=setup, usage=conversation.usage, has_exact_ids=False)


def _sampling_of(config: BackendConfig, attempt: EvaluationAttempt) -> Sampling:
    seed = config.sampling.seed
    return config.sampling if seed is None else replace(config.sampling, seed=seed + attempt.number)
