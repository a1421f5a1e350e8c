"""Constraints on calls, and the choice of one of several calls by the engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from verl_agentic.base.errors import PolicyError
from verl_agentic.base.registry import load_address
from verl_agentic.base.types import Action, Observation
from verl_agentic.episode.policies.policy import Chooser, Policy

_LTL = "verl_agentic.methods.ltl"
"""Module of the constraints in linear temporal logic."""


class CallConstraint(Protocol):
    """The constraint of one episode, and its state."""

    @property
    def required_calls(self) -> tuple[str, ...]:
        """The tools of which one must come next; empty if the answer may come."""
        ...

    def apply(self, action: Action) -> Action:
        """Returns the action with its forbidden calls as errors; the others change the state."""
        ...

    def refuse_answer(self, action: Action) -> Observation | None:
        """Returns an error in place of the end of the episode, if an answer is not allowed yet."""
        ...


def check_constraint(spec: str) -> None:
    """Raises ConfigError if a specification cannot be read."""
    load_address(f"{_LTL}:parse_ltl", what="reader of constraints")(spec)


def make_constraint(spec: str, tools: Iterable[str]) -> CallConstraint | None:
    """Returns the constraint of an episode with these tools; None without a specification.

    Raises:
        ConfigError: it names other tools, or nothing satisfies it.
    """
    return load_address(f"{_LTL}:LtlConstraint", what="constraint of calls")(spec, tools) if spec else None


async def choose_call(
    policy: Policy, options: Sequence[Sequence[int]], *, stream: Sequence[int], request_id: str
) -> list[int]:
    """Returns one of several beginnings of calls, by the policy's own preferences where they differ.

    Args:
        policy: samples a token at each difference, if it is a `Chooser`.
        options: token ids of each beginning.
        stream: ids before them.
        request_id: of the episode.

    Returns nothing if there is no option, if one begins another one, if the engine cannot choose, or if it aborts.

    Raises:
        PolicyError: the engine sampled an id that is not allowed.
    """
    candidates, ids = [list(option) for option in options], list[int]()
    while len(candidates) > 1:
        if not isinstance(policy, Chooser) or any(len(option) <= len(ids) for option in candidates):
            return []
        allowed = sorted({option[len(ids)] for option in candidates})
        token = allowed[0]
        if len(allowed) > 1:
            completion = await policy.choose([*stream, *ids], allowed=allowed, request_id=request_id)
            if completion.finish_reason == "aborted" or not completion.token_ids:
                return []
            token = completion.token_ids[0]
        if token not in allowed:
            raise PolicyError(f"the engine must sample one of {allowed}, got {token}; it ignores allowed_token_ids")
        ids.append(token)
        candidates = [option for option in candidates if option[len(ids) - 1] == token]
    return candidates[0] if candidates else []
