"""The check `trainer`: verl's FSDP2 engine against the rollout engine, its gradients, and updates on long rows."""

from __future__ import annotations

import asyncio
import math
import random
from pathlib import Path

import torch
from _gpu_check import Check
from _gpu_fsdp import (
    MICRO_BATCH,
    Episode,
    compute_token_gradients,
    infer_log_probs,
    make_batch,
    make_engine,
    one_rank,
    update,
)
from _gpu_model import BOUNDS, make_model, make_random_ids
from _gpu_nan import narrow_nan
from _gpu_time import median_s
from verl.utils.flops_counter import FlopsCounter

from verl_agentic.cpu.inference.inference_engine import InferenceEngine
from verl_agentic.cpu.inference.request import SamplingParams

_NUM_EPISODES = 16
_NARROW_S = 30.0


def run(check: Check) -> None:
    with one_rank(check.device):
        folder = make_model(check, "model")
        for dtype, bound in BOUNDS.items():
            _test_exactness(check, folder, dtype=dtype, bound=bound)
        if check.is_gpu:
            torch.cuda.empty_cache()
        _test_long_rows(check)


def _test_exactness(check: Check, folder: Path, *, dtype: str, bound: float) -> None:
    episodes = asyncio.run(_play_episodes(check, folder, dtype))
    engine, batch = make_engine(folder, dtype), make_batch(episodes, check.device)
    theirs = infer_log_probs(engine, batch)
    gaps = [
        row[episode.targets] - torch.tensor(episode.log_probs) for row, episode in zip(theirs, episodes, strict=True)
    ]
    check.judge(f"rollout to trainer, {dtype}, log-prob", float(torch.cat(gaps).abs().max()), max_value=bound)
    gradients, targets = compute_token_gradients(engine, batch), torch.cat([episode.targets for episode in episodes])
    masked, sampled = gradients[~targets], gradients[targets]
    check.judge(f"gradient at prompts and observations, {dtype}", float(masked.abs().max()), max_value=0.0)
    share = float((sampled.isfinite() & (sampled != 0)).double().mean())
    check.judge(f"share of sampled tokens with a gradient, {dtype}", share, min_value=0.99)


async def _play_episodes(check: Check, folder: Path, dtype: str) -> list[Episode]:
    """Returns episodes of a prompt, sampled tokens, an observation and more sampled tokens."""
    engine = InferenceEngine.from_pretrained(folder, device=check.device, dtype=dtype)

    async def play(number: int) -> Episode:
        rng = random.Random(number)
        episode = Episode(make_random_ids(rng, rng.randint(8, 40)))
        for turn in range(2):
            if turn:
                episode.append(make_random_ids(rng, rng.randint(5, 30)))
            params = SamplingParams(max_tokens=rng.randint(4, 24), seed=2 * number + turn, ignore_eos=True)
            generation = await engine.generate(episode.prompt + episode.response, params)
            episode.append(generation.token_ids, generation.log_probs)
        return episode

    try:
        return list(await asyncio.gather(*map(play, range(_NUM_EPISODES))))
    finally:
        await engine.close()


def _test_long_rows(check: Check) -> None:
    """Updates a model of 440 M on long rows in bfloat16, and tests which kernels and shapes give finite gradients."""
    num_rows, num_tokens, repeats = (64, 1024, 3) if check.is_gpu else (MICRO_BATCH, 48, 1)
    engine = make_engine(make_model(check, "big", preset="440m"), "bfloat16")
    rng, episodes = random.Random(2), []
    for _ in range(num_rows):
        episode = Episode(make_random_ids(rng, num_tokens // 16))
        num_sampled = num_tokens - len(episode.prompt)
        episode.append(make_random_ids(rng, num_sampled), [-5.0] * num_sampled)
        episodes.append(episode)
    batch, norms = make_batch(episodes, check.device), []
    if check.is_gpu:
        torch.cuda.reset_peak_memory_stats()
    seconds = median_s(check.device, lambda: norms.append(update(engine, batch)), repeats=repeats)
    num_bad = sum(not math.isfinite(norm) for norm in norms)
    check.note({"long rows: norms of the gradient": norms, "long rows: seconds of an update": seconds})
    check.judge("long rows: updates with a gradient that is not finite", num_bad, max_value=0)
    tflop_per_s, peak = FlopsCounter(engine.model_config.hf_config).estimate_flops([num_tokens] * num_rows, seconds)
    check.note({"long rows: tokens/s": round(num_rows * num_tokens / seconds), "long rows: TFLOP/s": tflop_per_s})
    if check.is_gpu:
        check.note({"long rows: peak memory, GiB": round(torch.cuda.max_memory_allocated() / 2**30, 2)})
    check.judge("long rows: share of the peak of the GPU", tflop_per_s / peak, min_value=0.25, only_gpu=True)
    narrow_nan(check, update=lambda: update(engine, batch), seconds=_NARROW_S)
