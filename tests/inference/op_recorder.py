"""Captures device work as a CUDA graph does, on any device: records operations, and repeats them on the same memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_HOST_READS = frozenset({"aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::masked_select"})


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function._schema.name in _HOST_READS:
            raise RuntimeError(f"operation not permitted when stream is capturing: {function}")
        output = function(*args, **(kwargs or {}))
        self.calls.append((function, args, kwargs or {}, output))
        return output


def record_operations(work: Callable[[], None]) -> Callable[[], None]:
    """Runs `work` and returns a function that repeats its operations; no Python code of `work` runs again.

    Raises:
        RuntimeError: the work reads a value back to the host.
    """
    with _Recorder() as recorder:
        work()

    @torch.inference_mode()
    def replay() -> None:
        for function, args, kwargs, output in recorder.calls:
            repeated = function(*args, **kwargs)
            for old, new in zip(tree_leaves(output), tree_leaves(repeated), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)

    return replay
