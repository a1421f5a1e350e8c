"""Measures what scoring by a rubric costs beside verl's naive reward manager.

`overhead_vs_naive`: wall time of a rubric in the process of the agent loop over that of verl's manager `naive`, on the
same trajectories of 4,096 response tokens, with the same math verifier.

`throughput_vs_naive_slow_verifier`: samples per second with a verifier that waits 50 ms, over naive's. The rubric has
it as a coroutine, naive as a plain function, which it runs in the threads of its event loop.

`throughput_vs_naive_async`: the same, where naive has the coroutine, too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from _report import Target, median, progress, report
from omegaconf import OmegaConf
from tensordict import TensorDict
from transformers import AutoTokenizer
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager

from verl_agentic.base.types import Message, StopReason
from verl_agentic.cpu.tiny_model import make_tiny_tokenizer
from verl_agentic.graders.maths.boxed_math import math_answer
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.rewards.sample import Sample, Turn
from verl_agentic.rewards.scorer import Scorer

_TRAJECTORIES, _TOKENS, _TURNS = 4_096, 4_096, 8
_SLOW_TRAJECTORIES = 512
_WAIT_S = 0.05
_REPEATS = 5
_WAITING = """
import asyncio

from verl_agentic.rewards.component import component


@component(kind="outcome")
async def waiting(sample):
    await asyncio.sleep({wait_s})
    return 1.0
"""


def main() -> int:
    """Runs the measurements and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer trajectories and repeats")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    count, slow, repeats = (128, 64, 2) if options.quick else (_TRAJECTORIES, _SLOW_TRAJECTORIES, _REPEATS)
    with tempfile.TemporaryDirectory(prefix="rewards_") as folder:
        make_tiny_tokenizer(Path(folder))
        tokenizer = AutoTokenizer.from_pretrained(folder)
        waiting = Path(folder) / "waiting.py"
        waiting.write_text(_WAITING.format(wait_s=_WAIT_S))
        data = make_trajectories(tokenizer, count)
        with contextlib.closing(asyncio.new_event_loop()) as loop:
            same = _compare(
                loop, data, naive=_naive(tokenizer, _math), ours=_ours("math"), repeats=repeats, what="math verifier"
            )
            sync = _compare(
                loop,
                data[:slow],
                naive=_naive(tokenizer, _wait),
                ours=_ours(f"{waiting}:waiting"),
                repeats=repeats,
                what="slow verifier",
            )
            both = _compare(
                loop,
                data[:slow],
                naive=_naive(tokenizer, _wait_async),
                ours=_ours(f"{waiting}:waiting"),
                repeats=repeats,
                what="slow coroutine",
            )
    return report(
        "rewards",
        ratios={
            "overhead_vs_naive": median([ours / naive for naive, ours in same]),
            "throughput_vs_naive_slow_verifier": median([naive / ours for naive, ours in sync]),
            "throughput_vs_naive_async": median([naive / ours for naive, ours in both]),
        },
        figures={
            "trajectories": count,
            "response_tokens": _TOKENS,
            "ms_per_sample": 1e3 * median([ours for _, ours in same]) / count,
            "naive_ms_per_sample": 1e3 * median([naive for naive, _ in same]) / count,
        },
        targets={
            "overhead_vs_naive": Target(bound=1.1, at_least=False),
            "throughput_vs_naive_slow_verifier": Target(bound=4.0, at_least=True),
            "throughput_vs_naive_async": Target(bound=1.0, at_least=True),
        },
    )


