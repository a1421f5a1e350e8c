"""`--device`: where a command computes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Literal

Device = Literal["cpu", "cuda"]


def add_device_option(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup, *, work: str, default: str = "auto"
) -> None:
    """Adds the option.

    Args:
        parser: of the command.
        work: what is done there, for the help text.
        default: device without the option.
    """
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default=default, help=f"{work} on this device; "
                        "auto: on the GPU if there is one (default %(default)s)")  # fmt: skip


def read_device(args: argparse.Namespace) -> Device:
    """Returns the device of `--device`.

    Raises:
        ConfigError: it is cuda, and torch has no GPU.
    """
    if args.device == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if args.device == "auto":
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
