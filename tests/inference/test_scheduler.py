"""Steps one by one: who is in the batch, what is computed again, and how much memory is held."""

from __future__ import annotations

import random
import statistics
from typing import Any, cast

import pytest
from reference_model import Stepped, hf_greedy, plain_log_probs, prompt

from verl_agentic.base.errors import ConfigError
from verl_agentic.cpu.inference import span as spans
from verl_agentic.cpu.inference.request import Generation
from verl_agentic.cpu.inference.span import SlotSpan


def only(outcome: list[Generation | Exception]) -> Generation:
    (generation,) = outcome
    assert isinstance(generation, Generation)
    return generation


def assert_plain(model: Any, prompt_ids: list[int], generation: Generation) -> None:
    """Asserts tokens and log-probs of a lone plain pass."""
    assert generation.token_ids == hf_greedy(model, prompt_ids, len(generation.token_ids), eos_token_id=None)
    expected = plain_log_probs(model, prompt_ids, generation.token_ids)
    assert generation.log_probs == pytest.approx(expected, abs=1e-4)


def test_a_request_joins_and_leaves_a_running_batch(model: Any, tokenizer: Any) -> None:
    stepped = Stepped(model, tokenizer)
    long = stepped.submit(prompt(0, 30), max_tokens=30)
    stepped.step(5)
    short = stepped.submit(prompt(1, 20), max_tokens=4)
    stepped.step(1)
    assert len(stepped.scheduler.running) == 2 and not long and not short
    stepped.step(3)
    assert len(stepped.scheduler.running) == 1 and not long
    assert_plain(model, prompt(1, 20), only(short))
    stepped.finish()
    assert_plain(model, prompt(0, 30), only(long))


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 10))])
@pytest.mark.parametrize("budget", [100_000, 700])
def test_any_mix_of_arrivals_ends_and_departures_computes_what_a_lone_pass_computes(
    seed: int, budget: int, model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "_CHUNK_ROWS", 3)
    rng = random.Random(seed)
    stepped = Stepped(model, tokenizer, prefill_tokens=48, max_running=8, max_cached_tokens=budget)
    shared = prompt(99, 40)
    cases = []
    for case in range(16):
        ids = shared[: rng.choice((0, 20, 40))] + prompt(1000 * seed + case, rng.randint(1, 60))
        cases.append((ids, stepped.submit(ids, max_tokens=rng.randint(1, 25))))
        stepped.step(rng.randint(0, 4))
        if rng.random() < 0.2 and stepped.scheduler.running:
            stepped.scheduler.drop(rng.choice(stepped.scheduler.running))
    stepped.finish()
    served = [(ids, outcome) for ids, outcome in cases if outcome]
    assert len(served) >= 5
    for ids, outcome in served:
        assert_plain(model, ids, only(outcome))
    assert stepped.most_cached <= budget


@pytest.mark.slow
def test_short_requests_do_not_attend_over_the_slots_of_long_ones(
    model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "_CHUNK_ROWS", 4)
    rng, stepped = random.Random(0), Stepped(model, tokenizer, prefill_tokens=10_000)
    decoder, shares = cast(Any, stepped.scheduler._decoder), []
    forward = decoder.forward

    def watched(span: SlotSpan, cache: Any) -> Any:
        if span.ids_BT.shape[1] == 1:
            attended = sum((end - begin) * reach for begin, end, reach in span.chunks)
            shares.append(float((span.positions_BT + 1).sum()) / attended)
        return forward(span, cache)

    decoder.forward = watched
    for case in range(24):
        stepped.submit(prompt(case, rng.randint(8, 200)), max_tokens=rng.randint(15, 60))
    stepped.finish()
    assert len(shares) > 40 and statistics.mean(shares) > 0.85, shares


