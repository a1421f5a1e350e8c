"""Requests to verl's servers: stop texts stay in the sampled tokens; without tools, a turn is verl's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import hydra
import pytest
from omegaconf import OmegaConf
from stage import DATA, SAMPLING, Chat, Servers, row
from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap, _agent_loop_registry
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

PACKAGE = dedent(
    '''
    """Answers searches, if it has a tool."""

    from verl_agentic.base.tools.tool_env import ToolEnv
    from verl_agentic.base.types import ToolResult
    from verl_agentic.base.types import Reward


    class Search:
        name = "search"
        schema = {"type": "function", "function": {"name": "search", "parameters": {
            "type": "object", "properties": {"query": {"type": "string"}}}}}

        async def call(self, arguments):
            return ToolResult("found")


    class Env(ToolEnv):
        async def score(self, transcript):
            return Reward(float(transcript.final_answer == "42"))


    def make_env(row, *, has_tool=True):
        return Env(row, [Search()] if has_tool else [])
    '''
)


class StoppingServers(Servers):
    """Ends a turn at a stop text as vLLM does: the text is dropped unless the request wants it in the output."""

    async def generate(self, **request: Any) -> TokenOutput:
        params: Mapping[str, Any] = request["sampling_params"]
        output = await super().generate(
            **{**request, "sampling_params": {"max_tokens": self.budget, **params}},
        )
        text = self.tokenizer.decode(output.token_ids)
        for stop in params.get("stop") or ():
            if stop in text:
                kept = stop if params.get("include_stop_str_in_output") else ""
                output.token_ids = self.tokenizer.encode(text.partition(stop)[0] + kept, add_special_tokens=False)
                output.log_probs = (output.log_probs or [])[: len(output.token_ids)]
        return output

    budget = 256


def loop_of(name: str, folder: Path, tokenizer: Any, servers: Any, **section: Any) -> Any:
    """Returns an agent loop made the way verl makes it."""
    rollout = {
        "prompt_length": 512,
        "response_length": 256,
        "multi_turn": {"format": "hermes"},
        "custom": {"agentic": {"env": str(folder), **section}} if name == "env_agent" else {},
    }
    actor = {"model": {"path": "qwen3"}, "rollout": rollout}
    config = OmegaConf.create({"actor_rollout_ref": actor, "data": DATA, "reward": {}, "algorithm": {}})
    return hydra.utils.instantiate(
        config=_agent_loop_registry[name],
        trainer_config=DictConfigWrap(config),
        server_manager=servers,
        tokenizer=tokenizer,
        processor=None,
        hf_model_type="qwen3",
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(config.data),
        tools=ToolListWrap([]),
    )


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / f"searching_{tmp_path.name}"
    folder.mkdir()
    (folder / "__init__.py").write_text(PACKAGE)
    return folder


@pytest.mark.parametrize("protocol", ["search_r1", "research"])
async def test_stop_texts_stay_in_what_is_trained(package: Path, tiny_chat: Chat, protocol: str) -> None:
    answer = "<answer>42</answer>" if protocol == "search_r1" else r"<answer>\boxed{42}</answer>"
    servers = StoppingServers(tiny_chat[0], ["<search>q</search> lost", f"{answer} lost"])
    loop = loop_of("env_agent", package, tiny_chat[0], servers, protocol=protocol)
    (output,) = await loop.run(dict(SAMPLING), **row())
    trained = [token for token, mask in zip(output.response_ids, output.response_mask, strict=True) if mask]
    assert tiny_chat[0].decode(trained) == f"<search>q</search>{answer}"
    assert output.reward_score == 1.0 and output.extra_fields["stop_reason"] == "answered"
    for request in servers.requests:
        params = request["sampling_params"]
        assert params["include_stop_str_in_output"] is True and "</search>" in params["stop"]


PROMPTS = (
    [{"role": "user", "content": "Double 21."}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 6*7? é 你好 🙂"}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "Now 42."}],
    [{"role": "user", "content": "Reason in <think> </think>, answer in <answer> </answer> or \\boxed{}."}],
)


@pytest.mark.parametrize("prompt", PROMPTS, ids=["user", "system", "examples", "tags"])
@pytest.mark.parametrize(
    "said", ["42", "<think>é</think> so 42", "x" * 400, ""], ids=["short", "thinks", "cut", "empty"]
)
async def test_without_tools_ids_and_masks_are_those_of_verls_single_turn_agent(
    package: Path, tiny_chat: Chat, prompt: Any, said: str
) -> None:
    tokenizer, outputs = tiny_chat[0], []
    for name in ("single_turn_agent", "env_agent"):
        servers = StoppingServers(tokenizer, [said])
        section = {"env_config": {"has_tool": False}, "limits": {"max_turns": 1}} if name == "env_agent" else {}
        loop = loop_of(name, package, tokenizer, servers, **section)
        output = await loop.run(dict(SAMPLING), **row(raw_prompt=prompt))
        outputs.append(output[0] if isinstance(output, list) else output)
    verls, ours = outputs
    assert ours.prompt_ids == list(verls.prompt_ids)
    assert ours.response_ids == list(verls.response_ids)
    assert ours.response_mask == list(verls.response_mask)
    assert ours.response_logprobs == list(verls.response_logprobs)
