"""The engine as its callers meet it: concurrent requests, weights, aborts, failures, idleness."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any

import pytest
import torch
import transformers
from reference_model import hf_greedy, plain_log_probs, plain_logits, prompt
from test_decoder import GROUPED, make_model

from verl_agentic.base.errors import ConfigError, DataError, PolicyError
from verl_agentic.cpu.inference.inference_engine import InferenceEngine
from verl_agentic.cpu.inference.request import SamplingParams

GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)


def params(**values: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 0.0, "max_tokens": 24, "ignore_eos": True, **values})


async def until(condition: Any) -> None:
    """Waits for a condition; the test's own time limit ends what never comes."""
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never happened")


def break_forward(engine: InferenceEngine, error: BaseException) -> Any:
    """Makes the next steps raise; returns what mends them."""
    decoder: Any = engine._decoder
    working = decoder.forward

    def raising(*_: Any) -> Any:
        raise error

    decoder.forward = raising
    return lambda: setattr(decoder, "forward", working)


def slow_forward(engine: InferenceEngine, seconds: float) -> None:
    """Makes each step take its time, so that a test can act in the middle of a generation."""
    decoder: Any = engine._decoder
    working = decoder.forward

    def waiting(*arguments: Any) -> Any:
        time.sleep(seconds)
        return working(*arguments)

    decoder.forward = waiting


@pytest.mark.sample(1)
@pytest.mark.parametrize("batch", [1, 3, 16])
async def test_log_probs_are_the_trainers_at_any_batch_composition(batch: int, model: Any, make_engine: Any) -> None:
    engine = make_engine()
    cases = [(prompt(i, 5 + 7 * i), params(temperature=(0.7, 1.0, 1.3)[i % 3], top_k=20)) for i in range(batch)]
    for _ in range(2):  # the second time over the cache of the first
        got = await asyncio.gather(*(engine.generate(ids, p) for ids, p in cases))
        for (ids, p), generation in zip(cases, got, strict=True):
            expected = plain_log_probs(model, ids, generation.token_ids, p.temperature)
            assert generation.log_probs == pytest.approx(expected, abs=1e-4)
    assert all(g.num_cached_tokens == len(ids) - 1 for g, (ids, _) in zip(got, cases, strict=True) if len(ids) > 16)


async def test_a_weight_update_drops_the_stale_cache(model: Any, engine: InferenceEngine) -> None:
    ids = prompt(0, 60)
    await engine.generate(ids, GREEDY)
    assert (await engine.generate(ids, GREEDY)).num_cached_tokens == 59
    weights = {name: 1.5 * tensor for name, tensor in model.state_dict().items()}
    await engine.update_weights(weights.items(), version=5)
    assert engine.weights_version == 5
    after = await engine.generate(ids, GREEDY)
    assert (after.num_cached_tokens, after.weights_version) == (0, 5)
    model.load_state_dict(weights)
    assert after.token_ids == hf_greedy(model, ids, 24, eos_token_id=None)
    assert after.log_probs == pytest.approx(plain_log_probs(model, ids, after.token_ids), abs=1e-4)


async def test_an_update_ends_what_runs_with_what_it_has(engine: InferenceEngine) -> None:
    slow_forward(engine, 0.01)
    call = asyncio.ensure_future(engine.generate(prompt(0, 10), params(max_tokens=500)))
    await until(lambda: engine.stats()["generated_tokens"] > 3)
    await engine.update_weights([], version=1)
    generation = await call
    assert (generation.finish_reason, generation.weights_version) == ("aborted", 0)
    assert 3 < len(generation.token_ids) < 500


async def test_a_failed_update_serves_nothing_until_one_succeeds(model: Any, engine: InferenceEngine) -> None:
    weights = [("model.norm.weight", torch.ones(128)), ("no.such", torch.ones(1))]
    with pytest.raises(DataError, match=r"no\.such"):
        await engine.update_weights(weights, version=1)
    with pytest.raises(PolicyError, match=r"no\.such"):
        await engine.generate(prompt(0, 10), GREEDY)
    await engine.update_weights(model.state_dict().items(), version=2)
    assert (await engine.generate(prompt(0, 10), GREEDY)).weights_version == 2


@pytest.mark.slow
async def test_max_tokens_and_the_context_bound_the_length(engine: InferenceEngine) -> None:
    short = await engine.generate(prompt(0, 10), params(max_tokens=3))
    assert (len(short.token_ids), short.finish_reason) == (3, "length")
    for most in (None, 100):
        cut = await engine.generate(prompt(0, 4090), params(max_tokens=most))
        assert (len(cut.token_ids), cut.finish_reason) == (6, "length")


