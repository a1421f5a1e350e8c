"""The decoders compute what transformers computes, for every family, and say so when they cannot."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
import torch
import transformers
from reference_model import hf_greedy, plain_log_probs, prompt

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.cpu.inference.decoder import FusedDecoder, ModuleDecoder, load_weights, make_decoder
from verl_agentic.cpu.inference.kv_cache import SlotCache
from verl_agentic.cpu.inference.request import SamplingParams
from verl_agentic.cpu.inference.span import make_span

SIZES: dict[str, Any] = {
    "vocab_size": 386,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "initializer_range": 0.15,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
WIDE = {**GROUPED, "hidden_size": 512, "intermediate_size": 192, "initializer_range": 0.05}
"""Wide enough for packed weights."""
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES: dict[str, tuple[type[FusedDecoder | ModuleDecoder], Any]] = {
    "qwen3": (FusedDecoder, lambda: transformers.Qwen3Config(**GROUPED, head_dim=24)),
    "qwen3 tied": (FusedDecoder, lambda: transformers.Qwen3Config(**GROUPED, head_dim=16, tie_word_embeddings=True)),
    "qwen2": (FusedDecoder, lambda: transformers.Qwen2Config(**GROUPED)),
    "llama": (FusedDecoder, lambda: transformers.LlamaConfig(**GROUPED)),
    "llama biased": (FusedDecoder, lambda: transformers.LlamaConfig(**GROUPED, attention_bias=True)),
    "llama3 rope": (FusedDecoder, lambda: transformers.LlamaConfig(**GROUPED, rope_parameters=LLAMA3_ROPE)),
    "qwen3 wide tied": (FusedDecoder, lambda: transformers.Qwen3Config(**WIDE, head_dim=32, tie_word_embeddings=True)),
    "qwen2 wide": (FusedDecoder, lambda: transformers.Qwen2Config(**WIDE)),
    "llama mlp bias": (ModuleDecoder, lambda: transformers.LlamaConfig(**GROUPED, mlp_bias=True)),
    "llama gelu": (ModuleDecoder, lambda: transformers.LlamaConfig(**GROUPED, hidden_act="gelu")),
    "gpt_neox": (ModuleDecoder, lambda: transformers.GPTNeoXConfig(**SIZES)),
    "gpt2": (
        ModuleDecoder,
        lambda: transformers.GPT2Config(
            vocab_size=386, n_embd=64, n_layer=2, n_head=4, n_positions=256, bos_token_id=None, eos_token_id=None,
            initializer_range=0.15,
        ),
    ),
}  # fmt: skip


def make_model(config: Any) -> Any:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    with torch.no_grad():  # a bias of zeros would hide that it is left out
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.2)
    return model


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", FAMILIES)
async def test_greedy_tokens_are_those_of_generate_and_log_probs_those_of_a_plain_pass(
    family: str, make_engine: Any
) -> None:
    kind, make_config = FAMILIES[family]
    model = make_model(make_config())
    assert type(make_decoder(copy.deepcopy(model))) is kind
    engine = make_engine(copy.deepcopy(model), prefill_tokens=40)
    prompts = [prompt(seed, length) for seed, length in enumerate((3, 17, 40, 75))]
    params = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
    got = await asyncio.gather(*(engine.generate(ids, params) for ids in prompts))
    assert [g.token_ids for g in got] == [hf_greedy(model, ids, 20) for ids in prompts]
    for ids, generation in zip(prompts, got, strict=True):
        assert generation.log_probs == pytest.approx(plain_log_probs(model, ids, generation.token_ids), abs=1e-4)


@pytest.mark.sample(3)
@pytest.mark.parametrize("family", ["qwen3 tied", "qwen2", "gpt_neox", "qwen3 wide tied", "qwen2 wide"])
async def test_new_weights_are_computed_with_in_every_layer(family: str, make_engine: Any) -> None:
    model, other = (make_model(FAMILIES[family][1]()) for _ in range(2))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    engine, ids = make_engine(model), prompt(0, 50)
    params = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)
    before = await engine.generate(ids, params)
    await engine.update_weights(((n, p.detach().clone()) for n, p in other.named_parameters()), version=3)
    after = await engine.generate(ids, params)
    assert after.token_ids == hf_greedy(other, ids, 10) != before.token_ids
    assert after.log_probs == pytest.approx(plain_log_probs(other, ids, after.token_ids), abs=1e-4)
    assert (before.weights_version, after.weights_version, after.num_cached_tokens) == (0, 3, 0)


def test_an_update_of_some_weights_keeps_the_others_of_a_packed_layer() -> None:
    model = make_model(FAMILIES["qwen2 wide"][1]())
    packed = make_decoder(copy.deepcopy(model))
    names = ("model.layers.1.self_attn.k_proj.weight", "model.norm.weight", "model.layers.0.mlp.up_proj.weight")
    changed = [(name, 1.5 * model.state_dict()[name]) for name in names]
    packed.update(iter(changed))
    load_weights(model, changed)
    cache = SlotCache(packed.cache_shape)
    cache.resize(slots=2, positions=16)
    ids = [prompt(0, 9), prompt(1, 4)]
    logits_BV = packed.forward(make_span(ids, [0, 0], start=0, shape=packed.cache_shape), cache)
    with torch.no_grad():
        expected = torch.stack([model(torch.tensor([row])).logits[0, -1] for row in ids])
    torch.testing.assert_close(logits_BV, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "config",
    [
        transformers.MistralConfig(**GROUPED, sliding_window=32),
        transformers.Gemma3TextConfig(**GROUPED, head_dim=16, sliding_window=32),
    ],
)
def test_a_sliding_window_is_refused(config: Any) -> None:
    with pytest.raises(ConfigError, match="sliding_attention"):
        make_decoder(make_model(config))


def test_a_model_without_a_sequence_cache_is_refused() -> None:
    config = transformers.MambaConfig(vocab_size=386, hidden_size=32, num_hidden_layers=1, state_size=4)
    with pytest.raises(ConfigError, match="'mamba'"):
        make_decoder(transformers.AutoModelForCausalLM.from_config(config).eval())


def test_a_model_that_fails_over_the_cache_is_refused_with_its_error() -> None:
    # Its positions come from a mask of two dimensions, and the engine's has four.
    config = transformers.BloomConfig(vocab_size=386, hidden_size=64, n_layer=1, n_head=4)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with pytest.raises(ConfigError, match="'bloom'"):
        make_decoder(model)


def test_a_model_that_reads_positions_in_its_own_way_is_refused() -> None:
    model = make_model(FAMILIES["gpt2"][1]())
    embed = model.transformer.wpe.forward
    model.transformer.wpe.forward = lambda positions: embed(torch.arange(positions.shape[-1]).expand_as(positions))
    with pytest.raises(ConfigError, match="logits"):
        make_decoder(model)


def test_weights_that_do_not_fit_are_named(model: Any) -> None:
    with pytest.raises(DataError, match=r"lm_head\.other"):
        load_weights(model, [("lm_head.other", torch.zeros(2))])
    with pytest.raises(DataError, match=r"model\.norm\.weight"):
        load_weights(model, [("model.norm.weight", torch.zeros(2))])
