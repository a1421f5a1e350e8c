"""The budgets and deadlines of an episode."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from verl_agentic.agent_loops.codec.clipping import KEEPS, Keep
from verl_agentic.errors import ConfigError
from verl_agentic.settings import read_settings

FINAL_NOTICE = (
    "This is your last turn, and you have at most {tokens} tokens left. Calls are no longer carried out: "
    "give your final answer now."
)
_MAY_BE_ZERO = {"answer_reserve_tokens", "max_retries", "retry_wait_s"}
_TEXTS = {"final_notice", "observation_keep"}


@dataclass(frozen=True, kw_only=True)
class EpisodeLimits:
    """What one episode may use. Every deadline has a default that is on."""

    max_response_tokens: int
    """Most tokens of the response of a training row, observations included."""
    max_context_tokens: int
    """Most tokens of prompt and response together."""
    max_turns: int = 8
    """Most turns of the policy, the final answer included."""
    max_turn_tokens: int | None = None
    """Most tokens that the policy may sample in one turn; None leaves only the other budgets."""
    max_episode_tokens: int | None = None
    """Most tokens that the policy may sample in all rows of the episode; None leaves only the other budgets."""
    answer_reserve_tokens: int = 0
    """Tokens that are kept for the final answer. When only they are left, and before the last turn, the policy is told
    so, and answers in a last turn; its calls are not carried out there. 0: budgets just end the episode."""
    final_notice: str = FINAL_NOTICE
    """What it is told; `{tokens}` stands for what is left. Must fit into the reserve together with the answer."""
    max_observation_tokens: int | None = None
    """Most tokens of one observation message; more is cut, with a marker. None: no cap but the context."""
    observation_keep: Keep = "middle"
    """What is kept of a cut observation: `head`, `tail`, or both ends (`middle`)."""
    max_calls_per_turn: int = 16
    """Calls of one turn beyond this many are answered with an error."""
    start_timeout_s: float = 120.0
    """Deadline of starting the environment; past it the episode begins anew in a fresh one."""
    turn_timeout_s: float = 600.0
    """Deadline of one turn: generation, or the environment's answer, each."""
    episode_timeout_s: float = 1800.0
    """Deadline of the whole episode, start, turns and retries."""
    score_timeout_s: float = 60.0
    """Deadline of scoring."""
    close_timeout_s: float = 30.0
    """Deadline of releasing the environment."""
    max_retries: int = 1
    """How often an episode begins anew, in a fresh environment, after environment or server have failed."""
    retry_wait_s: float = 0.5
    """Wait before the first retry; twice as long before each further one."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is None or item.name in _TEXTS:
                continue
            if item.name in _MAY_BE_ZERO:
                if not value >= 0:
                    raise ConfigError(f"{item.name} must not be negative, got {value!r}")
            elif not value > 0:
                raise ConfigError(f"{item.name} must be positive, got {value!r}")
        if self.observation_keep not in KEEPS:
            raise ConfigError(f"observation_keep must be one of {list(KEEPS)}, got {self.observation_keep!r}")
        smallest = min(self.max_response_tokens, self.max_context_tokens)
        if self.answer_reserve_tokens >= smallest:
            raise ConfigError(
                f"answer_reserve_tokens must leave room for the turns before, got {self.answer_reserve_tokens} of "
                f"{smallest} tokens; lower it"
            )

    @classmethod
    def from_mapping(cls, values: Any, *, section: str = "limits", **defaults: Any) -> EpisodeLimits:
        """Returns limits from a config section; `defaults` fill what it leaves out.

        Raises:
            ConfigError: an unknown key, or a value of a wrong type or out of range.
        """
        return read_settings(cls, values, section=section, **defaults)