async def test_a_stop_id_ends_the_generation_and_is_part_of_it(engine: InferenceEngine) -> None:
    # Sampled with a seed: greedy, a random model repeats itself.
    sampled = params(temperature=1.0, seed=3)
    free = (await engine.generate(prompt(3, 20), sampled)).token_ids
    stop = next(token for i, token in enumerate(free) if i > 5 and token not in free[:i])
    unseen = next(token for token in range(386) if token not in free)
    generation = await engine.generate(prompt(3, 20), dataclasses.replace(sampled, stop_token_ids=(unseen, stop)))
    assert generation.token_ids == free[: free.index(stop) + 1] and generation.finish_reason == "stop"
    assert len(generation.log_probs or ()) == len(generation.token_ids)


async def test_the_models_end_token_stops_unless_it_is_ignored(model: Any, make_engine: Any) -> None:
    ids = prompt(3, 20)
    free = hf_greedy(model, ids, 24, eos_token_id=None)
    model.generation_config.eos_token_id = [385, free[6]]
    engine = make_engine(model)
    ended = await engine.generate(ids, params(ignore_eos=False))
    assert ended.token_ids == free[: free.index(free[6]) + 1] == hf_greedy(model, ids, 24)
    assert (await engine.generate(ids, params())).token_ids == free


@pytest.mark.sample(1)
@pytest.mark.parametrize("include", [True, False])
async def test_a_stop_text_ends_the_generation(include: bool, tokenizer: Any, engine: InferenceEngine) -> None:
    sampled = params(temperature=1.0, seed=3, max_tokens=120)
    free = await engine.generate(prompt(5, 20), sampled)
    pieces = [tokenizer.decode([token]) for token in free.token_ids]
    # From inside one token to the end of the next, in characters that are whole tokens; nowhere before.
    at = next(
        i
        for i in range(10, 119)
        if len(pieces[i]) > 1
        and (pieces[i] + pieces[i + 1]).isascii()
        and pieces[i][1:] + pieces[i + 1] not in tokenizer.decode(free.token_ids[: i + 1])
    )
    stop = ("never", pieces[at][1:] + pieces[at + 1])
    got = await engine.generate(
        prompt(5, 20), dataclasses.replace(sampled, stop=stop, include_stop_str_in_output=include)
    )
    assert got.finish_reason == "stop"
    assert got.token_ids == free.token_ids[: at + 2 if include else at]
    assert free.log_probs is not None
    assert got.log_probs == pytest.approx(free.log_probs[: len(got.token_ids)], abs=1e-5)


async def test_repetition_penalty_counts_prompt_and_sampled_tokens(model: Any, engine: InferenceEngine) -> None:
    ids = prompt(7, 30)
    expected = list(ids)
    for _ in range(24):
        logits = plain_logits(model, expected)[-1].clone()
        for token in set(expected):
            logits[token] = logits[token] / 1.5 if logits[token] > 0 else logits[token] * 1.5
        expected.append(int(logits.argmax()))
    got = await engine.generate(ids, params(repetition_penalty=1.5))
    assert got.token_ids == expected[30:] == hf_greedy(model, ids, 24, eos_token_id=None, repetition_penalty=1.5)
    assert got.token_ids != hf_greedy(model, ids, 24, eos_token_id=None)


async def test_the_same_seed_gives_the_same_tokens_whatever_the_batch(make_engine: Any) -> None:
    seeded = params(temperature=1.0, seed=11, top_p=0.9)
    alone = await make_engine(seed=1).generate(prompt(0, 20), seeded)
    crowded = make_engine(seed=2, max_running=5)
    others = [crowded.generate(prompt(i, 9 + i), params(temperature=1.0)) for i in range(1, 12)]
    got = await asyncio.gather(*others[:6], crowded.generate(prompt(0, 20), seeded), *others[6:])
    assert got[6].token_ids == alone.token_ids
    other = await crowded.generate(prompt(0, 20), params(temperature=1.0, seed=12, top_p=0.9))
    assert other.token_ids != alone.token_ids


