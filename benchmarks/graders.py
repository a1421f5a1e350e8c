"""Plays guesses in every environment whose package is installed: nothing but solutions may be paid.

`env_ids`: environment ids that were played. `ids`: these, and generators of reasoning-gym at two harder levels of their
curricula, on the rows that no lower level has. A level counts only if these are half of its rows or more.

`paid_constants`: policies that are paid above their chance (exact binomial test, 0.001): constants, the empty answer,
solutions of other rows, lines of the question, negated, extended and prefixed solutions, and in worlds the same action
for ever. `refused_golds`: solutions that are not paid, as they are or with other spaces or case. `skipped`: ids whose
package is not installed or that take 30 s of CPU time, and levels that do not exist or take 10 s. `cpu_s`: of all
processes.

Seeds are fixed, so that two runs print the same counts.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import functools
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from _report import Target, progress, report

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import AgenticError, ConfigError
from verl_agentic.episode.env_package import EnvPackage, known_envs, load_env_package
from verl_agentic.evaluate.env_validation.answer_checks import check_answers
from verl_agentic.evaluate.env_validation.env_harness import EnvHarness
from verl_agentic.evaluate.env_validation.script_codec import make_script_codec

_ROWS = {"reasoning_gym": 20, "textarena": 6, "minigrid": 3, "bfcl": 4}
_LEVEL_ROWS, _OTHER_ROWS = 8, 6
_MAX_CPU_S, _MAX_LEVEL_CPU_S = 30.0, 10.0
_SERVERS = ("agentgym", "appworld", "browsergym", "miniwob", "nemo_gym", "openenv", "remote", "verifiers")
"""Packages that need a server, a browser or data."""
_LEVELS = (1, 2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """The findings of one id."""

    name: str
    paid: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    error: str = ""
    best_action: tuple[str, float] = ("", 0.0)
    cpu_s: float = 0.0


def main() -> int:
    """Runs the measurements and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="play the ids that contain this")
    parser.add_argument("--rows", type=int, metavar="N", help="rows of each id (default: 3 to 20)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default %(default)s)")
    options = parser.parse_args()
    started = time.perf_counter()
    ids = sorted((env_id for env_id in _ids() if options.only in env_id), reverse=True)
    results: list[Result] = []
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for number, found in enumerate(
            pool.imap_unordered(functools.partial(_play_levels, num_rows=options.rows), ids), start=1
        ):
            results += found
            for result in found:
                _show(result, f"{number}/{len(ids)}")
        pool.close()
        pool.join()
    played = [result for result in results if not result.error]
    figures = {
        "ids": len(played),
        "env_ids": sum(" level " not in result.name for result in played),
        "paid_constants": sum(len(result.paid) for result in played),
        "refused_golds": sum(len(result.refused) for result in played),
        "skipped": len(results) - len(played),
        "best_action": max(played, key=lambda result: result.best_action[1]).best_action[1],
        "cpu_s": round(sum(os.times()[:4]), 1),
        "elapsed_s": round(time.perf_counter() - started, 1),
    }
    targets = {
        "ids": Target(bound=500),
        "paid_constants": Target(bound=0, at_least=False),
        "refused_golds": Target(bound=0, at_least=False),
        "cpu_s": Target(bound=720, at_least=False, is_goal=True),
    }
    return report("graders", ratios={}, figures=figures, targets=targets)


def _ids() -> Iterator[str]:
    for name in known_envs():
        card = load_env_package(name).card
        if name not in _SERVERS and card is not None:
            yield from (f"{name}/{task}" if task else name for task in card.tasks or ("",))


def _show(result: Result, place: str) -> None:
    action, outcome = result.best_action
    best = f"; {action}: {outcome:.2f}" if outcome else ""
    progress(f"{place} {result.cpu_s:.1f} s {result.name}{f': skipped, {result.error}' if result.error else best}")
    for kind, faults in (("paid", result.paid), ("refused", result.refused)):
        for fault in faults:
            progress(f"  {kind}: {fault}")


def _play_levels(env_id: str, *, num_rows: int | None) -> list[Result]:
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGPROF, _stop)
    results: list[Result] = []
    prompts: set[str] = set()
    for level in (0, *_LEVELS) if env_id.startswith("reasoning_gym/") else (0,):
        began_s = time.process_time()
        result = _play(env_id, level, prompts, num_rows)
        results.append(dataclasses.replace(result, cpu_s=time.process_time() - began_s))
    return results


def _play(env_id: str, level: int, prompts: set[str], num_rows: int | None) -> Result:
    name = f"{env_id} level {level}" if level else env_id
    signal.setitimer(signal.ITIMER_PROF, _MAX_LEVEL_CPU_S if level else _MAX_CPU_S)
    try:
        return asyncio.run(_check(env_id, name, level, prompts, num_rows))
    except (AgenticError, LookupError, _TooSlowError) as error:
        return Result(name=name, error=str(error).splitlines()[0][:160])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


class _TooSlowError(BaseException):
    """An id took too long. It is no Exception, which graders may catch."""


def _stop(number: int, frame: Any) -> None:
    raise _TooSlowError("it takes too much CPU time")


async def _check(env_id: str, name: str, level: int, prompts: set[str], num_rows: int | None) -> Result:
    package = load_env_package(env_id)
    assert package.make_rows is not None and package.gold is not None
    count = num_rows or (_LEVEL_ROWS if level else _ROWS.get(env_id.partition("/")[0], _OTHER_ROWS))
    rows = _make_rows(package, count, _options(env_id, level))
    new = [row for row in rows if not level or row.prompt[-1].content not in prompts]
    if len(new) < len(rows) / 2:
        raise LookupError("it has the prompts of a lower level")
    rows = new
    prompts |= {row.prompt[-1].content for row in rows}
    tokenizer, codec = _codec()
    harness = EnvHarness(package=package, rows=rows, codec=codec, tokenizer=tokenizer, config={})
    solved = await harness.run_solution()
    is_solved = [not episode.is_void and episode.reward.outcome >= 1 for episode in solved]
    refused = [f"the solution of row {index}" for index, is_right in enumerate(is_solved) if not is_right]
    indices = [index for index, is_right in enumerate(is_solved) if is_right]
    found = await check_answers(harness, indices, [solved[index] for index in indices])
    return Result(name=name, paid=tuple(found.paid), refused=(*refused, *found.refused), best_action=found.best_action)


def _make_rows(package: EnvPackage, count: int, options: Mapping[str, Any]) -> list[EnvRow]:
    """Returns rows, half as many or fewer where an id has no more."""
    assert package.make_rows is not None
    while True:
        try:
            return package.make_rows(split="test", count=count, seed=0, **options)
        except ConfigError:
            if count == 1:
                raise
            count //= 2


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
