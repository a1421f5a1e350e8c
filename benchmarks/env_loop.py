"""Measures what the episode loop costs beside the policy and the environment, which both cost nothing here.

`cpu_vs_tool_agent_loop`: CPU time of 256 concurrent episodes of 8 turns through the agent loop `env_agent`, over that
of verl's `tool_agent` with the same tokenizer, the same scripted server and the same tool. Both include what verl's
worker does with their rows: it makes columns of them.

`logged_vs_tool_agent_loop`: the same with the trajectory log on, over `tool_agent`, which logs nothing.

`turn_cost_growth`: CPU time of turn 32 of an episode over that of turn 2.

`vs_bare_asyncio`: CPU time of the same episodes over a loop that does nothing but encode, decode and parse, without
deadlines, records, budgets and events. What is above 1 is the price of everything else.

`blocked_share`: the longest time for which the event loop was held while 8 episodes read observations of 1 MB each,
over the CPU time of encoding one of them.

`episodes_per_s.N`: N episodes at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import itertools
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from _report import Target, median, progress, report
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.experimental.agent_loop import agent_loop
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
from verl.tools.function_tool import FunctionTool
from verl.tools.schemas import OpenAIFunctionToolSchema
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

from verl_agentic.cpu.tiny_model import make_tiny_tokenizer
from verl_agentic.log.log_options import LogOptions
from verl_agentic.log.writer import log_writer
from verl_agentic.tools.python import SCHEMA

_TURNS, _LONG_TURNS, _CONCURRENT = 8, 32, 256
_LEVELS = (1, 4, 16, 64, 256, 1_024)
_REPEATS = 5
_SAMPLING = {"temperature": 1.0, "top_p": 1.0, "logprobs": True}
_THOUGHT = "I should run this and look at what it says before I answer. "
_OBSERVATION = "line one of the output: 1, 2, 3 and so on\n" * 4
_PROMPT = [
    {"role": "system", "content": "Use the tool, then answer."},
    {"role": "user", "content": "What is the sum of the numbers in the file? " * 4},
]
_ENV = """
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import ToolResult
from verl_agentic.base.types import Reward

SCHEMA = {schema}
OBSERVATION = {observation}


class Tool:
    name, schema = "python", SCHEMA

    async def call(self, arguments):
        return ToolResult(OBSERVATION)


class Env(ToolEnv):
    async def score(self, transcript):
        return Reward(0.0)


def make_env(row):
    return Env(row, [Tool()])
"""
_file_numbers = itertools.count(1_000_000)
_SCHEMA = OpenAIFunctionToolSchema.model_validate(SCHEMA)
_LOOPS = {name: agent_loop._agent_loop_registry[name] for name in ("env_agent", "tool_agent")}


def main() -> int:
    """Runs the measurements and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats and episodes")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    result = Result()
    with tempfile.TemporaryDirectory(prefix="env_loop_") as folder:
        stage = Stage(Path(folder))
        repeats = 2 if options.quick else _REPEATS
        _against_verl(stage, result, episodes=16 if options.quick else _CONCURRENT, repeats=repeats)
        _growth(stage, result, episodes=8, repeats=repeats)
        _blocking(stage, result, repeats=1 if options.quick else 3)
        _throughput(stage, result, levels=_LEVELS[:3] if options.quick else _LEVELS)
    return report(
        "env_loop",
        ratios=result.ratios,
        figures=result.figures,
        targets={
            "cpu_vs_tool_agent_loop": Target(bound=0.7, at_least=False),
            "logged_vs_tool_agent_loop": Target(bound=0.85, at_least=False),
            "turn_cost_growth": Target(bound=1.2, at_least=False),
            "blocked_share": Target(bound=0.5, at_least=False),
        },
    )


@dataclass
class Result:
    """Ratios and figures of the report."""

    ratios: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)


class Server:
    """A fake of verl's client of the rollout servers. No two turns are alike; all are encoded ahead."""

    def __init__(self, tokenizer: Any, turns: int, *, episodes: int = 1) -> None:
        self.outputs = [
            [self._output([*tokenizer.encode(text), tokenizer.eos_token_id]) for text in _turn_texts(turns)]
            for _ in range(episodes)
        ]
        self.asked: dict[str, tuple[int, int]] = {}
        """By request: its episode, and how many of its turns were generated."""
        self.marks: list[float] = []
        """CPU time at every request, in seconds."""

    @staticmethod
    def _output(ids: list[int]) -> TokenOutput:
        return TokenOutput(
            token_ids=ids,
            log_probs=[-1.0] * len(ids),
            stop_reason="completed",
            extra_fields={"min_global_steps": 0, "max_global_steps": 0},
        )

    async def generate(self, *, request_id: str, **_: Any) -> TokenOutput:
        self.marks.append(time.process_time())
        await asyncio.sleep(0)
        episode, turn = self.asked.get(request_id, (len(self.asked) % len(self.outputs), 0))
        self.asked[request_id] = (episode, turn + 1)
        return self.outputs[episode][turn]


