"""Tree search over turns: attempts at one task share a tree of states, and take the turns that it promises most of.

A state is the tokens of a conversation, so the tree needs neither snapshots nor replays: an attempt begins at the root,
and an environment that answers alike leads it to the same states. A state of the first visit takes one sampled turn
(rollout). At the second visit it gets `width` turns (expansion), of which UCB1 chooses one. The outcome of the episode
is backed up to all of its turns.

The turns are not a sample of the policy's distribution, so they are for pairs of steps, not for policy gradients.

Paper: https://arxiv.org/abs/2408.07199 (Agent Q, section 4: MCTS with an AI critique of the turns of a state)

Deviations: the critic gives each turn a value, not a rank; a state is expanded at its second visit.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from verl_agentic.base.errors import ConfigError, PolicyError, boundary
from verl_agentic.base.settings import Settings, setting
from verl_agentic.base.types import Message
from verl_agentic.episode.codec.clipping import TextTokenizer
from verl_agentic.episode.policies.policy import Completion, Policy
from verl_agentic.episode.records.episode import Episode
from verl_agentic.evaluate.policies.best_of import QFunction


class TreeSettings(Settings):
    """Settings of the search."""

    width: int = setting(4, min=2)
    """Turns of an expanded state."""
    exploration: float = setting(1.0, min=0)
    """Weight of the exploration term of UCB1."""
    q: str = ""
    """Address of the critic, a function (messages, text of a turn) -> value from 0 to 1. Empty: no critic."""
    weight: float = setting(0.5, min=0, max=1)
    """Weight of the critic's value; that of the mean outcome is the rest."""

    def check_together(self) -> None:
        if self.weight != TreeSettings.weight and not self.q:
            raise ConfigError(
                f"weight is that of a critic, got weight={self.weight} without q; name it, or unset weight"
            )


@dataclass(eq=False, kw_only=True)
class SearchBranch:
    """A turn of a state."""

    completion: Completion
    critique: float | None = None
    """The critic's value; None without a critic, or before the state is expanded."""
    visits: int = 0
    """Attempts that took it, running ones included: so parallel attempts spread out."""
    outcomes: list[float] = field(default_factory=list)
    """Outcomes of the attempts that took it and have ended."""


@dataclass(eq=False, kw_only=True)
class _State:
    branches: list[SearchBranch] = field(default_factory=list)
    is_expanded: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


def ucb_score(branch: SearchBranch, *, visits: int, weight: float, exploration: float) -> float:
    """Returns `(1 - weight) * Q + weight * critique + exploration * sqrt(ln(visits) / (1 + visits of the branch))`.

    Q is the mean outcome. Without outcomes the critique counts alone, and without a critique Q. Without both it is 0.

    Args:
        branch: of the state.
        visits: of the state, this one included.
        weight: of the critique.
        exploration: weight of the last term.
    """
    parts = [] if branch.critique is None else [(weight, branch.critique)]
    if branch.outcomes:
        parts.append((1 - weight, sum(branch.outcomes) / len(branch.outcomes)))
    total = sum(share for share, _ in parts)
    value = sum(share * part for share, part in parts) / total if total else 0.0
    return value + exploration * math.sqrt(math.log(visits) / (1 + branch.visits))


class SearchTree:
    """The states that attempts at one task have visited."""

    def __init__(self, settings: TreeSettings, critic: QFunction | None = None) -> None:
        """Makes an empty tree; `critic` is what `settings.q` names."""
        self.settings = settings
        self._critic = critic
        self._states: dict[tuple[int, ...], _State] = {}

    async def take_turn(
        self,
        state_ids: tuple[int, ...],
        *,
        sample: Callable[[int], Sequence[Awaitable[Completion]]],
        read: Callable[[Completion], tuple[Sequence[Message], str]],
    ) -> SearchBranch:
        """Returns the turn that the next attempt takes in a state, and counts the visit.

        Args:
            state_ids: tokens before the turn.
            sample: number -> that many sampled turns.
            read: turn -> the conversation before it, and its text.
        """
        is_new = state_ids not in self._states
        state = self._states.setdefault(state_ids, _State())
        async with state.lock:
            if is_new or not state.is_expanded:
                missing = 1 if is_new else self.settings.width - len(state.branches)
                _add_branches(state, await asyncio.gather(*sample(missing)))
            if not is_new and not state.is_expanded:
                await asyncio.gather(*(self._criticise(branch, *read(branch.completion)) for branch in state.branches))
                state.is_expanded = True
            visits = 1 + sum(branch.visits for branch in state.branches)
            weight, exploration = self.settings.weight, self.settings.exploration
            chosen = max(
                state.branches,
                key=lambda branch: ucb_score(branch, visits=visits, weight=weight, exploration=exploration),
            )
            chosen.visits += 1
            return chosen

    async def _criticise(self, branch: SearchBranch, messages: Sequence[Message], text: str) -> None:
        if self._critic is None:
            return
        with boundary(PolicyError, "the critic of the tree search"):
            value = self._critic(messages, text)
            value = float(await value if inspect.isawaitable(value) else value)
            if not math.isfinite(value):
                raise ValueError(f"a value must be a finite number, got {value}")
        branch.critique = value


def _add_branches(state: _State, sampled: Sequence[Completion]) -> None:
    """Adds turns to a state, each text once; those that a server refused only if there is no other."""
    whole = [completion for completion in sampled if completion.finish_reason in ("stop", "length")]
    for completion in whole or sampled[: not state.branches]:
        if all(list(branch.completion.token_ids) != list(completion.token_ids) for branch in state.branches):
            state.branches.append(SearchBranch(completion=completion))


@dataclass(kw_only=True)
class TreeSearchPolicy:
    """The policy of one attempt: takes the turns of the tree, and backs up the outcome at its end."""

    policies: Sequence[Policy]
    """One for each turn of an expanded state; policies with seeds have different ones."""
    tokenizer: TextTokenizer
    tree: SearchTree
    path: dict[tuple[int, ...], SearchBranch] = field(default_factory=dict)
    """State -> the turn that this attempt took there last."""

    async def generate(
        self, prompt_ids: Sequence[int], *, messages: Sequence[Message], max_tokens: int, request_id: str
    ) -> Completion:
        """Takes a turn; see `Policy.generate`. Raises PolicyError if the critic fails."""

        def sample(count: int) -> list[Awaitable[Completion]]:
            return [
                policy.generate(
                    prompt_ids, messages=messages, max_tokens=max_tokens, request_id=f"{request_id}-{number}"
                )
                for number, policy in enumerate(self.policies[:count])
            ]

        state_ids = tuple(prompt_ids)
        if (given_up := self.path.pop(state_ids, None)) is not None:  # an attempt that is repeated after a failure
            given_up.visits -= 1
        branch = await self.tree.take_turn(
            state_ids,
            sample=sample,
            read=lambda completion: (messages, self.tokenizer.decode(list(completion.token_ids))),
        )
        self.path[state_ids] = branch
        return branch.completion

    def finish(self, episode: Episode) -> None:
        """Backs up the outcome of the episode; turns of attempts that were repeated after a failure do not count."""
        rows = [] if episode.is_void else [tuple(row.token_ids) for row in episode.trajectories]
        for state_ids, branch in self.path.items():
            if any(ids[: len(state_ids)] == state_ids for ids in rows):
                branch.outcomes.append(episode.reward.outcome)
            else:
                branch.visits -= 1