async def test_the_engines_seed_repeats_a_lone_request(make_engine: Any) -> None:
    drawn = [(await make_engine(seed=s).generate(prompt(0, 20), params(temperature=1.0))).token_ids for s in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


async def test_log_probs_are_left_out_where_they_are_not_wanted(engine: InferenceEngine) -> None:
    assert (await engine.generate(prompt(0, 10), params(logprobs=False))).log_probs is None


@pytest.mark.slow
async def test_an_aborted_request_resumes_from_what_it_had(model: Any, engine: InferenceEngine) -> None:
    slow_forward(engine, 0.02)
    ids = prompt(0, 40)
    call = asyncio.ensure_future(engine.generate(ids, params(max_tokens=60)))
    await until(lambda: engine.stats()["generated_tokens"] >= 10)
    assert await engine.abort_all() == 1
    part = await call
    assert part.finish_reason == "aborted" and 10 <= len(part.token_ids) < 60
    rest_call = asyncio.ensure_future(
        engine.generate([*ids, *part.token_ids], params(max_tokens=60 - len(part.token_ids)))
    )
    await asyncio.sleep(0.1)
    assert not rest_call.done()  # paused: new requests wait
    await engine.resume()
    rest = await rest_call
    assert rest.num_cached_tokens == 40 + len(part.token_ids) - 1
    whole = part.token_ids + rest.token_ids
    assert whole == hf_greedy(model, ids, 60, eos_token_id=None)
    joined = [*(part.log_probs or ()), *(rest.log_probs or ())]
    assert joined == pytest.approx(plain_log_probs(model, ids, whole), abs=1e-4)


async def test_a_cancelled_call_frees_its_place(engine: InferenceEngine) -> None:
    slow_forward(engine, 0.005)
    call = asyncio.ensure_future(engine.generate(prompt(0, 10), params(max_tokens=4000)))
    await until(lambda: engine.stats()["running"] == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: engine.stats()["running"] == 0)


async def test_a_cancelled_call_stays_cancelled_when_the_engine_is_closed(make_engine: Any) -> None:
    engine = make_engine()
    await engine.abort_all()
    call = asyncio.ensure_future(engine.generate(prompt(0, 10), GREEDY))
    await asyncio.sleep(0.02)
    with engine._wake:
        engine._closed = True
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_step_that_fails_answers_its_requests_and_the_engine_lives_on(engine: InferenceEngine) -> None:
    mend = break_forward(engine, RuntimeError("bad kernel"))
    calls = [engine.generate(prompt(i, 10), GREEDY) for i in range(3)]
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(e) for e in errors] == [PolicyError] * 3
    assert "bad kernel" in str(errors[0])
    mend()
    assert len((await engine.generate(prompt(0, 10), GREEDY)).token_ids) == 24


async def test_a_step_that_fails_before_anything_runs_answers_who_waits(engine: InferenceEngine) -> None:
    prefixes = engine._scheduler._prefixes
    find = prefixes.find

    def broken(_: Any) -> Any:
        raise RuntimeError("bad table")

    prefixes.find = broken  # type: ignore[method-assign]
    with pytest.raises(PolicyError, match="bad table"):
        await asyncio.wait_for(engine.generate(prompt(0, 10), GREEDY), timeout=10)
    assert engine.stats()["waiting"] == 0
    prefixes.find = find  # type: ignore[method-assign]
    assert len((await engine.generate(prompt(0, 10), GREEDY)).token_ids) == 24


async def test_an_engine_that_dies_says_so_to_who_waits_and_who_comes(engine: InferenceEngine) -> None:
    break_forward(engine, SystemExit("the thread is gone"))
    with pytest.raises(PolicyError, match="SystemExit"):
        await engine.generate(prompt(0, 10), GREEDY)
    for call in (engine.generate(prompt(0, 10), GREEDY), engine.update_weights([], version=1), engine.abort_all()):
        with pytest.raises(PolicyError, match="died"):
            await call


async def test_a_command_that_kills_the_engine_fails_its_own_caller(engine: InferenceEngine) -> None:
    def submit(_: Any) -> None:
        raise ZeroDivisionError("in the thread")

    engine._scheduler.submit = submit  # type: ignore[method-assign]
    with pytest.raises(PolicyError, match="ZeroDivisionError"):
        await engine.generate(prompt(0, 10), GREEDY)


async def test_closing_answers_everyone(make_engine: Any) -> None:
    engine = make_engine()
    slow_forward(engine, 0.01)
    calls = [asyncio.ensure_future(engine.generate(prompt(i, 10), params(max_tokens=4000))) for i in range(3)]
    await until(lambda: engine.stats()["running"] > 0)
    await engine.close()
    for call in calls:
        with pytest.raises(PolicyError, match="closed"):
            await call
    with pytest.raises(PolicyError, match="closed"):
        await engine.generate(prompt(0, 10), GREEDY)
    await engine.close()  # a second time does nothing


