"""Hides warnings about engines and queues that users of this platform cannot fix."""

from __future__ import annotations

import logging
import os
import warnings

from verl_agentic.verl.extensions.cpu.platform import is_chosen

_WARNINGS = (
    r"(torchtitan|veomni|automodel|mindspeed|megatron|\w+) engine is not available",
    r"'pin_memory' argument is set as true but no accelerator is found",
    r".*`torch_dtype` is deprecated",
    r".*isn't supported on CPU",
)
_LOG_MESSAGES = ("target_num_threads", "No supported accelerator detected", "NPU not support router replay")


class _Quiet(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not any(text in record.getMessage() for text in _LOG_MESSAGES)


def _silence_warnings() -> None:
    for message in _WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    # A logger's filter does not see its children's records, but a handler's filter sees everything.
    for handler in logging.getLogger().handlers:
        handler.addFilter(_Quiet())
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


if is_chosen():
    _silence_warnings()
