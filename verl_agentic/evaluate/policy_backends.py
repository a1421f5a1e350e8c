"""Policy backends for evaluation: servers of tokens, and servers of messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from verl_agentic.base.errors import PolicyError
from verl_agentic.base.registry import load_address
from verl_agentic.base.types import Message
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.attempt.episode_setup import EpisodeLimits
from verl_agentic.episode.codec.codec import Codec
from verl_agentic.evaluate.evaluation_run import EvaluationAttempt, PolicyBackend
from verl_agentic.evaluate.policies.best_of import BestOfPolicy, QFunction, TokenValue
from verl_agentic.evaluate.policies.chat_messages import ChatConversation
from verl_agentic.evaluate.policies.completions import CompletionsPolicy, Endpoint, Sampling
from verl_agentic.evaluate.policies.tree_search import SearchTree, TreeSearchPolicy, TreeSettings

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
    best_of: int = 1
    """Number of turns that are sampled in place of each; `value` chooses one."""
    value: QFunction | TokenValue | None = None
    diversity: float = 0.0
    """Weight of the similarity to turns that earlier attempts at a task have taken."""
    taken: dict[tuple[str, int], list[set[str]]] = field(default_factory=dict)
    """Turns that attempts have taken; see `BestOfPolicy`."""
    tree: TreeSettings | None = None
    """Search of a tree by the attempts at a task."""
    has_default_context: bool = False
    """Whether `limits.max_context_tokens` is a default, in whose place comes the model's, if the server reports it."""


async def connect(mode: Mode, config: BackendConfig) -> Callable[[EvaluationAttempt], PolicyBackend]:
    """Returns a function attempt -> backend, after one small request that tests the server.

    Args:
        mode: `completions` (needs tokenizer and codec) or `chat`.
        config: server and settings.

    Raises:
        ConfigError: the server gives no token ids, or refuses key, model or URL. PolicyError: it refuses or fails.
    """
    config = replace(config, limits=await _fit_limits(config))
    if mode == "completions":
        await _try_completions(config)
        if config.tree is not None:
            make_tree_backend = tree_backends(config.tree)
            width = config.tree.width
            return lambda attempt: make_tree_backend(attempt, [_make_token_backend(config, attempt)] * width)
        return lambda attempt: _wrap_best_of(_make_token_backend(config, attempt), config)
    wire = await _probe_chat_wire(config)
    return lambda attempt: _wrap_best_of(_make_message_backend(config, attempt, wire), config)


def _wrap_best_of(backend: PolicyBackend, config: BackendConfig) -> PolicyBackend:
    """Returns a backend whose turns are the best of several, if the config asks for it."""
    if config.value is None and not config.diversity:
        return backend
    setup = backend.setup
    policy = BestOfPolicy(
        policy=setup.policy,
        tokenizer=setup.tokenizer,
        value=config.value,
        count=config.best_of,
        diversity=config.diversity,
        taken=config.taken,
    )
    return replace(backend, setup=replace(setup, policy=policy))


def tree_backends(
    settings: TreeSettings,
) -> Callable[[EvaluationAttempt, Sequence[PolicyBackend]], PolicyBackend]:
    """Returns a function attempt, backends of its turns -> backend that searches the tree of the task.

    Raises:
        ConfigError: the critic of the settings is not there.
    """
    critic = load_address(settings.q, what="critic") if settings.q else None
    trees: dict[str, SearchTree] = {}

    def make_backend(attempt: EvaluationAttempt, backends: Sequence[PolicyBackend]) -> PolicyBackend:
        tree, first = trees.setdefault(attempt.task, SearchTree(settings, critic)), backends[0]
        policies = [backend.setup.policy for backend in backends]
        policy = TreeSearchPolicy(policies=policies, tokenizer=first.setup.tokenizer, tree=tree)
        return replace(first, setup=replace(first.setup, policy=policy), finish=policy.finish)

    return make_backend


async def _fit_limits(config: BackendConfig) -> EpisodeLimits:
    """Returns the limits, with the context of the model, if the server reports it and no shorter one was chosen."""
    listed = await config.endpoint.models()
    longest = listed.get(config.endpoint.config.model, {}).get("max_model_len")
    limits = config.limits
    if not isinstance(longest, int) or (longest >= limits.max_context_tokens and not config.has_default_context):
        return limits
    response = min(limits.max_response_tokens, longest)
    return replace(limits, max_context_tokens=longest, max_response_tokens=response)


async def _try_completions(config: BackendConfig) -> None:
    policy = CompletionsPolicy(config.endpoint, sampling=config.sampling, stop_texts=(), stop_token_ids=())
    prompt_ids = config.tokenizer.encode(_GREETING)
    await policy.generate(prompt_ids, messages=(), max_tokens=1, request_id="check")


@dataclass(frozen=True, kw_only=True)
class _ChatWire:
    """Fields of requests that differ between servers of the chat API."""

    asks_for_ids: bool
    max_tokens_field: str = "max_tokens"
    """OpenAI's newer models refuse the older name."""


async def _probe_chat_wire(config: BackendConfig) -> _ChatWire:
    """Returns the fields that the server accepts; ids are asked for if it has the same tokenizer and template."""
    wire = _ChatWire(asks_for_ids=config.codec is not None)
    greeting = (Message("user", _GREETING),)
    while True:
        conversation = _make_conversation(config, Sampling(), wire)
        prompt_ids = await conversation.encode_prompt(greeting, ())
        try:
            await conversation.generate(prompt_ids, messages=greeting, max_tokens=1, request_id="check")
        except PolicyError as error:
            newer = "max_completion_tokens"
            if newer in str(error) and wire.max_tokens_field != newer:
                wire = replace(wire, max_tokens_field=newer)
            elif wire.asks_for_ids:
                wire = replace(wire, asks_for_ids=False)
            else:
                raise
        else:
            return replace(wire, asks_for_ids=wire.asks_for_ids and conversation.id_source == "exact")


def _make_conversation(config: BackendConfig, sampling: Sampling, wire: _ChatWire) -> ChatConversation:
    return ChatConversation(
        config.endpoint,
        sampling=sampling,
        tokenizer=config.tokenizer,
        codec=config.codec,
        asks_for_ids=wire.asks_for_ids,
        max_tokens_field=wire.max_tokens_field,
    )


def _make_token_backend(config: BackendConfig, attempt: EvaluationAttempt) -> PolicyBackend:
    assert config.codec is not None
    policy = CompletionsPolicy(
        config.endpoint,
        sampling=_make_sampling(config, attempt),
        stop_texts=config.codec.stop_texts,
        stop_token_ids=config.codec.stop_token_ids,
    )
    setup = EpisodeSetup(policy=policy, codec=config.codec, tokenizer=config.tokenizer, limits=config.limits)
    return PolicyBackend(setup=setup, usage=policy.usage)


def _make_message_backend(config: BackendConfig, attempt: EvaluationAttempt, wire: _ChatWire) -> PolicyBackend:
    conversation = _make_conversation(config, _make_sampling(config, attempt), wire)
    setup = EpisodeSetup(
        policy=conversation, codec=conversation, tokenizer=conversation.tokenizer, limits=config.limits
    )
    return PolicyBackend(setup=setup, usage=conversation.usage, id_source=lambda: conversation.id_source)


def _make_sampling(config: BackendConfig, attempt: EvaluationAttempt) -> Sampling:
    seed = config.sampling.seed
    return config.sampling if seed is None else replace(config.sampling, seed=seed + attempt.number)
