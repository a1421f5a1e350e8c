"""verl's vLLM server on a CPU behind our policy: weight updates, aborted turns, and how a turn ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl")

import torch
from searching import ROWS, SEARCH, make_searching_env
from transformers import AutoModelForCausalLM, AutoTokenizer

from verl_agentic.episode.env_package import load_env_package
from verl_agentic.episode.policies.policy import Completion
from verl_agentic.verl.features import is_installed
from verl_agentic.verl.rollout.model_codec import load_codec

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(not is_installed("vllm"), reason="vLLM is not installed; run `make test-vllm`"),
]

_PROMPT = "<|im_start|>user\nWhat is 12*34?<|im_end|>\n<|im_start|>assistant\n"
_SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "logprobs": True, "ignore_eos": True}
_MAX_TOKENS = 900


class Bench:
    """A server, and two models whose weights it may get."""

    def __init__(self, server: Any, folder: Path, prompt_ids: Sequence[int] = ()) -> None:
        self.server = server
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.prompt_ids = prompt_ids or self.tokenizer.encode(_PROMPT)
        self.first: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.second: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        torch.manual_seed(0)
        with torch.no_grad():
            for parameter in self.second.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.05 * parameter.std())

    async def generate(
        self, max_tokens: int, *, stop_texts: Sequence[str] = (), stop_token_ids: Sequence[int] = (), **sampling: Any
    ) -> Completion:
        """Samples a turn as an episode does."""
        from verl_agentic.verl.rollout.agent_loop import ServerPolicy

        codec: Any = SimpleNamespace(stop_texts=stop_texts, stop_token_ids=stop_token_ids)
        policy = ServerPolicy(
            self.server.client(),
            sampling_params={**_SAMPLING, **sampling},
            codec=codec,
            end_ids=[self.tokenizer.eos_token_id],
            engine="vllm",
        )
        return await policy.generate(self.prompt_ids, messages=(), max_tokens=max_tokens, request_id="r")

    @torch.inference_mode()
    def log_probs(self, model: Any, token_ids: Sequence[int]) -> torch.Tensor:
        """Returns the log-probs of sampled tokens behind the prompt, by transformers."""
        logits = model(torch.tensor([[*self.prompt_ids, *token_ids]])).logits[0, len(self.prompt_ids) - 1 : -1]
        return torch.log_softmax(logits, -1)[range(len(token_ids)), list(token_ids)]

    def difference(self, completion: Completion, model: Any, part: slice = slice(None)) -> float:
        """Returns the largest difference of the server's log-probs from those of a model."""
        assert completion.log_probs is not None
        expected = self.log_probs(model, completion.token_ids)
        return (torch.tensor(completion.log_probs) - expected)[part].abs().max().item()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from vllm_server import serving

    from verl_agentic.cpu.tiny_model import make_tiny_model

    folder = tmp_path_factory.mktemp("model")
    make_tiny_model(folder)
    with serving(folder, "data.max_prompt_length=64", "data.max_response_length=900") as server:
        yield Bench(server, folder)


async def _updated(bench: Bench, model: Any, *, version: int) -> None:
    await bench.server.update(model.state_dict(), version=version)


@pytest.fixture
async def fresh(bench: Bench) -> Bench:
    """The server with the first model's weights."""
    await _updated(bench, bench.first, version=1)
    return bench


async def test_turns_are_sampled_with_the_weights_of_the_last_update(fresh: Bench) -> None:
    """Also after the weights have come back: the packed copies of the kernels follow each of them."""
    for version, (model, other) in enumerate(((fresh.first, fresh.second), (fresh.second, fresh.first)) * 2):
        await _updated(fresh, model, version=version)
        turns = await asyncio.gather(*(fresh.generate(64) for _ in range(4)))
        for turn in turns:
            assert len(turn.token_ids) == 64 and turn.finish_reason == "length"
            assert (turn.min_weights_version, turn.max_weights_version) == (version, version)
            assert fresh.difference(turn, model) < 1e-4 < 1e-2 < fresh.difference(turn, other)


async def test_a_turn_that_an_update_aborts_goes_on_with_the_new_weights(fresh: Bench) -> None:
    for wait_s in (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2):
        fresh.server.outputs.clear()
        await _updated(fresh, fresh.first, version=1)
        turn = asyncio.ensure_future(fresh.generate(_MAX_TOKENS))
        await asyncio.sleep(wait_s)
        await fresh.server.abort()
        await _updated(fresh, fresh.second, version=2)
        await fresh.server.resume()
        completion = await turn
        sampled = len(fresh.server.outputs[0].token_ids)
        if 0 < sampled < _MAX_TOKENS:  # else it was too slow to begin, or too fast to be aborted
            break
    assert [output.stop_reason for output in fresh.server.outputs] == ["aborted", "completed"]
    assert len(completion.token_ids) == _MAX_TOKENS and completion.finish_reason == "length"
    assert (completion.min_weights_version, completion.max_weights_version) == (1, 2)
    before, after = slice(0, sampled), slice(sampled, None)
    assert fresh.difference(completion, fresh.first, before) < 1e-4 < fresh.difference(completion, fresh.second, before)
    assert fresh.difference(completion, fresh.second, after) < 1e-4 < fresh.difference(completion, fresh.first, after)


async def test_a_stop_text_is_part_of_the_turn_that_it_ends(bench: Bench, tag_player: Path, tmp_path: Path) -> None:
    """The model has learned to write the text; nothing else ends its turn."""
    _, codec = load_codec(str(tag_player), protocol=str(tag_player.parent / "tags.yaml"))
    env = load_env_package(str(make_searching_env(tmp_path))).make_env(ROWS[0])
    prompt_ids = await codec.encode_prompt(ROWS[0].prompt, [tool.schema for tool in env.tools])
    player = Bench(bench.server, tag_player, prompt_ids)
    await _updated(player, player.first, version=1)
    whole = await player.generate(60, temperature=0.0)
    turn = await player.generate(60, temperature=0.0, stop_texts=codec.stop_texts)
    assert SEARCH.endswith("</search>") and "</search>" in codec.stop_texts
    assert turn.finish_reason == "stop" and player.tokenizer.decode(turn.token_ids) == SEARCH
    assert whole.finish_reason == "length" and list(turn.token_ids) == list(whole.token_ids)[: len(turn.token_ids)]
    assert turn.log_probs is not None and len(turn.log_probs) == len(turn.token_ids)
    assert player.difference(turn, player.first) < 1e-4


async def test_a_stop_token_is_the_last_one_of_the_turn_that_it_ends(fresh: Bench) -> None:
    whole = list((await fresh.generate(60, seed=1)).token_ids)
    stop = whole[20]
    turn = await fresh.generate(60, seed=1, stop_token_ids=[stop])
    assert turn.finish_reason == "stop" and list(turn.token_ids) == whole[: whole.index(stop) + 1]
    # The budget is full, and the turn has ended in it.
    exact = await fresh.generate(whole.index(stop) + 1, seed=1, stop_token_ids=[stop])
    assert exact.finish_reason == "stop" and exact.token_ids == turn.token_ids
