"""A critic of the first layers of the policy, by verl's `critic.model.override_config`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

pytest.importorskip("verl")

from verl.utils import model as verl_model

import verl_agentic.verl.engine.value_head  # noqa: F401


def test_it_has_the_weights_of_the_first_layers_and_is_saved(tiny_model: Path, tmp_path: Path) -> None:
    config = AutoConfig.from_pretrained(tiny_model, num_labels=1, attn_implementation="sdpa")
    policy = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    num_layers = len(policy.model.layers)
    assert num_layers > 1
    override = {"num_hidden_layers": 1, "layer_types": ["full_attention"]}
    verl_model.update_model_config(config, override_config_kwargs=override)
    critic = verl_model.load_valuehead_model(str(tiny_model), torch.float32, config, False)
    assert len(critic.model.layers) == 1
    of_policy, of_critic = (model.model.layers[0].state_dict() for model in (policy, critic))
    assert all(torch.equal(of_critic[name], weight) for name, weight in of_policy.items())
    assert torch.equal(critic.model.embed_tokens.weight, policy.model.embed_tokens.weight)
    assert critic(input_ids=torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 1)
    config.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).num_hidden_layers == 1
