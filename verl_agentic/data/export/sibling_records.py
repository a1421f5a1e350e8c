"""Records that compare siblings: pairs of trajectories, pairs of steps, and steps with their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any

from verl_agentic.data.export.choose_sessions import with_values
from verl_agentic.data.export.logged_sessions import LoggedSession, SessionLog
from verl_agentic.data.export.step_tree import Step, branch_points

STEP = "step"
"""Compares turns of one state by their Q, instead of whole trajectories."""
OUTCOME = "acc"
_Member = tuple[float, LoggedSession, Mapping[str, Any]]
StepValues = Callable[[Sequence[Step]], Sequence[float]]
"""The values of steps."""
_STATES_AT_ONCE = 64


def mean_outcomes(steps: Sequence[Step]) -> list[float]:
    """Returns the Q of each step."""
    return [step.value for step in steps]


def pair_records(
    log: SessionLog, sessions: Sequence[LoggedSession], *, value_name: str, min_gap: float, left_out: Counter[str]
) -> Iterator[dict[str, Any]]:
    """Yields the best and the worst sibling of each prompt in a step, if their values differ by more than `min_gap`.

    The first of equals counts. Siblings have equal prompts, so guided sessions are compared with guided ones.
    Episodes of several rows are left out, because their first row alone does not lead to their outcome.
    """
    for group in _iter_groups(log, sessions, value_name=value_name, left_out=left_out, only_whole=True):
        prompts: dict[tuple[int, ...], list[_Member]] = {}
        for member in group:
            prompts.setdefault(tuple(member[2]["prompt_ids"]), []).append(member)
        for siblings in prompts.values():
            sides = [(value, tokens["response_ids"], tokens["response_mask"]) for value, _, tokens in siblings]
            yield from _pair_extremes(
                sides, siblings[0][1], prompt_ids=siblings[0][2]["prompt_ids"], turn=None, min_gap=min_gap
            )


def step_pair_records(
    log: SessionLog,
    sessions: Sequence[LoggedSession],
    *,
    values: StepValues,
    min_continuations: int,
    min_gap: float,
    left_out: Counter[str],
) -> Iterator[dict[str, Any]]:
    """Yields the best and the worst turn of each state, if their values differ by more than `min_gap`."""
    states = _iter_states(log, sessions, min_continuations=min_continuations, left_out=left_out)
    for steps, step_values in _with_values((steps for steps in states if len(steps) > 1), values):
        sides = [(value, step.ids, step.mask) for value, step in zip(step_values, steps, strict=True)]
        first = steps[0]
        yield from _pair_extremes(sides, first.session, prompt_ids=first.state_ids, turn=first.turn, min_gap=min_gap)


def step_records(
    log: SessionLog,
    sessions: Sequence[LoggedSession],
    *,
    values: StepValues,
    min_continuations: int,
    left_out: Counter[str],
) -> Iterator[dict[str, Any]]:
    """Yields each turn with its value as `outcome`: a label for process reward models."""
    states = _iter_states(log, sessions, min_continuations=min_continuations, left_out=left_out)
    for steps, step_values in _with_values(states, values):
        for value, step in zip(step_values, steps, strict=True):
            yield {
                "prompt_ids": step.state_ids,
                "response_ids": step.ids,
                "response_mask": step.mask,
                "outcome": value,
                "continuations": len(step.outcomes),
                "turn": step.turn,
                **_name_session(step.session),
            }


def _iter_states(
    log: SessionLog, sessions: Sequence[LoggedSession], *, min_continuations: int, left_out: Counter[str]
) -> Iterator[list[Step]]:
    # A greedy baseline or a script is no sample, and would shift the mean outcome.
    sampled = [session for session in sessions if session.rows[-1]["role"] == "policy"]
    others = sum(len(session.rows) for session in sessions) - sum(len(session.rows) for session in sampled)
    left_out["that the policy did not sample (role)"] += others
    for group in _iter_groups(log, sampled, value_name=OUTCOME, left_out=left_out, only_whole=False):
        yield from branch_points(group, min_continuations=min_continuations)


def _with_values(states: Iterator[list[Step]], values: StepValues) -> Iterator[tuple[list[Step], Sequence[float]]]:
    """Yields the steps of each state with their values, which are asked for many states at a time."""
    while chunk := list(islice(states, _STATES_AT_ONCE)):
        all_values = iter(values([step for steps in chunk for step in steps]))
        yield from ((steps, list(islice(all_values, len(steps)))) for steps in chunk)


def _iter_groups(
    log: SessionLog, sessions: Sequence[LoggedSession], *, value_name: str, left_out: Counter[str], only_whole: bool
) -> Iterator[list[_Member]]:
    """Yields the sessions of each group with their value and the tokens of their first row."""
    for _, members in groupby(sessions, key=lambda session: session.group):
        group = list(members)
        whole = [session for session in group if len(session.own_rows) == 1 or not only_whole]
        left_out["of episodes with several rows"] += sum(len(s.rows) for s in group) - sum(len(s.rows) for s in whole)
        valued_members = with_values(whole, value_name=value_name, left_out=left_out)
        token_rows = log.tokens([session.own_rows[0] for _, session in valued_members])
        whole_tokens = [
            (value, session, tokens)
            for (value, session), tokens in zip(valued_members, token_rows, strict=True)
            if tokens
        ]
        left_out["with a secret"] += len(valued_members) - len(whole_tokens)
        yield [member for member in whole_tokens if any(member[2]["response_mask"])]


def _pair_extremes(
    sides: Sequence[tuple[float, list[int], list[int]]],
    session: LoggedSession,
    *,
    prompt_ids: list[int],
    turn: int | None,
    min_gap: float,
) -> Iterator[dict[str, Any]]:
    best, worst = max(sides, key=lambda side: side[0]), min(sides, key=lambda side: side[0])
    if best[0] - worst[0] > min_gap:
        yield {
            "prompt_ids": prompt_ids,
            **{"chosen_ids": best[1], "chosen_mask": best[2], "chosen_value": best[0]},
            **{"rejected_ids": worst[1], "rejected_mask": worst[2], "rejected_value": worst[0]},
            "turn": turn,
            **_name_session(session),
        }


def _name_session(session: LoggedSession) -> dict[str, Any]:
    return {name: session.rows[-1][name] for name in ("uid", "step", "env", "task_id")}
