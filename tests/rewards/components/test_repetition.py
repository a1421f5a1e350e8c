"""Text that repeats itself is punished; text that does not is not."""

from __future__ import annotations

import random
import time

import pytest
from samples import call, sample, turn, value

from verl_agentic.base.errors import ConfigError
from verl_agentic.rewards.components.repetition import repeated_share, repetition


def test_the_share_of_repeated_ngrams_is_counted() -> None:
    # a b c a b c a: of the 3-grams abc bca cab abc bca, two stood there before.
    assert repeated_share(["a b c a b c a"], n=3) == pytest.approx(0.4)
    assert repeated_share(["a b c d"], n=3) == repeated_share(["a b"], n=3) == repeated_share([], n=3) == 0.0
    assert repeated_share(["a b c", "a b c"], n=3) == 0.5, "turns that say the same repeat each other"
    assert repeated_share(["a b", "c d"], n=3) == 0.0, "no n-gram reaches from turn to turn"


def test_the_rolling_hash_counts_what_comparing_counts() -> None:
    rng = random.Random(0)
    for n in (1, 2, 5):
        words = [rng.choice("abc") for _ in range(300)]
        grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
        assert repeated_share([" ".join(words)], n=n) == pytest.approx(1 - len(set(grams)) / len(grams))


@pytest.mark.parametrize("loop", ["wait, let me check that again. ", "aaaaaaaaaa", "让我再检查一遍。", "?!", "ab\n"])
def test_loops_are_punished_in_any_script(loop: str) -> None:
    cost = value(repetition, sample(loop * 400))
    assert cost is not None and -1.0 <= cost < -0.7


def test_text_without_loops_costs_nothing() -> None:
    assert value(repetition, sample(" ".join(str(n) for n in range(2000)))) == 0.0
    assert value(repetition, sample("")) == value(repetition, sample([])) == 0.0


@pytest.mark.parametrize(
    "form", ["Wait, let me check that again ({}). ", "Step {}: I think about it. ", "again{} and again ", "{}. no! "]
)
@pytest.mark.parametrize("numbers", [range(400), range(1000, 600, -1)], ids=["up", "down"])
def test_a_counter_does_not_hide_a_loop(form: str, numbers: range) -> None:
    # without the counter's numbers it was 0.0
    cost = value(repetition, sample("".join(form.replace("{}", str(number)) for number in numbers)))
    assert cost is not None and cost < -0.7


@pytest.mark.parametrize("separator", [" ", ", ", "\n"])
def test_lists_and_tables_of_numbers_are_no_loops(separator: str) -> None:
    assert value(repetition, sample(separator.join(map(str, range(1000))))) == 0.0
    assert value(repetition, sample(separator.join(f"word{number}" for number in range(1000)))) == 0.0
    squares = "".join(f"For n = {n} the square is {n * n}, and the cube {n**3}. " for n in range(3, 200))
    assert value(repetition, sample(squares)) == 0.0


def test_calls_and_tool_output_may_repeat() -> None:
    same = turn("<call/> " * 100, call(), content="", observations=["x " * 1000])
    assert value(repetition, sample([same] * 5)) == 0.0


def test_repeated_reasoning_in_a_turn_is_punished_fully() -> None:
    assert value(repetition, sample("<think>a</think><think>b</think>")) == -1.0
    assert value(repetition, sample(["<think>a</think>", "<think>b</think>"])) == 0.0


def test_n_must_be_positive() -> None:
    with pytest.raises(ConfigError, match=r"repetition\.n"):
        repetition.make({"n": 0})
    assert value(repetition, sample("a a a a"), n=1) == pytest.approx(-0.75)


@pytest.mark.sample(3)
@pytest.mark.parametrize("piece", ["a", ".", "a ", "<think", "字"])
def test_ten_megabytes_are_judged_at_once(piece: str) -> None:
    episode = sample(piece * (10_000_000 // len(piece)), num_tokens=[1])
    started = time.process_time()
    value(repetition, episode)
    assert time.process_time() - started < 5.0
