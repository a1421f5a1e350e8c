"""The rollouts of `rollout_path.py` in one checkout: plays a batch for every command, and reports what it took.

`_rollout_side.py FILE DESCRIPTOR`: a JSON file with the fields of `Spec`, and the pipe for results. A command is a line
of JSON on standard input: `{"loop": "env_agent"}`, or with `"profile": true`. The answer is a line of JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import ray
import torch
import transfer_queue as tq
from _thread_profile import Stack, ThreadProfile
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.experimental.reward_loop import RewardLoopManager
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env
from verl.trainer.ppo.v1 import AgentLoopManagerTQ, get_trainer_cls
from verl.utils import tensordict_utils as tu
from verl.utils.device import auto_set_device
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.router import get_router_handle

from verl_agentic.base.paths import recipes_dir
from verl_agentic.verl.extensions.preflight.compose import compose

_SETTLE_S = 1.0
"""Time for what goes on behind a batch, such as the writer of the log, which waits for half a second."""
_LABELS = {
    "engine": ("verl_agentic/cpu/inference/", "_rollout_side.py:generate"),
    "loop made for each episode": (
        *("agent_loop.py:instantiate_loop", "agent_loop.py:__init__", "tool_agent_loop.py:__init__"),
        *("hydra/", "continuous_token_wiring.py"),
    ),
    "parsing turns": ("tool_parser.py", "codec.py:decode_action", "codec/tool_calls.py", "codec/json_values.py"),
    "templates and tokens": (
        *("episode/codec/", "episode/protocols/", "continuous_token", "tokenization_utils", "jinja2/"),
        *("agent_loop.py:ct_", "tokenization_"),
    ),
    "rows into TransferQueue": ("transfer_queue/", "tensordict/", "stored_together.py", "tensordict_utils.py"),
    "text audit": ("text_audit.py", "row_audit.py"),
    "trajectory log": ("verl_agentic/log/", "episode_log.py", "verl_rows.py:_make_log_record", "secrets.py"),
    "columns of a row": ("episode_rows.py", "agent_loop.py:as_dict", "agent_loop.py:_to_outputs", "step_keys.py"),
    "scoring": (
        "reward_loop",
        "verl_agentic/rewards/",
        "verl_agentic/graders/",
        ":score",
        "hacking/",
        "records/episode.py",
    ),
    "tool and environment": (
        "verl_agentic/base/tools/",
        "verl_agentic/base/env",
        "/task_env/",
        "tool_agent_loop.py:_call_tool",
    ),
    "buffer of the trainer": ("replay_buffer",),
    "calls between actors": ("/cpu/threads/", "one_process.py", "site-packages/ray/", "cloudpickle"),
    "load balancer": ("rollout/router.py",),
    "episode loop": (
        "verl_agentic/episode/",
        "agent_loop",
        "monitoring/",
        "deadlines.py",
        "llm_server.py",
        "replica.py",
    ),
    "event loop": ("asyncio/", "selectors.py"),
}
"""Work -> files, or `file:function`, of its frames. The innermost frame that matches counts."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One engine, and one way of making actors."""

    folder: str
    """Has `model`, `rows.jsonl`, `task_env` and `tool.py`."""
    address: str
    """Of Ray: `threads` or `local`."""
    has_engine: bool
    device: str
    num_prompts: int
    group_size: int
    scripts: list[tuple[str, str]]
    """First and second turn of an episode."""


