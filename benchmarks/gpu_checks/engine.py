"""The check `engine`: the rollout engine against transformers, before and after an update, its speed and its memory."""

from __future__ import annotations

import asyncio
import gc
import math
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from _gpu_check import Check
from _gpu_model import BOUNDS, compute_log_probs, load_reference, make_model, make_random_ids
from _gpu_time import wait_for
from _report import median

from verl_agentic.cpu.inference.inference_engine import InferenceEngine
from verl_agentic.cpu.inference.request import Generation, SamplingParams

_MIN_TOKENS_PER_S = {1: 300, 64: None, 256: 60_000}
"""Number of rows -> bound for the model of 75 M, on an H100."""
_NOISE = 0.95
"""Two equal speeds differ by up to 5 %."""
_MAX_KEPT_MIB = 256
_REPEATS = 3


def run(check: Check) -> None:
    asyncio.run(_run(check))


async def _run(check: Check) -> None:
    folders = make_model(check, "model", seed=0), make_model(check, "other", seed=1)
    speeds = {}
    for dtype, bound in BOUNDS.items():
        await _test_exactness(check, folders, dtype=dtype, bound=bound)
        speeds[dtype] = await _measure_speeds(check, folders[0], dtype)
    for num_rows, bound in _MIN_TOKENS_PER_S.items():
        wide, narrow = (speeds[dtype][num_rows] for dtype in BOUNDS)
        name = f"{num_rows} rows, tokens/s"
        if bound is not None:
            check.judge(f"{name}, slower of both types", min(wide, narrow), min_value=bound, only_gpu=True)
        check.judge(f"{name}, bfloat16 over float32", narrow / wide, min_value=_NOISE, only_gpu=True)


async def _test_exactness(check: Check, folders: tuple[Path, Path], *, dtype: str, bound: float) -> None:
    rng = random.Random(0)
    prompts = [make_random_ids(rng, rng.randint(16, 128)) for _ in range(32)]
    engine = InferenceEngine.from_pretrained(folders[0], device=check.device, dtype=dtype)
    sampled = Sampled(engine, prompts, num_new=64 if check.is_gpu else 16)
    try:
        generations = await sampled.run()
        old, new = (load_reference(folder, check.device, dtype) for folder in folders)
        gap = sampled.max_gap(generations, old)
        check.judge(f"engine to transformers, {dtype}, log-prob", gap, max_value=bound)
        alone = [await sampled.run_one(row) for row in range(4)]
        equal = sum(one.token_ids == other.token_ids for one, other in zip(alone, generations, strict=False))
        check.note({f"{dtype}: rows with the same tokens alone and in the batch": equal / len(alone)})
        begin = time.perf_counter()
        await engine.update_weights(new.state_dict().items(), version=1)
        wait_for(check.device)
        check.note({f"{dtype}: update of the weights, s": round(time.perf_counter() - begin, 4)})
        generations = await sampled.run()
        check.judge(f"after an update, {dtype}, log-prob", sampled.max_gap(generations, new), max_value=bound)
        stale = sampled.max_gap(generations, old)
        check.judge(f"control: against the old weights, {dtype}, log-prob", stale, min_value=2 * bound)
    finally:
        await engine.close()


@dataclass
class Sampled:
    """The same requests again and again."""

    engine: InferenceEngine
    prompts: list[list[int]]
    num_new: int

    async def run(self) -> list[Generation]:
        """Returns the generations of all prompts, side by side."""
        return list(await asyncio.gather(*map(self._generate, range(len(self.prompts)))))

    async def run_one(self, row: int) -> Generation:
        """Returns the generation of one prompt, alone and without a cache."""
        await self.engine.clear_cache()
        return await self._generate(row)

    def max_gap(self, generations: list[Generation], model: Any) -> float:
        """Returns the largest difference of log-probs between the engine and a model of transformers."""
        gaps = [
            (torch.tensor(one.log_probs) - compute_log_probs(model, prompt, one.token_ids)).abs().max()
            for prompt, one in zip(self.prompts, generations, strict=True)
        ]
        return float(torch.stack(gaps).max())

    async def _generate(self, row: int) -> Generation:
        params = SamplingParams(max_tokens=self.num_new, seed=row, ignore_eos=True)
        return await self.engine.generate(self.prompts[row], params)


async def _measure_speeds(check: Check, folder: Path, dtype: str) -> dict[int, float]:
    """Returns tokens per second by number of rows; judges the memory that the engine keeps."""
    before_mib = _settle_memory(check)
    engine = InferenceEngine.from_pretrained(folder, device=check.device, dtype=dtype)
    weights_mib = _settle_memory(check) - before_mib
    speeds = {}
    try:
        for num_rows in _MIN_TOKENS_PER_S:
            speeds[num_rows] = await _measure_speed(check, engine, num_rows)
            check.note({f"{dtype}: tokens/s, {num_rows} rows": round(speeds[num_rows])})
        serving_mib = _read_memory(check) - before_mib
        await engine.release_memory()
        kept_mib = _read_memory(check) - before_mib
        held = {"weights": weights_mib, "while it serves": serving_mib, "after the release": kept_mib}
        check.note({f"{dtype}: MiB of the GPU": held})
        name = f"{dtype}: MiB kept beside the weights"
        check.judge(name, kept_mib - weights_mib, max_value=_MAX_KEPT_MIB, only_gpu=True)
    finally:
        await engine.close()
    return speeds


async def _measure_speed(check: Check, engine: InferenceEngine, num_rows: int) -> float:
    max_prompt, num_new, repeats = (128, 128, _REPEATS) if check.is_gpu else (16, 2, 1)
    rng = random.Random(num_rows)
    prompts = [make_random_ids(rng, rng.randint(8, max_prompt)) for _ in range(num_rows)]
    params = SamplingParams(max_tokens=num_new, ignore_eos=True)
    speeds = []
    for _ in range(1 + repeats):  # the first warms up
        await engine.clear_cache()
        begin = time.perf_counter()
        await asyncio.gather(*(engine.generate(prompt, params) for prompt in prompts))
        speeds.append(num_rows * num_new / (time.perf_counter() - begin))
    return median(speeds[1:])


def _settle_memory(check: Check) -> float:
    """Gives back the memory that nobody uses; returns the MiB of the GPU that this process holds."""
    gc.collect()
    if check.is_gpu:
        torch.cuda.empty_cache()
    return _read_memory(check)


def _read_memory(check: Check) -> float:
    return torch.cuda.memory_reserved() / 2**20 if check.is_gpu else math.nan