@pytest.mark.parametrize(
    ("ids", "message"),
    [([], "1 to 4095 tokens, got 0"), ([1] * 4096, "1 to 4095 tokens, got 4096"), ([1, 386], "386"), ([-1, 5], "-1")],
)
async def test_prompts_that_cannot_be_served_are_refused(ids: list[int], message: str, engine: InferenceEngine) -> None:
    with pytest.raises(ConfigError, match=message):
        await engine.generate(ids, GREEDY)


async def test_a_request_too_long_for_the_memory_is_refused_and_others_are_served(make_engine: Any) -> None:
    engine = make_engine(max_cached_tokens=128)
    long = engine.generate(prompt(0, 200), GREEDY)
    short = engine.generate(prompt(1, 50), GREEDY)
    outcomes = await asyncio.gather(long, short, return_exceptions=True)
    assert isinstance(outcomes[0], ConfigError)
    assert "200 prompt and up to 24 new tokens does not fit into max_cached_tokens=128; raise it" in str(outcomes[0])
    assert not isinstance(outcomes[1], BaseException) and len(outcomes[1].token_ids) == 24


async def test_memory_is_given_back_on_demand(engine: InferenceEngine) -> None:
    await engine.generate(prompt(0, 50), GREEDY)
    kept = engine.stats()["cached_tokens"]
    await engine.clear_cache()
    slots = engine.stats()["cached_tokens"]
    await engine.release_memory()
    assert kept > slots > engine.stats()["cached_tokens"] == 0
    assert (await engine.generate(prompt(0, 50), GREEDY)).num_cached_tokens == 0


def count_bytes(root: Any) -> int:
    """Returns the memory of all tensors that an object holds, directly or not."""
    storages: dict[int, int] = {}
    seen, left = set(), [root]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            storages[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
        elif isinstance(one, dict):
            left.extend(one.values())
        elif isinstance(one, (list, tuple, set)):
            left.extend(one)
        elif hasattr(one, "__dict__") and not isinstance(one, type):
            left.extend(vars(one).values())
    return sum(storages.values())


async def test_a_released_engine_holds_little_more_than_the_weights(make_engine: Any) -> None:
    model = make_model(transformers.Qwen3Config(**{**GROUPED, "intermediate_size": 512}, head_dim=16))
    weights = count_bytes(list(model.parameters()))
    engine = make_engine(model)
    for _ in range(2):
        calls = [engine.generate(prompt(case, 100), params(max_tokens=30, repetition_penalty=1.1)) for case in range(8)]
        await asyncio.gather(*calls)
        assert count_bytes([engine._decoder, engine._scheduler]) > 2 * weights
        await engine.release_memory()
        held = count_bytes([engine._decoder, engine._scheduler])
        assert weights <= held < 1.15 * weights
        await engine.update_weights(model.state_dict().items(), version=1)


def cpu_s(engine: InferenceEngine) -> float:
    """Returns the CPU time of the engine's thread; others may work, too."""
    ident = engine._thread.ident
    assert ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(ident))


@pytest.mark.slow
async def test_an_idle_engine_uses_no_cpu(engine: InferenceEngine) -> None:
    await engine.generate(prompt(0, 50), GREEDY)
    await asyncio.sleep(0.1)
    begin = cpu_s(engine)
    await asyncio.sleep(1.0)
    assert cpu_s(engine) - begin < 0.05


async def test_a_paused_engine_with_waiting_requests_uses_no_cpu(engine: InferenceEngine) -> None:
    await engine.abort_all()
    call = asyncio.ensure_future(engine.generate(prompt(0, 50), GREEDY))
    await asyncio.sleep(0.1)
    begin = cpu_s(engine)
    await asyncio.sleep(0.5)
    assert cpu_s(engine) - begin < 0.025
    await engine.resume()
    assert len((await call).token_ids) == 24


async def test_a_folder_that_is_no_model_is_named(tmp_path: Any) -> None:
    with pytest.raises(DataError, match=r"loading the model '.*' failed, got "):
        InferenceEngine.from_pretrained(tmp_path)


async def test_a_folder_is_served_as_transformers_serves_it(tiny_model: Any) -> None:
    from transformers import AutoModelForCausalLM

    engine = InferenceEngine.from_pretrained(tiny_model)
    try:
        got = await engine.generate(prompt(0, 50), GREEDY)
    finally:
        await engine.close()
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    assert got.token_ids == hf_greedy(model, prompt(0, 50), 24, eos_token_id=None)
