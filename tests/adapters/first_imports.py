"""Imports modules in the order given, each order in a process of its own, and prints what is registered then.

Run as a script; every argument is a module that is imported first. What verl itself imports is loaded once, before
the processes part, and nothing of verl is.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from typing import Any

_THIRD_PARTY = ("torch", "torch.distributed.fsdp", "ray", "transformers", "tensordict", "hydra", "datasets", "peft")


def registered(first: str) -> dict[str, Any]:
    """Returns what verl finds of ours in this process, after `first` and then all that adapters wait for."""
    importlib.import_module(first)
    importlib.import_module("verl")
    plugin = sys.modules["verl_agentic.plugin"]
    for adapter in reversed(plugin.ADAPTERS):
        importlib.import_module(adapter.needs)

    from verl.checkpoint_engine.base import CheckpointEngineRegistry
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.plugin.platform import get_platform
    from verl.trainer import main_ppo
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
    from verl.utils import distributed, model
    from verl.workers.engine import EngineRegistry
    from verl.workers.rollout.base import get_rollout_class
    from verl.workers.rollout.replica import get_rollout_replica_class

    from verl_agentic.verl.patching import patches

    engine = EngineRegistry.get_engine_cls
    ours = {
        "platform": type(get_platform()),
        "actor": engine("language_model", "fsdp2"),
        "critic": engine("value_model", "fsdp2"),
        "rollout": get_rollout_class("agentic", "async"),
        "replica": get_rollout_replica_class("agentic"),
        "checkpoint engine": CheckpointEngineRegistry.get("object_store"),
        "estimator": get_adv_estimator_fn("grpo_shuffled"),
        "critic's model": model.load_valuehead_model.__code__,
        "replay buffer": ReplayBuffer.__init__.__code__,
        "sync sample": ReplayBuffer.sample.__code__,
        "async sample": ReplayBufferAsync.sample.__code__,
        "process group": distributed.initialize_global_process_group.__code__,
        "process group of Ray": distributed.initialize_global_process_group_ray.__code__,
        "check before a run": main_ppo.auto_set_device.__code__,
    }
    return {
        "agent loop": _agent_loop_registry["env_agent"]["_target_"],
        **{name: _origin(found) for name, found in ours.items()},
        "loaded": sorted(plugin.state().loaded),
        "failed": plugin.state().failed,
        "patches": [(patch.symbol, patch.adapter) for patch in patches()],
    }


def _origin(found: Any) -> str:
    # functools.wraps hides whose function it is; the code does not.
    return getattr(found, "co_filename", None) or found.__module__


def _main() -> None:
    for module in _THIRD_PARTY:
        importlib.import_module(module)
    assert not [name for name in sys.modules if name.split(".")[0] in ("verl", "verl_agentic")]
    for first in sys.argv[1:]:
        process = os.fork()
        if process == 0:
            try:
                found = registered(first)
            except Exception:
                found = {"error": traceback.format_exc()}
            print("\n" + json.dumps({"first": first, **found}), flush=True)
            os._exit(0)
        os.waitpid(process, 0)


if __name__ == "__main__":
    _main()
