"""Other verifiers on the pairs of `math_verifier.py`: each judges in a child process, and gets 2 seconds for a pair."""

from __future__ import annotations

import logging
import multiprocessing
import resource
from collections.abc import Callable, Sequence
from typing import Any

from math_pairs import Pair
from math_verify import parse, verify
from verl.utils.reward_score import math_dapo, prime_math

from verl_agentic.graders.maths.boxed_math import expression_of

_PAIR_S = 2.0


def _math_verify(response: str, truth: str) -> bool:
    no_limit: Any = None  # documented, although annotated as int
    gold = parse(f"\\boxed{{{truth}}}", parsing_timeout=no_limit)
    return bool(verify(gold, parse(response, parsing_timeout=no_limit), timeout_seconds=no_limit))


def _prime_math(response: str, truth: str) -> bool:
    verdict: Any = prime_math.compute_score(response, truth)
    return bool(verdict[0])


def _math_dapo(response: str, truth: str) -> bool:
    verdict: Any = math_dapo.compute_score(response, truth, strict_box_verify=True)
    return bool(verdict["acc"])


VERIFIERS: dict[str, Callable[[str, str], bool]] = {
    "math_verify": _math_verify,
    "prime_math": _prime_math,
    "math_dapo": _math_dapo,
}


def verdicts_of(name: str, pairs: Sequence[Pair]) -> list[bool]:
    """Returns whether a verifier finds each answer right; one that fails or takes too long does not."""
    verdicts: list[bool] = []
    child = _Child(name)
    for pair in pairs:
        verdict = child.judge(pair)
        if verdict is None:
            child.kill()
            child = _Child(name)
        verdicts.append(bool(verdict))
    child.kill()
    return verdicts


class _Child:
    """A process that judges pairs; signals do not end an operation on a large integer, so it is killed."""

    def __init__(self, name: str) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_judge_forever, args=(name, other))
        self._process.start()

    def judge(self, pair: Pair) -> bool | None:
        response = pair.answer if pair.is_response else f"The answer is $\\boxed{{{pair.answer}}}$."
        self._pipe.send((response, expression_of(pair.truth)))
        return self._pipe.recv() if self._pipe.poll(_PAIR_S) else None

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def _judge_forever(name: str, pipe: Any) -> None:
    logging.disable(logging.ERROR)
    # Where algebra of this child hangs in memory instead of time.
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    while True:
        response, truth = pipe.recv()
        try:
            verdict = VERIFIERS[name](response, truth)
        except Exception:  # foreign code may raise anything
            verdict = False
        pipe.send(verdict)
