"""Patches verl: `load_valuehead_model` loads the model of the critic without flash-attention.

verl 0.9 requires flash-attention by name, and then trl.
"""

from __future__ import annotations

from typing import Any

from verl.utils import model as verl_model

from verl_agentic.adapters.cpu.platform import is_chosen
from verl_agentic.adapters.patching import replace
from verl_agentic.errors import DataError, boundary


def load_valuehead_model(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
    """Returns a token classifier; the head is new unless stored. Raises DataError if transformers cannot load it."""
    from transformers import AutoModelForTokenClassification

    with boundary(DataError, f"loading {local_path!r} with a value head"):
        return AutoModelForTokenClassification.from_pretrained(
            local_path,
            dtype=torch_dtype,
            config=model_config,
            attn_implementation=getattr(model_config, "_attn_implementation", None) or "sdpa",
            trust_remote_code=trust_remote_code,
        )


if is_chosen():
    replace(verl_model, "load_valuehead_model", load_valuehead_model)