def _turn_texts(turns: int) -> list[str]:
    texts = []
    for _ in range(turns - 1):
        code = f"print(open('numbers-{next(_file_numbers)}').read())"
        body = json.dumps({"name": "python", "arguments": {"code": code}})
        texts.append(f"{_THOUGHT}\n<tool_call>\n{body}\n</tool_call>")
    return [*texts, f"The sum is {next(_file_numbers)}."]


class Stage:
    """Tokenizer, environment, and both loops, made the way verl's workers make them."""

    def __init__(self, folder: Path) -> None:
        make_tiny_tokenizer(folder / "tokenizer")
        self.tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
        self._configs: dict[tuple[int, Path, Path | None], tuple[Any, Any]] = {}

        async def answer(code: str) -> str:
            return _OBSERVATION

        self._tools = ToolListWrap([FunctionTool("python", answer, _SCHEMA, is_async=True)])
        self.short, self.long = self._env(folder / "short", _OBSERVATION), self._env(folder / "long", "x y " * 250_000)
        self.log_dir = folder / "log"

    @staticmethod
    def _env(folder: Path, observation: str) -> Path:
        folder.mkdir()
        (folder / "__init__.py").write_text(_ENV.format(schema=SCHEMA, observation=repr(observation)))
        return folder

    async def play(
        self, name: str, server: Server, *, turns: int, env: Path | None = None, log_dir: Path | None = None
    ) -> list[Any]:
        """Plays one episode through `env_agent` or `tool_agent`, and returns its rows.

        verl asks for a loop for each as well, and makes columns of the rows.
        """
        key = (turns, env or self.short, log_dir)
        if key not in self._configs:
            config = self._config(*key)
            self._configs[key] = DictConfigWrap(config), DictConfigWrap(config.data)
        config, data_config = self._configs[key]
        loop = agent_loop.hydra.utils.instantiate(  # pyright: ignore[reportPrivateImportUsage]
            config=_LOOPS[name],
            trainer_config=config,
            server_manager=server,
            tokenizer=self.tokenizer,
            processor=None,
            hf_model_type="qwen3",
            dataset_cls=RLHFDataset,
            data_config=data_config,
            tools=self._tools,
        )
        output = await loop.run(_SAMPLING, raw_prompt=_PROMPT, extra_info={}, global_steps=1)
        return [row.as_dict() for row in (output if isinstance(output, list) else [output])]

    @staticmethod
    def _config(turns: int, env: Path, log_dir: Path | None) -> Any:
        limits = {"max_turns": turns, "max_observation_tokens": 256}
        rollout = {
            "prompt_length": 1_024,
            "response_length": 32_000,
            "full_determinism": False,
            "multi_turn": {
                "format": "hermes",
                "max_user_turns": None,
                "max_assistant_turns": turns,
                "max_parallel_calls": 4,
                "max_tool_response_length": 1_024,
                "tool_response_truncate_side": "middle",
            },
            "custom": {"agentic": {"env": str(env), "limits": limits, "log": {"dir": log_dir and str(log_dir)}}},
        }
        return OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}})


def _cpu_time(work: Callable[[], Coroutine[Any, Any, Any]]) -> float:
    """Returns the CPU time of this process for the work, in seconds."""
    gc.collect()
    began = time.process_time()
    asyncio.run(work())
    return time.process_time() - began