class ScriptedServer:
    """Answers at once: a call of the tool, then an answer. No two turns are alike."""

    def __init__(self, spec: Spec) -> None:
        tokenizer = AutoTokenizer.from_pretrained(Path(spec.folder) / "model")
        end = [tokenizer.eos_token_id]
        self._turns = [[[*tokenizer.encode(text), *end] for text in script] for script in spec.scripts]
        self._marker = tokenizer.convert_tokens_to_ids("<|im_start|>")
        self._next = [itertools.cycle(range(len(self._turns))) for _ in range(2)]
        self._marks: list[tuple[int, float, float]] = []

    async def generate(self, prompt_ids: list[int], sampling_params: Any, request_id: str, **_: Any) -> TokenOutput:
        """Returns the next turn; the number of headers in the prompt tells which."""
        began = time.time()
        turn = int(prompt_ids.count(self._marker) > 3)
        ids = self._turns[next(self._next[turn])][turn]
        output = await self._sample(prompt_ids, sampling_params, request_id, len(ids))
        self._marks.append((turn, began, time.time()))
        return TokenOutput(
            token_ids=ids,
            log_probs=output.log_probs,
            stop_reason="completed",
            num_preempted=0,
            extra_fields={"global_steps": 0, "finish_reason": "stop"},
        )

    async def _sample(self, prompt_ids: list[int], params: Any, request_id: str, num_tokens: int) -> TokenOutput:
        return TokenOutput(token_ids=[], log_probs=[-1.0] * num_tokens)

    async def take_marks(self) -> list[tuple[int, float, float]]:
        """Returns number, begin and end of each turn since the last call."""
        marks, self._marks = self._marks, []
        return marks


def make_server(spec: Spec, config: Any) -> Any:
    """Returns the actor: the scripted one, or one whose engine samples as many tokens before each scripted turn."""
    options: dict[str, Any] = {"num_cpus": 0, "max_concurrency": 1_000}
    if not spec.has_engine:
        return ray.remote(ScriptedServer).options(**options).remote(spec)
    from verl_agentic.verl.extensions.server.replica import _make_environment
    from verl_agentic.verl.extensions.server.rollout_server import RolloutServer

    class EngineServer(ScriptedServer):
        def __init__(self, spec: Spec, **engine: Any) -> None:
            super().__init__(spec)
            self._server = RolloutServer(**engine)

        async def _sample(self, prompt_ids: list[int], params: Any, request_id: str, num_tokens: int) -> TokenOutput:
            texts = {name: value for name, value in params.items() if not name.startswith(("stop", "include_stop"))}
            asked = {**texts, "max_tokens": num_tokens, "ignore_eos": True}
            return await self._server.generate(prompt_ids, asked, request_id)

    if variables := _make_environment("0"):
        options["runtime_env"] = {"env_vars": variables}
    actor_config = config.actor_rollout_ref
    engine = {"config": actor_config.rollout, "model_config": actor_config.model, "replica_rank": 0}
    threads = len(os.sched_getaffinity(0))
    return ray.remote(EngineServer).options(**options).remote(spec, threads=threads, **engine)


