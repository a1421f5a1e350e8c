"""Token builders of verl, made in the same way with every version."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast
from verl.experimental.agent_loop import agent_loop
from verl.utils.tokenizer.continuous_token import ContinuousTokenBuilder
from verl_versions import needs_verl

from verl_agentic.verl.rollout import token_builder
from verl_agentic.verl.rollout.token_builder import give_token_builder

_USER = {"role": "user", "content": "Hi"}


def test_a_loop_for_which_verl_made_no_builder_gets_one_with_its_template_options(
    tiny_model: Path, tiny_chat: tuple[Any, Any]
) -> None:
    loop = SimpleNamespace(
        continuous_token_builder=None,
        tokenizer=tiny_chat[0],
        config=OmegaConf.create({"actor_rollout_ref": {"model": {"path": str(tiny_model)}}}),
        apply_chat_template_kwargs={"chat_template": "{{ messages[0]['content'] }}!"},
    )
    give_token_builder(loop)
    made = loop.continuous_token_builder
    assert loop.tokenizer.decode(made.build_initial_tokens([_USER])) == "Hi!"
    give_token_builder(loop)
    assert loop.continuous_token_builder is made


@needs_verl(">=0.9.1", "hf_model_type of create_continuous_token_builder")
@pytest.mark.parametrize("model_type", ["qwen2", "deepseek_v3", "glm4_moe", "gemma4"])
def test_a_checkpoint_without_the_tokens_of_its_family_gets_the_default_builder(
    tiny_chat: tuple[Any, Any], model_type: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Tokenizer.from_str(tiny_chat[0].backend_tokenizer.to_str().replace("<|im_end|>", "<|over|>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    config = SimpleNamespace(model_type=model_type)
    monkeypatch.setattr(token_builder.AutoConfig, "from_pretrained", lambda path: config)
    ours, verls = token_builder.token_builder(tokenizer, "x"), agent_loop.create_continuous_token_builder
    assert type(ours) is type(verls(tokenizer, hf_model_type=model_type)) is ContinuousTokenBuilder
    assert "model family" in caplog.text
    with pytest.raises(ValueError, match=r"processor|required token"):
        verls(tokenizer, hf_model_type=model_type, processor=SimpleNamespace(image_processor=1))


def test_a_loop_that_builds_no_tokens_stays_as_it_is() -> None:
    loop = SimpleNamespace()
    give_token_builder(loop)
    assert not vars(loop)
