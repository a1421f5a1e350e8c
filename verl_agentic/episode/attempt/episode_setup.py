"""Settings of all attempts at an episode: its limits, forced text, policy and codec."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import Settings, setting
from verl_agentic.episode.attempt.compaction import Compaction
from verl_agentic.episode.codec.clipping import Keep, TextTokenizer
from verl_agentic.episode.codec.codec import Codec
from verl_agentic.episode.policies.policy import Policy

PARTIAL_SOLUTION = "partial_solution"
"""Key of `extra_info` with a partial solution: the text of a first turn."""
FINAL_NOTICE = (
    "This is your last turn, and you have at most {tokens} tokens left. Calls are no longer carried out: "
    "give your final answer now."
)


class EpisodeLimits(Settings):
    """Token budgets and deadlines of one episode. Every deadline is on by default."""

    max_response_tokens: int = setting(min=1)
    """Maximum number of response tokens of a row, observations included. Default: `rollout.response_length`."""
    max_context_tokens: int = setting(min=1)
    """Maximum number of tokens of prompt and response together. Default: `prompt_length + response_length`."""
    max_turns: int = setting(8, min=1)
    """Maximum number of turns of the policy, the final answer included."""
    max_turn_tokens: int | None = setting(None, min=1)
    """Maximum number of tokens that the policy samples in one turn. None: no limit."""
    max_episode_tokens: int | None = setting(None, min=1)
    """Maximum number of tokens that the policy samples in all rows of the episode. None: no limit."""
    answer_reserve_tokens: int = setting(0, min=0)
    """Tokens that are reserved for the final answer. When only the reserve is left, and before the last turn, the
    policy gets `final_notice` and answers in a last turn, whose calls are not executed. 0: no reserve."""
    final_notice: str = FINAL_NOTICE
    """Message before the last turn; `{tokens}` is the number of tokens left. The reserve must hold both."""
    max_observation_tokens: int | None = setting(None, min=1)
    """Maximum number of tokens of one observation message. A longer one is cut, with a marker. None: no limit."""
    observation_keep: Keep = "middle"
    """Part of a cut observation that is kept: `head`, `tail`, or both ends (`middle`)."""
    max_calls_per_turn: int = setting(16, min=1)
    """Maximum number of tool calls of one turn. Further calls get an error."""
    start_timeout_s: float = setting(120.0, above=0)
    """Deadline of starting the environment, in seconds. After it the episode restarts in a fresh environment."""
    turn_timeout_s: float = setting(600.0, above=0)
    """Deadline of one generation, and of one step of the environment, in seconds."""
    episode_timeout_s: float = setting(1800.0, above=0)
    """Deadline of the whole episode with all retries, in seconds."""
    score_timeout_s: float = setting(60.0, above=0)
    """Deadline of scoring, in seconds."""
    close_timeout_s: float = setting(30.0, above=0)
    """Deadline of closing the environment, in seconds."""
    max_retries: int = setting(1, min=0)
    """Number of retries of an episode, in a fresh environment, after the environment or the server failed."""
    retry_wait_s: float = setting(0.5, min=0)
    """Wait before the first retry, in seconds. It doubles before each further retry."""

    def check_together(self) -> None:
        smallest = min(self.max_response_tokens, self.max_context_tokens)
        if self.answer_reserve_tokens >= smallest:
            raise ConfigError(
                f"answer_reserve_tokens must leave room for the turns before, got {self.answer_reserve_tokens} of "
                f"{smallest} tokens; lower it"
            )


class Exploration(Settings):
    """Text that the framework puts into turns of the policy. It is context (mask 0)."""

    epsilon_tool: float = setting(0.0, min=0, max=1)
    """Chance that a turn begins with a call of a tool chosen at random."""
    partial_solution: float = setting(0.0, min=0, max=1)
    """Share of the row's partial solution that the first turn begins with."""
    seed: int | str = 0
    """Seed of the choices; differs between episodes."""

    def tool(self, turn: int, tools: Sequence[str]) -> str | None:
        """Returns the tool that turn `turn` is forced to call, or None."""
        rng = random.Random(f"{self.seed}/{turn}")
        return rng.choice(list(tools)) if tools and rng.random() < self.epsilon_tool else None

    def beginning(self, row: EnvRow) -> str:
        """Returns the forced start of the first turn, or an empty text."""
        solution = row.extra.get(PARTIAL_SOLUTION) or ""
        return solution[: round(len(solution) * self.partial_solution)]


@dataclass(frozen=True, kw_only=True)
class EpisodeSetup:
    """Settings of all attempts at an episode."""

    policy: Policy
    codec: Codec
    tokenizer: TextTokenizer
    limits: EpisodeLimits
    compaction: Compaction | None = None
    exploration: Exploration = field(default_factory=Exploration)
    guidance: bool = False
    """Whether a failed episode (outcome below 1) is retried with the environment's guidance, if it gives any. Only the
    second attempt is trained, with the guidance in its prompt. Its siblings are the other guided sessions."""
    instruction: str = ""
    """Text that is added to the prompt of the environment, such as one of an evolving population."""
    constraint: str = ""
    """Specification in linear temporal logic of the calls that may come next; see `ltl`. Empty: any."""
    constraint_masks: bool = False
    """Whether the engine may only choose among allowed calls, where the answer is not allowed."""
    has_rubric: bool = False
    """Whether a rubric scores the episode later, so that the environment need not."""
