"""`--device`: where a command computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from verl_agentic.cli.options.typed_options import declare

Device = Literal["cpu", "cuda"]
DeviceChoice = Literal["auto", "cpu", "cuda"]


def device_option(work: str, default: DeviceChoice = "auto") -> Any:
    """Declares the option; `work` is done on the device."""
    return declare(f"{work} on this device; auto: on the GPU if there is one (default %(default)s)", default)


def read_device(choice: DeviceChoice) -> Device:
    """Returns the device of `--device`. Raises ConfigError if it is cuda, and torch has no GPU."""
    if choice == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if choice == "auto":
        return "cpu"
    from verl_agentic.base.errors import ConfigError

    has_cuda = torch.version.cuda is not None
    reason = "which sees no GPU" if has_cuda else "a build without CUDA"
    advice = "check nvidia-smi and CUDA_VISIBLE_DEVICES" if has_cuda else "install a build of torch with CUDA"
    raise ConfigError(
        f"--device cuda needs a GPU, got torch {torch.__version__}, {reason}; {advice}, or use --device cpu"
    )


def dtype_on(device: Device, model: Path) -> str:
    """Returns the type in which a command computes with a model folder: on a GPU that of its files."""
    if device == "cpu":
        return "float32"
    from transformers import AutoConfig

    return str(AutoConfig.from_pretrained(model).dtype or "float32").removeprefix("torch.")
