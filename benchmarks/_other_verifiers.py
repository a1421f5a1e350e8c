"""Other verifiers on the pairs of `math_verifier.py`: each judges in a child process, and gets 5 seconds for a pair."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from typing import Any

from math_pairs import Pair

from verl_agentic.rewards.answers.boxed_math import expression_of

_PAIR_S = 5


def _math_verify(response: str, truth: str) -> bool:
    from math_verify import parse, verify

    return bool(
        verify(
            parse(f"\\boxed{{{truth}}}", parsing_timeout=None),
            parse(response, parsing_timeout=None),
            timeout_seconds=None,
        )
    )


def _prime_math(response: str, truth: str) -> bool:
    from verl.utils.reward_score.prime_math import compute_score

    return bool(compute_score(response, truth)[0])


def _math_dapo(response: str, truth: str) -> bool:
    from verl.utils.reward_score.math_dapo import compute_score

    return bool(compute_score(response, truth, strict_box_verify=True)["acc"])


VERIFIERS: dict[str, Callable[[str, str], bool]] = {
    "math_verify": _math_verify,
    "prime_math": _prime_math,
    "math_dapo": _math_dapo,
}


def verdicts_of(name: str, pairs: Sequence[Pair]) -> list[bool]:
    """Returns whether a verifier finds each answer right; one that fails or takes too long does not."""
    with multiprocessing.get_context("spawn").Pool(1, initializer=_start) as pool:
        return pool.starmap(_verdict, ((name, pair) for pair in pairs))


def _start() -> None:
    import logging

    logging.disable(logging.ERROR)


def _verdict(name: str, pair: Pair) -> bool:
    def stop(*_: Any) -> None:
        raise TimeoutError

    response = pair.answer if pair.is_response else f"The answer is $\\boxed{{{pair.answer}}}$."
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(_PAIR_S)
    try:
        return VERIFIERS[name](response, expression_of(pair.truth))
    except Exception:  # foreign code may raise anything
        return False
    finally:
        signal.alarm(0)