class Rollouts:
    """verl's trainer as far as its rollout goes: data, managers of both loops, replay buffer."""

    def __init__(self, spec: Spec) -> None:
        folder = Path(spec.folder)
        keys: dict[str, Any] = {
            "data.train_files": folder / "rows.jsonl",
            "data.val_files": folder / "rows.jsonl",
            "data.train_batch_size": spec.num_prompts,
            "data.max_prompt_length": 512,
            "data.max_response_length": 512,
            "actor_rollout_ref.model.path": folder / "model",
            "actor_rollout_ref.rollout.n": spec.group_size,
            "actor_rollout_ref.actor.ppo_mini_batch_size": spec.num_prompts,
            "actor_rollout_ref.rollout.multi_turn.function_tool_path": folder / "tool.py",
            "actor_rollout_ref.rollout.multi_turn.max_assistant_turns": 3,
            "agentic.env": folder / "task_env",
            "trainer.default_local_dir": folder / f"run-{os.getpid()}",
            "trainer.device": spec.device,
            "ray_kwargs.ray_init.address": spec.address,
        }
        composed = compose(recipes_dir() / "quickstart", "grpo", [f"{key}={value}" for key, value in keys.items()])
        config: Any = composed.config
        auto_set_device(config)
        config.transfer_queue.enable = True
        OmegaConf.resolve(config)
        environment: Any = get_ppo_ray_runtime_env(config)
        environment.setdefault("env_vars", {})["TRANSFER_QUEUE_ENABLE"] = "1"
        init: Any = OmegaConf.to_container(config.ray_kwargs.ray_init)
        ray.init(**{**init, "runtime_env": environment, "log_to_driver": False})
        tq.init(config.transfer_queue)
        self._spec, self.server = spec, make_server(spec, config)
        trainer: Any = get_trainer_cls("sync")(config=config)
        trainer._init_tokenizer()
        trainer._init_dataloader()
        trainer.global_steps = 1
        self._trainer = trainer
        balancer = get_router_handle(servers={"server": self.server})
        rewards = RewardLoopManager(config=config).reward_loop_worker_handles
        # verl's loop as verl has it: nothing of its rows is logged.
        bare: Any = OmegaConf.merge(config, {"actor_rollout_ref": {"rollout": {"custom": {"agentic": {"log": None}}}}})
        self._managers = {
            loop: AgentLoopManagerTQ.create(
                config=own,
                llm_client=LLMServerClient(config=own, load_balancer_handle=balancer),
                reward_loop_worker_handles=rewards,
            )
            for loop, own in (("tool_agent", bare), ("env_agent", config))
        }

    def play(self, loop: str) -> dict[str, float]:
        """Plays a batch; returns wall seconds by phase, and the CPU seconds of all processes."""
        trainer = self._trainer
        batch = trainer._next_train_batch()
        tu.assign_non_tensor_data(batch, "agent_name", loop)
        trainer.agent_loop_manager = self._managers[loop]
        cpu_s, began = _cpu_s(), time.time()
        trainer._submit_batch_to_rollout(batch)
        stored, _ = trainer.replay_buffer.sample(
            global_steps=1, partition_id="train", batch_size=self._spec.num_prompts
        )
        ended = time.time()
        time.sleep(_SETTLE_S)
        cpu_s = _cpu_s() - cpu_s
        marks: Any = ray.get(self.server.take_marks.remote())
        num_episodes = self._spec.num_prompts * self._spec.group_size
        assert Counter(turn for turn, _, _ in marks) == {0: num_episodes, 1: num_episodes}, len(marks)
        rows = tq.kv_batch_get(keys=stored.keys, partition_id="train", select_fields=["responses", "rm_scores"])
        assert len(stored.keys) == num_episodes
        tq.kv_clear(keys=stored.keys, partition_id="train")
        last_first = max(start for turn, start, _ in marks if turn == 0)
        last_end = max(end for _, _, end in marks)
        return {
            "gen_s": ended - began,
            "start_s": last_first - began,
            "turns_s": last_end - last_first,
            "end_s": ended - last_end,
            "cpu_s": cpu_s,
            "tokens": sum(len(row) for row in rows["responses"].unbind()),
            "reward": sum(float(row.sum()) for row in rows["rm_scores"].unbind()) / num_episodes,
        }


def _cpu_s() -> float:
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:2])
        except psutil.Error:
            continue
    return total


def label_of(stack: Stack) -> str:
    """Returns the work that a stack belongs to."""
    for file, function in stack:
        name = f"{file}:{function}"
        for label, marks in _LABELS.items():
            if any(mark in name for mark in marks):
                return label
    return "other"


def main() -> None:
    """Serves commands until standard input ends."""
    spec = Spec(**json.loads(Path(sys.argv[1]).read_text()))
    rollouts = Rollouts(spec)
    results = os.fdopen(int(sys.argv[2]), "w")  # verl prints to standard output
    print(json.dumps({"is_ready": True}), file=results, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if not command.get("profile"):
            answer: dict[str, Any] = dict(rollouts.play(command["loop"]))
        else:
            with ThreadProfile(label_of) as profile:
                answer = dict(rollouts.play(command["loop"]))
            answer["profile"] = dict(profile.cpu_s)
            if command.get("stacks"):
                _write_stacks(profile, Path(command["stacks"]))
        print(json.dumps(answer), file=results, flush=True)
    tq.close()
    ray.shutdown()


def _write_stacks(profile: ThreadProfile, path: Path) -> None:
    """Writes the stacks in the folded form that flame graphs are drawn from."""
    with path.open("a") as file:
        for stack, seconds in profile.stacks.items():
            frames = ";".join(f"{Path(name).name}:{function}" for name, function in reversed(stack))
            file.write(f"{frames} {round(1e6 * seconds)}\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
