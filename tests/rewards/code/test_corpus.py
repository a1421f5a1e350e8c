"""The code verifier against programs that are known to be right or wrong; `benchmarks/code_verifier.py` judges more."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import Counter
from typing import Any

import pytest
from code_programs import Program, is_found_right, make_programs, sandboxes

from verl_agentic.base.errors import ConfigError, SandboxUnavailableError
from verl_agentic.graders.code.code_answer import CodeOptions
from verl_agentic.graders.code.run_tests import CodeRules


@functools.cache
def programs() -> list[Program]:
    return make_programs(rounds=1)


async def misjudged(programs: list[Program]) -> list[str]:
    """Returns the programs whose verdict is not the known one."""
    try:
        async with sandboxes() as (pool, lacking):
            able = [program for program in programs if program.needs not in lacking]
            found = await asyncio.gather(*(is_found_right(program, pool) for program in able))
    except SandboxUnavailableError as reason:
        pytest.skip(str(reason))
    return [str(one) for one, is_right in zip(able, found, strict=True) if one.is_right != is_right]


@pytest.mark.slow
async def test_a_part_of_the_corpus_is_judged_as_known() -> None:
    assert await misjudged(programs()[::7]) == []


@pytest.mark.slow
async def test_numbers_of_any_length_packages_and_ends_of_programs_are_judged_as_known() -> None:
    styles = {"big_integers", "numpy", "checker", "prelude", "other_language", "numbers", "writes_own_stdout_del"}
    chosen = [one for one in programs() if one.style in styles or one.style.startswith("ends_by_")]
    assert await misjudged(chosen) == []


@pytest.mark.slow
def test_the_corpus_is_large_enough_and_the_same_each_time() -> None:
    whole = make_programs()
    count = Counter(program.is_right for program in whole)
    assert count[True] >= 300 and count[False] >= 150
    assert len({program.style for program in whole if program.is_right}) >= 15
    assert whole == make_programs()


async def test_outputs_are_compared_outside_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second of comparing would hold up every episode that the loop plays."""
    threads: list[int] = []
    compare = CodeRules.is_right

    def recorded(self: CodeRules, *args: Any) -> bool:
        threads.append(threading.get_ident())
        return compare(self, *args)

    monkeypatch.setattr(CodeRules, "is_right", recorded)
    assert await misjudged([one for one in programs() if one.style == "large_output"]) == []
    assert threads and threading.get_ident() not in threads


@pytest.mark.parametrize(
    ("option", "value"), [("language", "cobol"), ("tolerance", 1.0), ("tolerance", -1e-9), ("checker", "hope")]
)
def test_options_that_cannot_work_are_refused(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=option):
        CodeOptions.of({option: value})