def _against_verl(stage: Stage, result: Result, *, episodes: int, repeats: int) -> None:
    async def play_all(server: Server, name: str, log_dir: Path | None = None) -> None:
        plays = (stage.play(name, server, turns=_TURNS, log_dir=log_dir) for _ in range(episodes))
        (row, *_), *_ = await asyncio.gather(*plays)
        assert len(server.marks) == episodes * _TURNS
        lengths.setdefault(name, len(row["responses"]))
        if log_dir is not None:
            log_writer("trajectories", LogOptions(dir=str(log_dir))).close()

    lengths: dict[str, int] = {}
    sides: dict[str, Callable[[Server], Coroutine[Any, Any, None]]] = {
        "tool_agent": lambda server: play_all(server, "tool_agent"),
        "env_agent": lambda server: play_all(server, "env_agent"),
        "logged": lambda server: play_all(server, "env_agent", stage.log_dir),
        "bare_asyncio": lambda server: _bare(stage, server, episodes),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(-1, repeats):  # the first warms up
        for name, side in sides.items():
            server = Server(stage.tokenizer, _TURNS, episodes=episodes)
            seconds[name].append(_cpu_time(functools.partial(side, server)))
        progress(f"{repeat + 1} of {repeats}: " + ", ".join(f"{name} {s[-1]:.2f} s" for name, s in seconds.items()))
    # The same tokens on both sides, but for the numbers in them.
    assert abs(lengths["tool_agent"] / lengths["env_agent"] - 1) < 0.02, lengths

    def ratio(side: str, other: str) -> float:
        return median([a / b for a, b in zip(seconds[side][1:], seconds[other][1:], strict=True)])

    turns = episodes * _TURNS
    result.ratios["cpu_vs_tool_agent_loop"] = ratio("env_agent", "tool_agent")
    result.ratios["logged_vs_tool_agent_loop"] = ratio("logged", "tool_agent")
    result.ratios["vs_bare_asyncio"] = ratio("env_agent", "bare_asyncio")
    result.figures["cpu_ms_per_turn"] = median([1_000 * s / turns for s in seconds["env_agent"][1:]])
    for name in ("logged", "tool_agent", "bare_asyncio"):
        result.figures[f"cpu_ms_per_turn.{name}"] = median([1_000 * s / turns for s in seconds[name][1:]])
    result.figures |= {"concurrent_episodes": episodes, "turns": _TURNS, "response_tokens": lengths["env_agent"]}


async def _bare(stage: Stage, server: Server, episodes: int) -> None:
    """Plays episodes with only the work of every loop: render prompts, decode and read turns, encode observations."""
    tokenizer, loop = stage.tokenizer, asyncio.get_running_loop()

    def read(ids: Sequence[int]) -> Any:
        text = tokenizer.decode(ids)
        return json.loads(text.split("<tool_call>")[1].split("</tool_call>")[0]) if "<tool_call>" in text else None

    async def episode(number: int) -> None:
        ids = await loop.run_in_executor(None, _render, tokenizer)
        while True:
            output = await server.generate(request_id=str(number), prompt_ids=list(ids))
            ids += output.token_ids
            if await loop.run_in_executor(None, read, output.token_ids) is None:
                return
            ids += await loop.run_in_executor(None, tokenizer.encode, f"\n<|im_start|>user\n{_OBSERVATION}<|im_end|>\n")

    await asyncio.gather(*(episode(number) for number in range(episodes)))


def _render(tokenizer: Any) -> list[int]:
    return list(tokenizer.apply_chat_template(_PROMPT, tools=[SCHEMA], add_generation_prompt=True)["input_ids"])


def _growth(stage: Stage, result: Result, *, episodes: int, repeats: int) -> None:
    ratios, early, late = [], [], []
    for repeat in range(-1, repeats):
        costs = asyncio.run(_turn_costs(stage, episodes))
        # What else a machine does can only add to the cost of a turn.
        second, last = (min(cost[turn - 1] for cost in costs) for turn in (2, _LONG_TURNS))
        ratios.append(last / second)
        early.append(1_000 * second)
        late.append(1_000 * last)
        progress(f"turns, {repeat + 1} of {repeats}: {early[-1]:.2f} ms for the second, {late[-1]:.2f} for the last")
    result.ratios["turn_cost_growth"] = median(ratios[1:])
    result.figures["cpu_ms_turn_2"], result.figures["cpu_ms_turn_32"] = median(early[1:]), median(late[1:])


async def _turn_costs(stage: Stage, episodes: int) -> list[list[float]]:
    """Returns the CPU time of each turn but the last, from its request to the next one, in seconds, per episode."""
    turns = _LONG_TURNS + 1  # the last one is the answer, which is cheaper
    costs = []
    for _ in range(episodes):
        server = Server(stage.tokenizer, turns)
        gc.collect()
        gc.disable()  # a collection in one of the turns is not what that turn costs
        try:
            await stage.play("env_agent", Server(stage.tokenizer, _TURNS), turns=_TURNS)  # or turn 2 is a cold one
            await stage.play("env_agent", server, turns=turns)
        finally:
            gc.enable()
        assert len(server.marks) == turns
        costs.append([after - before for before, after in itertools.pairwise(server.marks)])
    return costs


def _blocking(stage: Stage, result: Result, *, repeats: int) -> None:
    longest, encoding = [], []
    for _ in range(repeats):
        server = Server(stage.tokenizer, _TURNS)
        longest.append(asyncio.run(_longest_block(stage, server)))
        began = time.process_time()
        stage.tokenizer.encode("x y " * 250_000)
        encoding.append(time.process_time() - began)
    result.ratios["blocked_share"] = median([a / b for a, b in zip(longest, encoding, strict=True)])
    result.figures["longest_block_ms"] = median([1_000 * seconds for seconds in longest])


async def _longest_block(stage: Stage, server: Server) -> float:
    episodes = asyncio.gather(*(stage.play("env_agent", server, turns=_TURNS, env=stage.long) for _ in range(8)))
    longest, before = 0.0, time.perf_counter()
    while not episodes.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    await episodes
    return longest


def _throughput(stage: Stage, result: Result, *, levels: Sequence[int]) -> None:
    for level in levels:
        rates = []
        for _ in range(3):
            server = Server(stage.tokenizer, _TURNS)

            async def play_all(server: Server = server, level: int = level) -> None:
                total = max(level, 16)
                slots = asyncio.Semaphore(level)

                async def one() -> None:
                    async with slots:
                        await stage.play("env_agent", server, turns=_TURNS)

                await asyncio.gather(*(one() for _ in range(total)))

            began = time.perf_counter()
            asyncio.run(play_all())
            rates.append(max(level, 16) / (time.perf_counter() - began))
        result.figures[f"episodes_per_s.{level}"] = median(rates)
        progress(f"{level} at a time: {result.figures[f'episodes_per_s.{level}']} episodes/s")


if __name__ == "__main__":
    sys.exit(main())
