"""Patches verl: `agent_loop.create_continuous_token_builder`; `ContinuousTokenBuilder` gets `merge_context_tokens`
where verl has it under its former name.

Makes verl's builders of token streams in the same way with every supported version, and for every checkpoint.
"""

from __future__ import annotations

import functools
import inspect
import logging
from typing import Any

from transformers import AutoConfig
from verl.experimental.agent_loop import agent_loop
from verl.utils.tokenizer.continuous_token import ContinuousTokenBuilder
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from verl_agentic.verl.patching import add, wrap

logger = logging.getLogger(__name__)


def token_builder(tokenizer: Any, model_path: str, **options: Any) -> Any:
    """Returns verl's builder for a model.

    Args:
        model_path: folder, or name on the hub.
        options: further keyword arguments for verl.
    """
    if "hf_model_type" in inspect.signature(create_continuous_token_builder).parameters:
        family = {"hf_model_type": AutoConfig.from_pretrained(model_path).model_type}
    else:  # verl 0.9.0 looks for the name of a model family in the path
        family = {"model_family": "auto", "model_path": model_path}
    return create_any_builder(create_continuous_token_builder, tokenizer, **family, **options)


def give_token_builder(loop: Any) -> None:
    """Gives an agent loop a builder where verl has made none: in 0.9.0, without `data.continuous_token.enable`."""
    if getattr(loop, "continuous_token_builder", ...) is None:
        path, options = loop.config.actor_rollout_ref.model.path, loop.apply_chat_template_kwargs
        loop.continuous_token_builder = token_builder(loop.tokenizer, path, chat_template_kwargs=options)


@wrap(agent_loop, "create_continuous_token_builder")
def create_any_builder(create: Any, /, tokenizer: Any, **options: Any) -> Any:
    """Makes a builder. The default one replaces that of a family whose special tokens the tokenizer lacks, as in a
    `qwen2` checkpoint without `<|im_end|>`."""
    try:
        return create(tokenizer, **options)
    except ValueError as cause:
        if options.get("processor") is not None or options.get("model_family") == "default":
            raise
        logger.warning("the tokenizer is not that of its model family: %s; turns are joined by its template", cause)
        return create(tokenizer, **{**options, "model_family": "default"})


# Not by version: 0.9.0 and snapshots of 0.10.0.dev have the former name, 0.9.1 has the new one.
if not hasattr(ContinuousTokenBuilder, "merge_context_tokens"):
    former: Any = ContinuousTokenBuilder

    @functools.wraps(former.merge_non_assistant_tokens)
    def merge_context_tokens(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.merge_non_assistant_tokens(*args, **kwargs)  # of the model's own class

    add(ContinuousTokenBuilder, "merge_context_tokens", merge_context_tokens)
