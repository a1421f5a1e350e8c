"""Token builders of verl, made in the same way with every version."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from omegaconf import OmegaConf

from verl_agentic.adapters.rollout.token_builder import give_token_builder

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


def test_a_loop_that_builds_no_tokens_stays_as_it_is() -> None:
    loop = SimpleNamespace()
    give_token_builder(loop)
    assert not vars(loop)
