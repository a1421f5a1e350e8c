"""Measures the rollout engine against Hugging Face `generate`, against itself without prefix reuse, and against vLLM.

`vs_hf_generate`: tokens per second on 64 greedy requests of 4 to 256 new tokens, over the best of `generate`'s batch
sizes. `generate` computes each batch until its longest request is done; only what a request asked for counts. The
end token is off on both sides, so that both produce the same number of tokens, and the tokens are compared.

`prefix_reuse`: time to the first token of turn 8 of a conversation with observations of 256 tokens, without reuse over
with it.

`vs_vllm_cpu`: tokens per second on the same 64 requests, over vLLM's, which runs in a process of its own;
`--vllm-python` names the interpreter of another environment that has it (default: the one of `make vllm`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "20000")  # before torch: threads that wait must not keep a core
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch
from _engine_process import default_vllm_python, start_vllm
from _report import Target, median, progress, report

from verl_agentic.cpu.inference.inference_engine import InferenceEngine
from verl_agentic.cpu.inference.request import Generation, SamplingParams
from verl_agentic.cpu.inference.scheduler import EngineConfig
from verl_agentic.cpu.tiny_model import DEFAULT_PRESET, PRESETS, make_tiny_model

_BATCH_SIZES = (8, 16, 64)
_REQUESTS, _NEW_TOKENS, _PROMPT_TOKENS = 64, (4, 256), (16, 128)
_TURNS, _OBSERVATION_TOKENS, _TURN_TOKENS, _FIRST_PROMPT_TOKENS = 8, 256, 32, 64
_REPEATS = 5
_IDLE_S = 2.0


@dataclass(frozen=True)
class Request:
    """One prompt and how many tokens must follow."""

    prompt_ids: list[int]
    new_tokens: int


@dataclass
class Result:
    """The figures of the report."""

    ratios: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def main() -> int:
    """Runs the measurements and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="at most 64 new tokens instead of 256")
    parser.add_argument("--preset", choices=sorted(PRESETS), default=DEFAULT_PRESET, help="size of the model")
    parser.add_argument(
        "--vllm-python", default=default_vllm_python(sys.executable), help="interpreter that has vLLM (%(default)s)"
    )
    options = parser.parse_args()
    result = Result()
    with tempfile.TemporaryDirectory(prefix="rollout_server_") as folder:
        result.figures["parameters"] = make_tiny_model(Path(folder), preset=options.preset)
        asyncio.run(_measure(Path(folder), options, result))
    return report(
        "rollout_server",
        ratios=result.ratios,
        figures=result.figures,
        targets={
            "vs_hf_generate": Target(bound=1.5),
            "prefix_reuse": Target(bound=2.0),
            "vs_vllm_cpu": Target(bound=1.0, is_goal=True),
            "idle_cpu_fraction": Target(bound=0.01, at_least=False),
        },
        reasons=result.reasons,
    )


async def _measure(folder: Path, options: argparse.Namespace, result: Result) -> None:
    requests = make_requests(quick=options.quick)
    result.figures["requests"], result.figures["new_tokens"] = len(requests), sum(r.new_tokens for r in requests)
    begin = time.perf_counter()
    engine = InferenceEngine.from_pretrained(folder)
    await _run_engine(engine, requests[:1])
    result.figures["startup_s"] = median([time.perf_counter() - begin])
    try:
        await _against_generate(engine, folder, requests, result)
        await _against_vllm(engine, folder, requests, options.vllm_python, result)
        await _idle(engine, result)
    finally:
        await engine.close()
    await _reuse(folder, result)


def make_requests(*, quick: bool) -> list[Request]:
    """Returns the same requests every time; `quick`: with fewer new tokens."""
    rng = random.Random(0)
    shortest, longest = _NEW_TOKENS[0], 64 if quick else _NEW_TOKENS[1]
    return [
        Request(_random_ids(rng, rng.randint(*_PROMPT_TOKENS)), rng.randint(shortest, longest))
        for _ in range(_REQUESTS)
    ]


def _random_ids(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(256) for _ in range(count)]  # plain bytes in every byte-level vocabulary


async def _against_generate(engine: InferenceEngine, folder: Path, requests: list[Request], result: Result) -> None:
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa").eval()
    model.generation_config.eos_token_id = None
    speeds: dict[int, list[float]] = {size: [] for size in _BATCH_SIZES}
    ours, ratios, equal = [], [], []
    total = sum(r.new_tokens for r in requests)
    for repeat in range(-1, _REPEATS):  # the first warms up
        outputs = []
        for size in _BATCH_SIZES:
            begin = time.perf_counter()
            outputs.append(_run_generate(model, requests, size))
            speeds[size].append(total / (time.perf_counter() - begin))
        seconds, generations = await _timed_engine(engine, requests)
        ours.append(total / seconds)
        best = max(speed[-1] for speed in speeds.values())
        ratios.append(ours[-1] / best)
        got = [g.token_ids for g in generations]
        equal.append(sum(a == b for a, b in zip(got, outputs[0], strict=True)) / len(requests))
        progress(f"generate, {repeat + 1} of {_REPEATS}: {ratios[-1]:.2f}x ({ours[-1]:.0f} to {best:.0f} tokens/s)")
    result.ratios["vs_hf_generate"] = median(ratios[1:])
    result.figures["tokens_per_s"] = median(ours[1:])
    result.figures |= {f"hf_tokens_per_s.batch_{size}": median(speed[1:]) for size, speed in speeds.items()}
    result.figures["same_output_as_hf"] = min(equal)


