"""One environment package and loops made the way verl makes them, for tests of what verl gets for an episode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import hydra
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap, _agent_loop_registry
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

import verl_agentic.verl.rollout.agent_loop  # noqa: F401

Chat = tuple[Any, Any]
SAMPLING = {"temperature": 1.0, "top_p": 0.9, "logprobs": True}
DATA = {"continuous_token": {"enable": False}}  # verl 0.9.0 reads it
CALL = '<tool_call>\n{"name": "double", "arguments": {"number": 21}}\n</tool_call>'
ENV = dedent(
    '''
    """An environment whose tool doubles a number, or fails as the row wants it to."""

    import asyncio

    from verl_agentic.base.tools.tool_env import ToolEnv
    from verl_agentic.base.types import ToolResult
    from verl_agentic.base.types import Observation, Reward

    ENVS = []


    class Double:
        name = "double"
        schema = {"type": "function", "function": {"name": "double", "description": "Doubles.", "parameters": {
            "type": "object", "properties": {"number": {"type": "integer"}}}}}

        def __init__(self, how):
            self.how = how

        async def call(self, arguments):
            if self.how == "hang":
                await asyncio.sleep(3600)
            if self.how == "raise":
                raise ConnectionError("sandbox gone")
            return ToolResult(str(2 * arguments["number"]))


    class Env(ToolEnv):
        def __init__(self, row, bonus):
            super().__init__(row, [Double(row.extra.get("how"))], tool_timeout_s=60)
            self.bonus, self.closed = bonus, 0
            ENVS.append(self)

        async def start(self):
            if self.row.extra.get("how") == "no start":
                raise OSError("no disk")
            return await super().start()

        async def step(self, action):
            seen = await super().step(action)
            return Observation(seen.messages, reward=self.bonus, stop=seen.stop, info=seen.info)

        async def score(self, transcript):
            return Reward(float(transcript.final_answer == self.row.ground_truth), {"brevity": -0.125})

        async def close(self):
            self.closed += 1


    def make_env(row, *, bonus=0.0):
        return Env(row, bonus)
    '''
)


class Servers:
    """Stands in for verl's client of the rollout servers."""

    def __init__(self, tokenizer: Any, turns: Sequence[str], **extra_fields: Any) -> None:
        self.tokenizer = tokenizer
        self.turns = turns
        self.extra_fields = extra_fields
        self.requests: list[dict[str, Any]] = []
        self.played: dict[str, int] = {}
        self.stop_reason = "completed"

    async def generate(self, **request: Any) -> TokenOutput:
        self.requests.append(request)
        turn = self.played.get(request["request_id"], 0)
        self.played[request["request_id"]] = turn + 1
        ids = [*self.tokenizer.encode(self.turns[turn]), self.tokenizer.eos_token_id]
        ids = ids[: request["sampling_params"]["max_tokens"]]
        return TokenOutput(
            token_ids=ids,
            log_probs=[-1.0 - turn - i / 100 for i in range(len(ids))],
            stop_reason=self.stop_reason,
            extra_fields={"min_global_steps": 3 + turn, "max_global_steps": 4 + turn, **self.extra_fields},
        )


class Stage:
    """One environment package, one tokenizer, and loops made the way verl makes them."""

    def __init__(self, folder: Path, tokenizer: Any) -> None:
        self.folder = folder
        self.tokenizer = tokenizer

    def loop(
        self,
        servers: Servers,
        *,
        processor: Any = None,
        named: dict[str, Any] | None = None,
        reward: dict[str, Any] | None = None,
        rollout: dict[str, Any] | None = None,
        algorithm: dict[str, Any] | None = None,
        loss: str = "vanilla",
        **section: Any,
    ):
        section = {"env": str(self.folder), "limits": {"max_turns": 3, "turn_timeout_s": 0.6}, **section}
        rollout = {
            "prompt_length": 128,
            "response_length": 256,
            "multi_turn": {"format": "hermes"},
            "custom": {"agentic": section},
            **(rollout or {}),
        }
        sections = {"data": DATA, "reward": reward or {}, "algorithm": algorithm or {}}
        parts = {"model": {"path": "qwen3"}, "rollout": rollout, "actor": {"policy_loss": {"loss_mode": loss}}}
        config = OmegaConf.create({"actor_rollout_ref": parts, **sections})
        return hydra.utils.instantiate(
            config={**_agent_loop_registry["env_agent"], **(named or {})},
            trainer_config=DictConfigWrap(config),
            server_manager=servers,
            tokenizer=self.tokenizer,
            processor=processor,
            hf_model_type="qwen3",
            dataset_cls=RLHFDataset,
            data_config=DictConfigWrap(config.data),
            tools=ToolListWrap([]),
        )

    async def play(
        self, *turns: str, how: str = "", global_steps: Any = 7, sampling: Any = SAMPLING, **section: Any
    ) -> Any:
        loop = self.loop(Servers(self.tokenizer, turns), **section)
        (output,) = await loop.run(dict(sampling), **row(how, global_steps=global_steps))
        return output

    def envs(self) -> list[Any]:
        from verl_agentic.episode.env_package import load_env

        return load_env(str(self.folder)).__globals__["ENVS"]


def row(how: str = "", **more: Any) -> dict[str, Any]:
    """Returns the arguments that verl passes to an agent loop for a dataset row."""
    return {
        "raw_prompt": [{"role": "user", "content": "Double 21."}],
        "reward_model": {"ground_truth": "42", "style": "rule"},
        "data_source": "doubles",
        "extra_info": {"how": how, "index": 0},
        "uid": "u",
        "session_id": 0,
        "global_steps": 7,
        **more,
    }


def make_stage(folder: Path, tokenizer: Any) -> Stage:
    """Returns the stage of a test."""
    package = folder / f"doubles_{folder.parent.name}_{folder.name}"  # modules are kept by the folder's name
    package.mkdir()
    (package / "__init__.py").write_text(ENV)
    return Stage(package, tokenizer)
