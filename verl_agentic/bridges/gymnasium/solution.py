"""Shortest solutions of gymnasium's toy problems, with the random numbers that are going to be drawn."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

_MAX_STEPS = 128


def next_action(problem: Any) -> int | None:
    """Returns the first action of a shortest solution; None without one.

    Randomness follows from the seed of the row, so a slip of the next step is known.

    Args:
        problem: an unwrapped problem, in any state.
    """
    return _search_walk(problem) if hasattr(problem, "P") else _search_hits(problem)


def _search_walk(problem: Any) -> int | None:
    """Searches states at times: one random number is drawn in each step."""
    draws = copy.deepcopy(problem.np_random).random(_MAX_STEPS)
    ends: deque[tuple[int, int, int | None]] = deque([(int(problem.s), 0, None)])
    visited_states = {(int(problem.s), 0)}
    while ends:
        state, time, first = ends.popleft()
        if time == _MAX_STEPS:
            return None
        for action, transitions in problem.P[state].items():
            following, reward, is_end = _draw_outcome(transitions, draws[time])
            begun = action if first is None else first
            if is_end and (reward > 0 or not hasattr(problem, "desc")):  # only the goal ends a walk along the cliff
                return begun
            if not is_end and (following, time + 1) not in visited_states:
                visited_states.add((following, time + 1))
                ends.append((following, time + 1, begun))
    return None


def _draw_outcome(transitions: Any, draw: float) -> tuple[int, float, bool]:
    total = 0.0
    for probability, following, reward, is_end in transitions:
        total += probability
        if total > draw:
            return int(following), float(reward), bool(is_end)
    _, following, reward, is_end = transitions[0]  # as numpy's argmax of nothing
    return int(following), float(reward), bool(is_end)


def _search_hits(problem: Any) -> int | None:
    """Searches the number of cards to draw before a hand of blackjack is won."""
    hits = 0
    while True:
        tried = copy.deepcopy(problem)
        for _ in range(hits):
            if tried.step(1)[2]:
                return None
        if tried.step(0)[1] > 0:
            return 1 if hits else 0
        hits += 1