def test_turn_k_computes_only_its_new_tokens(model: Any, tokenizer: Any) -> None:
    stepped = Stepped(model, tokenizer)
    stream = prompt(0, 50)
    for turn in range(4):
        before = stepped.scheduler.counts["prefill_tokens"]
        outcome = stepped.submit(stream, max_tokens=10)
        stepped.finish()
        generation = only(outcome)
        assert_plain(model, stream, generation)
        computed = stepped.scheduler.counts["prefill_tokens"] - before
        # The newest sampled token of a turn has not been through the model yet: it comes with the observation.
        assert computed == (50 if turn == 0 else 31) and generation.num_cached_tokens == len(stream) - computed
        stream = stream + generation.token_ids + prompt(turn + 1, 30)


def test_siblings_of_a_group_compute_their_prompt_once(model: Any, tokenizer: Any) -> None:
    stepped = Stepped(model, tokenizer, prefill_tokens=16)
    outcomes = [stepped.submit(prompt(0, 80), max_tokens=5) for _ in range(8)]
    stepped.finish()
    for outcome in outcomes:
        assert_plain(model, prompt(0, 80), only(outcome))
    assert stepped.scheduler.counts["prefill_tokens"] == 80 + 7


def test_prompts_that_arrive_together_are_computed_together(model: Any, tokenizer: Any) -> None:
    stepped = Stepped(model, tokenizer)
    groups = [prompt(99, 40) + prompt(group, rng_length) for group, rng_length in enumerate((25, 30, 42, 50, 21, 38))]
    outcomes = [(ids, stepped.submit(ids, max_tokens=12)) for ids in groups for _ in range(4)]
    # One prompt for the common part, then one of each group, then the last token of every sibling.
    stepped.step(3)
    assert len(stepped.scheduler.running) == 24 and not stepped.scheduler.waiting
    stepped.finish()
    for ids, outcome in outcomes:
        assert_plain(model, ids, only(outcome))
    assert stepped.scheduler.counts["prefill_tokens"] == 40 + sum(len(ids) - 40 for ids in groups) + 18


def test_without_reuse_everything_is_computed(model: Any, tokenizer: Any) -> None:
    stepped = Stepped(model, tokenizer, prefix_reuse=False)
    for _ in range(2):
        outcome = stepped.submit(prompt(0, 50), max_tokens=3)
        stepped.finish()
        assert only(outcome).num_cached_tokens == 0
    assert stepped.scheduler.counts["prefill_tokens"] == 100


def test_decoding_goes_on_while_a_long_prompt_is_computed_in_pieces(model: Any, tokenizer: Any) -> None:
    stepped = Stepped(model, tokenizer, prefill_tokens=16)
    stepped.submit(prompt(0, 4), max_tokens=100)
    stepped.step()
    stepped.submit(prompt(1, 160), max_tokens=5)
    counts = stepped.scheduler.counts
    before = counts["generated_tokens"]
    stepped.step(9)
    assert counts["generated_tokens"] == before + 9
    stepped.step(1)
    assert counts["generated_tokens"] == before + 9 + 3  # the last piece gives a first token, and the step goes on


def test_memory_stays_below_the_bound_and_old_prefixes_go_first(model: Any, tokenizer: Any) -> None:
    stepped = Stepped(model, tokenizer, max_cached_tokens=512)
    for conversation in range(6):
        stepped.submit(prompt(conversation, 100), max_tokens=4)
        stepped.finish()
    assert 0 < stepped.most_cached <= 512
    again = [stepped.submit(prompt(conversation, 100), max_tokens=4) for conversation in (5, 0)]
    stepped.finish()
    assert [only(outcome).num_cached_tokens for outcome in again] == [99, 0]


@pytest.mark.slow
def test_requests_wait_for_memory_and_are_all_served(model: Any, tokenizer: Any) -> None:
    stepped = Stepped(model, tokenizer, max_cached_tokens=256)
    outcomes = [stepped.submit(prompt(seed, 60), max_tokens=20) for seed in range(6)]
    stepped.step(2)
    assert len(stepped.scheduler.running) == 2 and len(stepped.scheduler.waiting) == 4
    stepped.finish()
    for seed, outcome in enumerate(outcomes):
        assert_plain(model, prompt(seed, 60), only(outcome))
    assert stepped.most_cached <= 256