@torch.inference_mode()
def _run_generate(model: Any, requests: list[Request], size: int) -> list[list[int]]:
    outputs = []
    for at in range(0, len(requests), size):
        batch = requests[at : at + size]
        width, longest = max(len(r.prompt_ids) for r in batch), max(r.new_tokens for r in batch)
        pads = [width - len(r.prompt_ids) for r in batch]
        ids = torch.tensor([[0] * pad + r.prompt_ids for pad, r in zip(pads, batch, strict=True)])
        mask = torch.tensor([[0] * pad + [1] * (width - pad) for pad in pads])
        rows = model.generate(
            ids, attention_mask=mask, max_new_tokens=longest, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        assert rows.shape[1] == width + longest
        outputs += [row[width : width + r.new_tokens].tolist() for row, r in zip(rows, batch, strict=True)]
    return outputs


async def _run_engine(engine: InferenceEngine, requests: list[Request]) -> list[Generation]:
    await engine.clear_cache()  # repeats of the same prompts would hit it
    calls = [
        engine.generate(r.prompt_ids, SamplingParams(temperature=0.0, max_tokens=r.new_tokens, ignore_eos=True))
        for r in requests
    ]
    return list(await asyncio.gather(*calls))


async def _timed_engine(engine: InferenceEngine, requests: list[Request]) -> tuple[float, list[Generation]]:
    begin = time.perf_counter()
    generations = await _run_engine(engine, requests)
    return time.perf_counter() - begin, generations


async def _against_vllm(
    engine: InferenceEngine, folder: Path, requests: list[Request], python: str, result: Result
) -> None:
    try:
        vllm = start_vllm(python, folder, [(request.prompt_ids, request.new_tokens) for request in requests])
    except RuntimeError as error:
        result.ratios["vs_vllm_cpu"] = result.figures["vllm_tokens_per_s"] = result.figures["vllm_startup_s"] = None
        result.reasons |= dict.fromkeys(("vs_vllm_cpu", "vllm_tokens_per_s", "vllm_startup_s"), str(error))
        progress(f"vLLM: {error}")
        return
    total = sum(r.new_tokens for r in requests)
    ours, theirs = [], []
    try:
        for repeat in range(-1, _REPEATS):
            theirs.append(total / vllm.run())
            ours.append(total / (await _timed_engine(engine, requests))[0])
            progress(f"vLLM, {repeat + 1} of {_REPEATS}: {ours[-1] / theirs[-1]:.2f}x ({theirs[-1]:.0f} tokens/s)")
    finally:
        vllm.close()
    result.ratios["vs_vllm_cpu"] = median([a / b for a, b in zip(ours[1:], theirs[1:], strict=True)])
    result.figures["vllm_tokens_per_s"] = median(theirs[1:])
    result.figures["vllm_startup_s"] = median([vllm.startup_s])


async def _idle(engine: InferenceEngine, result: Result) -> None:
    await asyncio.sleep(0.2)
    begin = time.process_time()
    await asyncio.sleep(_IDLE_S)
    result.figures["idle_cpu_fraction"] = round((time.process_time() - begin) / _IDLE_S, 4)


async def _reuse(folder: Path, result: Result) -> None:
    with_reuse = InferenceEngine.from_pretrained(folder)
    without = InferenceEngine.from_pretrained(folder, EngineConfig(prefix_reuse=False))
    seconds: dict[bool, list[float]] = {True: [], False: []}
    try:
        for repeat in range(-1, _REPEATS):
            for reuses, engine in ((True, with_reuse), (False, without)):
                seconds[reuses].append(await _first_token_s(engine, random.Random(repeat)))
            progress(f"turn {_TURNS}, {repeat + 1} of {_REPEATS}: {seconds[False][-1] / seconds[True][-1]:.1f}x")
    finally:
        await with_reuse.close()
        await without.close()
    pairs = list(zip(seconds[False], seconds[True], strict=True))[1:]
    result.ratios["prefix_reuse"] = median([slow / fast for slow, fast in pairs])
    result.figures["first_token_ms.with_reuse"] = median([1000 * fast for _, fast in pairs])
    result.figures["first_token_ms.without_reuse"] = median([1000 * slow for slow, _ in pairs])


async def _first_token_s(engine: InferenceEngine, rng: random.Random) -> float:
    """Plays a conversation up to its last turn; returns the seconds until that turn's first token."""
    stream = _random_ids(rng, _FIRST_PROMPT_TOKENS)
    params: Callable[[int], SamplingParams] = lambda n: SamplingParams(temperature=0.0, max_tokens=n, ignore_eos=True)  # noqa: E731
    for _ in range(_TURNS - 1):
        stream += (await engine.generate(stream, params(_TURN_TOKENS))).token_ids
        stream += _random_ids(rng, _OBSERVATION_TOKENS)
    begin = time.perf_counter()
    await engine.generate(stream, params(1))
    return time.perf_counter() - begin


if __name__ == "__main__":
    raise SystemExit(main())
