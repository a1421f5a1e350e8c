"""Plays guesses in every environment whose package is installed: nothing but solutions may be paid.

`ids`: environment ids that were played, and generators of reasoning-gym at two harder levels of its curricula (as many
as it has). `env_ids`: without those levels.

`paid_constants`: policies that are paid above their chance (exact binomial test, 0.001): constants, the empty answer,
solutions of other rows, lines of the question, negated, extended and prefixed solutions, and in worlds the same action
for ever. `refused_golds`: solutions that are not paid, as they are or with other spaces or case.

Seeds are fixed, so that two runs print the same counts.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import functools
import logging
import multiprocessing
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from _report import Target, progress, report

from verl_agentic.data.env_validation.answer_checks import check_answers
from verl_agentic.data.env_validation.env_harness import EnvHarness
from verl_agentic.data.env_validation.script_codec import make_script_codec
from verl_agentic.env_package import known_envs, load_env_package
from verl_agentic.errors import AgenticError

_ROWS = {"reasoning_gym": 20, "textarena": 6, "minigrid": 3, "bfcl": 4}
_OTHER_ROWS = 6
_MAX_SECONDS = 30
_SERVERS = ("agentgym", "appworld", "browsergym", "miniwob", "nemo_gym", "openenv", "remote", "verifiers")
"""Packages that need a server, a browser or data."""
_LEVELS = (1, 2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What was found for one id."""

    name: str
    paid: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    error: str = ""
    best_action: tuple[str, float] = ("", 0.0)
    elapsed_s: float = 0.0


def main() -> int:
    """Runs the measurements and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="play the ids that contain this")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default %(default)s)")
    options = parser.parse_args()
    started = time.perf_counter()
    ids = [(env_id, level) for env_id, level in _ids() if options.only in env_id]
    results = []
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for result in pool.imap_unordered(_play, ids):
            results.append(result)
            _show(result, f"{len(results)}/{len(ids)}")
    played = [result for result in results if not result.error]
    figures = {
        "ids": len(played),
        "env_ids": sum(" level " not in result.name for result in played),
        "paid_constants": sum(len(result.paid) for result in played),
        "refused_golds": sum(len(result.refused) for result in played),
        "skipped": len(results) - len(played),
        "best_action": max(played, key=lambda result: result.best_action[1]).best_action[1],
        "elapsed_s": round(time.perf_counter() - started, 1),
    }
    targets = {
        "ids": Target(bound=500),
        "paid_constants": Target(bound=0, at_least=False),
        "refused_golds": Target(bound=0, at_least=False),
    }
    return report("graders", ratios={}, figures=figures, targets=targets)


def _ids() -> Iterator[tuple[str, int]]:
    """Yields ids and levels; level 0 is that of the id itself."""
    for name in known_envs():
        card = load_env_package(name).card
        if name in _SERVERS or card is None:
            continue
        for task in card.tasks or ("",):
            env_id = f"{name}/{task}" if task else name
            yield from ((env_id, level) for level in ((0, *_LEVELS) if name == "reasoning_gym" else (0,)))


def _show(result: Result, place: str) -> None:
    action, outcome = result.best_action
    best = f"; {action}: {outcome:.2f}" if outcome else ""
    progress(f"{place} {result.elapsed_s:.1f} s {result.name}{f': skipped, {result.error}' if result.error else best}")
    for kind, faults in (("paid", result.paid), ("refused", result.refused)):
        for fault in faults:
            progress(f"  {kind}: {fault}")


def _play(place: tuple[str, int]) -> Result:
    env_id, level = place
    logging.disable(logging.CRITICAL)
    name = f"{env_id} level {level}" if level else env_id
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(_MAX_SECONDS)
    started = time.perf_counter()
    try:
        result = asyncio.run(_check(env_id, name, _options(env_id, level)))
    except (AgenticError, LookupError, _TooSlowError) as error:
        return Result(name=name, error=str(error).splitlines()[0][:160])
    finally:
        signal.alarm(0)
    return dataclasses.replace(result, elapsed_s=time.perf_counter() - started)


class _TooSlowError(BaseException):
    """An id took too long. It is no Exception, which graders may catch."""


def _stop(number: int, frame: Any) -> None:
    raise _TooSlowError(f"slower than {_MAX_SECONDS} s")


async def _check(env_id: str, name: str, options: Mapping[str, Any]) -> Result:
    package = load_env_package(env_id)
    assert package.make_rows is not None and package.gold is not None
    count = _ROWS.get(env_id.partition("/")[0], _OTHER_ROWS)
    rows = package.make_rows(split="test", count=count, seed=0, **options)
    tokenizer, codec = _codec()
    harness = EnvHarness(package=package, rows=rows, codec=codec, tokenizer=tokenizer, config={})
    solved = await harness.run_solution()
    is_solved = [not episode.is_void and episode.reward.outcome >= 1 for episode in solved]
    refused = [f"the solution of row {index}" for index, is_right in enumerate(is_solved) if not is_right]
    indices = [index for index, is_right in enumerate(is_solved) if is_right]
    found = await check_answers(harness, indices, [solved[index] for index in indices])
    return Result(name=name, paid=tuple(found.paid), refused=(*refused, *found.refused), best_action=found.best_action)


@functools.cache
def _codec() -> tuple[Any, Any]:
    return make_script_codec("chat")


def _options(env_id: str, level: int) -> dict[str, Any]:
    """Returns the options of a generator at a level of its curriculum.

    Raises:
        LookupError: it has no curriculum, or not so many levels.
    """
    if not level:
        return {}
    from reasoning_gym.factory import DATASETS, create_curriculum

    task = env_id.partition("/")[2]
    try:
        curriculum = create_curriculum(task)
    except ValueError as error:
        raise LookupError(f"no curriculum: {error}") from error
    before = _settings(curriculum.generate_configuration({"seed": 0, "size": 64}))
    for _ in range(level):
        curriculum.increment_global_level()
    after = _settings(curriculum.generate_configuration({"seed": 0, "size": 64}))
    if level and before == after:
        raise LookupError("its curriculum has no such level")
    default = _settings(DATASETS[task][1]())
    return {key: value for key, value in after.items() if default.get(key) != value}


def _settings(config: Any) -> dict[str, Any]:
    return {key: value for key, value in dataclasses.asdict(config).items() if key not in ("seed", "size")}


if __name__ == "__main__":
    sys.exit(main())