def test_kept_conversations_survive_when_requests_may_grow_long_but_do_not(model: Any, tokenizer: Any) -> None:
    # Each asks for up to 400 tokens and takes 3: memory is held for what is there, not for what might come.
    stepped = Stepped(model, tokenizer, max_cached_tokens=4 * 512)
    stops = hf_greedy(model, prompt(0, 50), 3, eos_token_id=None)[2]
    first = stepped.submit(prompt(0, 50), max_tokens=400, stop_token_ids=(stops,))
    stepped.finish()
    others = [stepped.submit(prompt(seed, 50), max_tokens=400, stop_token_ids=tuple(range(386))) for seed in (1, 2, 3)]
    stepped.finish()
    assert len(only(first).token_ids) <= 3 and all(len(only(o).token_ids) == 1 for o in others)
    again = stepped.submit(prompt(0, 50), max_tokens=400, stop_token_ids=tuple(range(386)))
    stepped.finish()
    assert only(again).num_cached_tokens == 49


def test_a_request_that_can_never_fit_is_refused(model: Any, tokenizer: Any) -> None:
    stepped = Stepped(model, tokenizer, max_cached_tokens=128)
    with pytest.raises(ConfigError, match="max_cached"):
        stepped.submit(prompt(0, 100), max_tokens=50)
    assert not stepped.scheduler.waiting


def test_no_more_than_max_running_are_in_the_batch(model: Any, tokenizer: Any) -> None:
    stepped = Stepped(model, tokenizer, max_running=3)
    outcomes = [stepped.submit(prompt(seed, 10), max_tokens=5) for seed in range(7)]
    stepped.step(2)
    assert len(stepped.scheduler.running) == 3
    stepped.finish()
    assert all(len(only(outcome).token_ids) == 5 for outcome in outcomes)


def test_memory_that_cannot_be_had_fails_those_who_wait_for_it(model: Any, tokenizer: Any) -> None:
    stepped = Stepped(model, tokenizer)
    outcomes = [stepped.submit(prompt(seed, 10), max_tokens=5) for seed in range(2)]
    resize = stepped.scheduler._cache.resize

    def no_memory(**_: int) -> None:
        raise RuntimeError("can't allocate memory")

    stepped.scheduler._cache.resize = no_memory  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="allocate"):
        stepped.step()
    stepped.scheduler.fail(RuntimeError("no memory"))
    stepped.scheduler._cache.resize = resize  # type: ignore[method-assign]
    stepped.finish()
    assert sum(isinstance(outcome[0], RuntimeError) for outcome in outcomes) >= 1
    assert all(len(outcome) == 1 for outcome in outcomes)


def test_idle_slots_make_room_for_kept_prefixes(model: Any, tokenizer: Any) -> None:
    # Two slots of 128 positions take the whole budget while the request runs.
    stepped = Stepped(model, tokenizer, max_cached_tokens=256)
    for expected in (0, 99):
        outcome = stepped.submit(prompt(0, 100), max_tokens=20)
        stepped.finish()
        assert only(outcome).num_cached_tokens == expected


@pytest.mark.slow
def test_a_short_piece_near_the_end_of_the_context_beside_a_wide_one(model: Any, tokenizer: Any) -> None:
    # The short row's padding would lie past the last position that the model has.
    stepped = Stepped(model, tokenizer)
    stream = prompt(0, 4090)
    stepped.submit(stream[:4080], max_tokens=1)
    stepped.finish()
    near, wide = stepped.submit(stream, max_tokens=6), stepped.submit(prompt(1, 200), max_tokens=6)
    stepped.finish()
    assert only(near).num_cached_tokens == 4080
    assert_plain(model, stream, only(near))
    assert_plain(model, prompt(1, 200), only(wide))
