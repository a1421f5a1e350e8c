"""Plays episodes with the CPU server on this machine, and predicts how long they take from smaller runs.

The server is another process, with one thread for the model. Episodes have the lengths and the tool times that the
model of the cluster draws: the policy samples as many tokens, and the environment waits as long.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from _cluster_model import Costs, Episode, Plan, Run, Workload
from _cluster_queues import EngineSpeed
from _report import median, progress

from verl_agentic import Action, EnvRow, EpisodeLimits, Message, Observation, Reward, StopReason, run_episodes
from verl_agentic.cpu.testing import tiny_codecs
from verl_agentic.cpu.tiny_model import make_tiny_model
from verl_agentic.episode.attempt.attempt import EpisodeSetup
from verl_agentic.episode.policies.policy import Completion
from verl_agentic.evaluate.policies.completions import CompletionsPolicy, Endpoint, EndpointConfig, Sampling

_LOAD = Workload(
    turns=10,
    turns_sigma=0.5,
    max_turns=24,
    prompt_tokens=64,
    turn_tokens=48,
    observation_tokens=48,
    tokens_sigma=0.5,
    tool_s=0.3,
    tool_sigma=1.0,
)
_TOKEN = "benchmark"
_SERVE = "import sys; from verl_agentic.cli import main; sys.exit(main(sys.argv[1:]))"
_BATCHES, _CONTEXTS, _NEW = (1, 4, 12, 24), (64, 768), (16, 64)


@dataclass(frozen=True, kw_only=True)
class Size:
    """Numbers of episodes and repeats."""

    episodes: int = 64
    small: int = 8
    """Episodes of the run from which the cost of a turn comes."""
    repeats: int = 3


def measure_real(size: Size) -> dict[str, Any]:
    """Returns measured and predicted seconds of the same episodes, and the constants of the prediction."""
    with tempfile.TemporaryDirectory(prefix="cluster") as name, _server(Path(name)) as url:
        return asyncio.run(_measure(Path(name), url, size))


async def _measure(folder: Path, url: str, size: Size) -> dict[str, Any]:
    tokenizer, codecs = tiny_codecs(folder / "tokenizer")
    endpoint = Endpoint(
        EndpointConfig(url=url, model="model", api_key=_TOKEN, extra={"ignore_eos": True}), max_connections=128
    )
    stage = _Stage(endpoint, tokenizer, codecs["chat"])
    try:
        await stage.play(_drawn(2, seed=7))  # warms up
        speed = await _engine_speed(endpoint, repeats=size.repeats)
        turn_s = median([await _turn_cpu_s(stage, size.small, seed=seed + 1) for seed in range(size.repeats)])
        costs = Costs(turn_s=turn_s, engine=speed)
        ratios: list[float] = []
        figures = {"turn_cpu_s": turn_s}
        figures |= {name: value for name, value in vars(speed).items() if name.endswith("_s")}
        for seed in range(100, 100 + size.repeats):
            predicted, expected_mean = predict(costs, size.episodes, seed=seed)
            measured, mean = await stage.play(_drawn(size.episodes, seed=seed))
            ratios.append(predicted / measured)
            figures |= {"predicted_s": predicted, "measured_s": measured}
            figures |= {"predicted_mean_s": expected_mean, "measured_mean_s": mean}
            progress(f"{size.episodes} episodes: {measured:.2f} s, predicted {predicted:.2f} s")
        return {"predicted_over_measured": median(ratios), "each": [round(ratio, 3) for ratio in ratios], **figures}
    finally:
        await endpoint.close()


def predict(costs: Costs, episodes: int, *, seed: int) -> tuple[float, float]:
    """Returns the seconds until the last episode ends, and the mean over all of them."""
    run = Run(_plan(episodes, seed), costs, _LOAD).play()
    return max(run.ends_s), sum(run.ends_s) / episodes


def _plan(episodes: int, seed: int) -> Plan:
    return Plan(nodes=1, concurrent=episodes, group_size=1, workers=1, sandbox_slots=episodes, steps=1, seed=seed)


def _drawn(episodes: int, *, seed: int) -> list[Episode]:
    """Returns the episodes of the prediction with that seed."""
    costs = Costs(turn_s=0.0, engine=EngineSpeed(step_s=0.0, sequence_s=0.0, cached_token_s=0.0, prefill_token_s=0.0))
    run = Run(_plan(episodes, seed), costs, _LOAD)
    return [run.draw(number) for number in range(episodes)]


class _Stage:
    """Plays drawn episodes with the loop of evaluation."""

    def __init__(self, endpoint: Endpoint, tokenizer: Any, codec: Any) -> None:
        self._endpoint, self._tokenizer, self._codec = endpoint, tokenizer, codec

    async def play(self, episodes: Sequence[Episode]) -> tuple[float, float]:
        """Returns the seconds of all episodes at once, and the mean time at which they end."""
        limits = EpisodeLimits(max_response_tokens=4_000, max_context_tokens=4_090, max_turns=64, max_retries=0)
        inner = CompletionsPolicy(self._endpoint, sampling=Sampling(), stop_texts=(), stop_token_ids=())
        rows = [
            EnvRow(prompt=(Message("user", _digits(_LOAD.prompt_tokens, seed=n)),), extra={"number": n})
            for n in range(len(episodes))
        ]
        ends: list[float] = []
        begin = time.perf_counter()
        found = await run_episodes(
            rows,
            make_env=lambda row: _PacedEnv(row, episodes[row.extra["number"]]),
            setup_for=lambda index, _: EpisodeSetup(
                policy=_PacedPolicy(inner, episodes[index]),
                codec=self._codec,
                tokenizer=self._tokenizer,
                limits=limits,
            ),
            max_concurrent=len(rows),
            on_episode=lambda _: ends.append(time.perf_counter() - begin),
        )
        wrong = [one.error or one.stop_reason for one in found if one.stop_reason is not StopReason.ANSWERED]
        if wrong:
            raise RuntimeError(f"all episodes must end after their last turn, got {wrong[:3]}; see the server")
        return max(ends), sum(ends) / len(ends)


class _PacedPolicy:
    """Samples as many tokens in a turn as were drawn."""

    def __init__(self, inner: CompletionsPolicy, episode: Episode) -> None:
        self._inner, self._episode, self._turn = inner, episode, 0

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, **others: Any) -> Completion:
        """Samples one turn."""
        wanted = int(self._episode.turn_tokens[self._turn])
        self._turn += 1
        completion = await self._inner.generate(prompt_ids, max_tokens=min(max_tokens, wanted), **others)
        return replace(completion, finish_reason="stop")


class _PacedEnv:
    """Waits as long as was drawn, and answers as many digits, which are a token each."""

    tools = ()

    def __init__(self, row: EnvRow, episode: Episode) -> None:
        self._row, self._episode, self._turn = row, episode, 0

    async def start(self) -> tuple[Message, ...]:
        return self._row.prompt

    async def step(self, action: Action) -> Observation:
        turn, self._turn = self._turn, self._turn + 1
        await asyncio.sleep(float(self._episode.tool_s[turn]))
        is_last = self._turn == len(self._episode.tool_s)
        text = _digits(int(self._episode.observation_tokens[turn]), seed=turn)
        return Observation((Message("user", text),), stop=StopReason.ANSWERED if is_last else None)

    async def score(self, transcript: Any) -> Reward:
        return Reward(0.0)

    async def close(self) -> None:
        pass


def _digits(count: int, *, seed: int) -> str:
    draw = random.Random(seed)
    return "".join(draw.choice("0123456789") for _ in range(count))


async def _turn_cpu_s(stage: _Stage, episodes: int, *, seed: int) -> float:
    """Returns the CPU time of this process for a turn, its share of start and end included."""
    drawn = _drawn(episodes, seed=seed)
    before = time.process_time()
    await stage.play(drawn)
    spent = (time.process_time() - before) / sum(len(one.tool_s) for one in drawn)
    progress(f"{episodes} episodes: {1e3 * spent:.2f} ms of CPU a turn")
    return spent


async def _engine_speed(endpoint: Endpoint, *, repeats: int) -> EngineSpeed:
    """Fits the speed of the server to waves of at most 24 requests, by least squares of relative errors.

    The contexts of a wave have different lengths, as those of episodes: the server pads some to others. The prompts of
    a wave share one forward pass. Those of episodes come one by one, so each request gets the constant part of a wave.
    """
    policy = CompletionsPolicy(endpoint, sampling=Sampling(), stop_texts=(), stop_token_ids=())
    draw = random.Random(0)
    rows, times = [], []
    for batch in _BATCHES:
        for context in _CONTEXTS:
            for new in _NEW:
                taken = []
                for _ in range(repeats + 1):
                    lengths = [context * (2 * place + 1) // batch for place in range(batch)]
                    prompts = [[draw.randrange(256) for _ in range(length)] for length in lengths]
                    begin = time.perf_counter()
                    await asyncio.gather(
                        *(policy.generate(ids, messages=(), max_tokens=new, request_id="") for ids in prompts)
                    )
                    taken.append(time.perf_counter() - begin)
                times.append(median(taken[1:]))
                total = context + new
                rows.append([1, batch, batch * context, new, new * batch, new * batch * total])
    weights = 1 / np.array(times)
    found = _fit(np.array(rows) * weights[:, None])
    error = np.abs(np.array(rows) @ found * weights - 1).max()
    progress(f"the server: {[float(f'{one:.3g}') for one in found]} s, largest error {error:.2f}")
    wave_s, request_s, prefill_s, step_s, sequence_s, cached_s = map(float, found)
    return EngineSpeed(
        step_s=step_s,
        sequence_s=sequence_s,
        cached_token_s=cached_s,
        prefill_token_s=prefill_s,
        request_s=wave_s + request_s,
    )


def _fit(rows: np.ndarray) -> np.ndarray:
    """Returns the solution of `rows @ x = 1` by least squares without negative values: the worst one becomes 0."""
    kept = list(range(rows.shape[1]))
    while True:
        found = np.zeros(rows.shape[1])
        found[kept] = np.linalg.lstsq(rows[:, kept], np.ones(len(rows)), rcond=None)[0]
        if found.min() >= 0:
            return found
        kept.remove(int(found.argmin()))


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[str]:
    """Serves the tiny model from another process."""
    make_tiny_model(folder / "model")
    command = [sys.executable, "-c", _SERVE, "serve", "--model", str(folder / "model"), "--port", "0", "--threads", "1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "VERL_AGENTIC_API_KEY": _TOKEN}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split(" at ")[1].split("/v1")[0] + "/v1"
        finally:
            process.terminate()
