"""Patches verl: `load_valuehead_model` loads the model of the critic with the attention that its section names.

verl 0.9 loads it with flash-attn, whatever the section says, and then needs trl.
"""

from __future__ import annotations

from typing import Any

from verl.utils import model as verl_model

from verl_agentic.base.errors import DataError, boundary
from verl_agentic.verl.features import is_installed
from verl_agentic.verl.patching import wrap


@wrap(verl_model, "load_valuehead_model")
def load_value_model(
    load_with_flash: Any, local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool
) -> Any:
    """Returns a token classifier; the head is new unless stored. Raises DataError if transformers cannot load it."""
    from transformers import AutoModelForTokenClassification

    attention = getattr(model_config, "_attn_implementation", None) or "sdpa"
    if attention == "flash_attention_2" and is_installed("flash_attn"):
        return load_with_flash(local_path, torch_dtype, model_config, trust_remote_code)
    with boundary(DataError, f"loading {local_path!r} with a value head"):
        return AutoModelForTokenClassification.from_pretrained(
            local_path,
            dtype=torch_dtype,
            config=model_config,
            attn_implementation=attention,
            trust_remote_code=trust_remote_code,
        )