def make_trajectories(tokenizer: Any, count: int) -> list[DataProto]:
    """Returns what verl hands to a reward worker for each trajectory; all texts differ."""
    rng = random.Random(0)
    made = []
    progress(f"{count} trajectories of {_TOKENS} tokens")
    for index in range(count):
        truth = rng.randint(10, 99_999)
        answer = rf"So the answer is \boxed{{{truth + (index % 2)}}}"
        end = tokenizer.encode(answer)
        words = [f"{rng.randint(0, 999_999)} + {rng.randint(0, 999)} = x\n" for _ in range(_TOKENS // 4)]
        ids = [*tokenizer.encode("".join(words))[: _TOKENS - len(end)], *end]
        assert len(ids) == _TOKENS
        made.append(_to_data(_sample(tokenizer.decode(ids), answer, truth, index), ids, truth))
    return made


def _sample(text: str, answer: str, truth: int, index: int) -> Sample:
    size = len(text) // _TURNS + 1
    parts = [text[i : i + size] for i in range(0, len(text), size)]
    turns = tuple(Turn(index=i, text=part, content=part, num_tokens=_TOKENS // _TURNS) for i, part in enumerate(parts))
    return Sample(
        id=str(index),
        prompt=(Message("user", "What is x?"),),
        turns=turns,
        final_answer=answer,
        stop_reason=StopReason.ANSWERED,
        ground_truth=str(truth),
        data_source="math",
    )


def _to_data(sample: Sample, ids: list[int], truth: int) -> DataProto:
    responses = torch.tensor([ids])
    columns = {
        "data_source": "math",
        "reward_model": {"ground_truth": str(truth)},
        "extra_info": {},
        "sample": sample,
    }
    arrays = {}
    for name, value in columns.items():
        arrays[name] = np.empty(1, dtype=object)
        arrays[name][0] = value
    batch = TensorDict({"responses": responses, "attention_mask": torch.ones_like(responses)}, batch_size=1)
    return DataProto(batch=batch, non_tensor_batch=arrays)


async def _math(solution_str: str, ground_truth: str, **_: Any) -> dict[str, float]:
    score = await math_answer(solution_str, ground_truth)
    return {"score": score, "acc": score}


def _wait(**_: Any) -> float:
    time.sleep(_WAIT_S)
    return 1.0


async def _wait_async(**_: Any) -> float:
    await asyncio.sleep(_WAIT_S)
    return 1.0


def _naive(tokenizer: Any, verifier: Callable[..., Any]) -> Callable[[], Any]:
    return lambda: NaiveRewardManager(OmegaConf.create({}), tokenizer, verifier)


class _LoopScorer:
    """Scores as the worker of an agent loop does."""

    def __init__(self, component: str) -> None:
        self._scorer = Scorer(Rubric.from_mapping({"components": [{"use": component}]}))

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        score, _ = await self._scorer.begin_for_verl(data.non_tensor_batch["sample"][0])
        return {"reward_score": score.total, "reward_extra_info": score.numbers}


def _ours(component: str) -> Callable[[], Any]:
    return lambda: _LoopScorer(component)


def _compare(
    loop: asyncio.AbstractEventLoop, data: list[DataProto], *, naive: Any, ours: Any, repeats: int, what: str
) -> list[tuple[float, float]]:
    """Returns the seconds of both sides, alternating, once each was warm."""

    async def scored(make: Callable[[], Any]) -> float:
        manager = make()
        await manager.run_single(data[0])
        started = time.perf_counter()
        results = await asyncio.gather(*(manager.run_single(one) for one in data))
        elapsed = time.perf_counter() - started
        assert not any(result["reward_extra_info"].get("scoring/failed") for result in results)
        scores = [result["reward_score"] for result in results]
        # Every second answer is right; the verifier that waits finds all of them so.
        assert set(scores) <= {0.0, 1.0} and sum(scores) in (len(data) // 2, len(data))
        return elapsed

    pairs = []
    for repeat in range(repeats):
        pairs.append((loop.run_until_complete(scored(naive)), loop.run_until_complete(scored(ours))))
        progress(f"{what} {repeat + 1}/{repeats}: naive {pairs[-1][0]:.2f} s, rubric {pairs[-1][1]:.2f} s")
    return pairs


if __name__ == "__main__":
    sys.exit(main())
