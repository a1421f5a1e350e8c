"""Requests and results of the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings, read_settings, setting

FinishReason = Literal["stop", "length", "aborted"]


class SamplingParams(Settings):
    """Sampling parameters of a request, with vLLM's names."""

    temperature: float = setting(1.0, min=0)
    """0 is greedy."""
    top_p: float = setting(1.0, above=0, max=1)
    top_k: int = setting(-1, min=-1)
    """-1 and 0 are off."""
    max_tokens: int | None = setting(None, min=1)
    """Maximum number of new tokens; None: the rest of the context."""
    stop: tuple[str, ...] = ()
    """Texts that end the generation."""
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end the generation, beside the model's own end tokens."""
    allowed_token_ids: tuple[int, ...] = ()
    """The only ids that may be sampled. Empty: all. Log-probs stay those of the whole vocabulary."""
    include_stop_str_in_output: bool = True
    """False removes the tokens that overlap a stop text."""
    repetition_penalty: float = setting(1.0, above=0)
    seed: int | None = None
    """Makes this request's sampling independent of its neighbours and repeatable."""
    logprobs: bool = True
    ignore_eos: bool = False

    def check_together(self) -> None:
        if not all(self.stop):
            raise ConfigError(f"stop must be texts that are not empty, got {self.stop!r}; leave out the empty one")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> SamplingParams:
        """Returns the parameters from a dict in verl's or vLLM's form. Raises ConfigError if a name is unknown."""
        fields = {("max_tokens" if k == "max_new_tokens" else k): v for k, v in values.items()}
        stop = fields.get("stop") or ()
        fields["stop"] = (stop,) if isinstance(stop, str) else tuple(stop)
        for name in ("stop_token_ids", "allowed_token_ids"):
            fields[name] = tuple(fields.get(name) or ())
        # vLLM counts alternatives here, and 0 alternatives still means the sampled token's own log-prob.
        logprobs = fields.get("logprobs", True)
        fields["logprobs"] = logprobs is not None and logprobs is not False
        return read_settings(cls, fields, section="sampling")


@dataclass(frozen=True, kw_only=True)
class Generation:
    """The result of a request."""

    token_ids: list[int]
    """The sampled ids, the stop token included."""
    log_probs: list[float] | None
    """`log_softmax(logits / temperature)` of each sampled id over the whole vocabulary, as a trainer computes it."""
    finish_reason: FinishReason
    num_cached_tokens: int
    """Number of prompt tokens from the cache."""
    weights_version: int


@dataclass(eq=False, kw_only=True)
class Running:
    """A running request; owned by the engine's thread."""

    prompt_ids: tuple[int, ...]
    params: SamplingParams
    max_tokens: int
    stop_ids: frozenset[int]
    deliver: Callable[[Generation | Exception], None]
    """Called once with a `Generation` or an exception."""
    generator: Any = None
    """Its own random generator, when it has a seed."""
    token_ids: list[int] = field(init=False)
    """Prompt and sampled ids."""
    log_probs: list[float] = field(default_factory=list)
    computed: int = 0
    """Number of tokens whose keys and values are in its slot."""
    cached: int = 0

    def __post_init__(self) -> None:
        self.token_ids = list(self.prompt_ids)

    @property
    def num_new(self) -> int:
        """Number of sampled tokens."""
        return len(self.token_ids) - len(self.prompt_ids)

    @property
    def needed(self) -> int:
        """Maximum number of tokens of its slot."""
        return len(self.prompt_ids) + self.max_tokens
