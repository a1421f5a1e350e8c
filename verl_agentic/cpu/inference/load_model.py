"""Loading of causal language models, without weights that no file has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.credit.cudnn_attention import avoid_cudnn_attention


def load_causal_lm(path: str | Path, **options: Any) -> Any:
    """Returns the model of a Hugging Face folder or hub name; `options` are those of transformers.

    Attention of this process avoids cuDNN's kernels from now on, unless its environment chooses them.

    Raises:
        DataError: weights are missing, which transformers would initialise at random. LoRA checkpoints of verl have
            other names in their `huggingface` folder.
    """
    from transformers import AutoModelForCausalLM

    avoid_cudnn_attention()
    loaded: Any = AutoModelForCausalLM.from_pretrained(path, output_loading_info=True, **options)
    model, info = loaded
    if missing := sorted(info["missing_keys"]):
        raise DataError(
            f"{path} lacks {len(missing)} weights, got none for {missing[0]}; merge a LoRA checkpoint into its model "
            "first (python -m verl.model_merger)"
        )
    return model
