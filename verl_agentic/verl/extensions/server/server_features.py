"""The section and adapters of the rollout backend `agentic`: `agentic.engine`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verl_agentic.base.settings import read_settings
from verl_agentic.verl.features import Adapter, Features
from verl_agentic.verl.sections import ROLLOUT, has, plain, section

if TYPE_CHECKING:
    from verl_agentic.cpu.inference.scheduler import EngineConfig


@section(f"{ROLLOUT}.engine_kwargs.agentic", of=ROLLOUT)
def engine_config(rollout: Any, *, replica_rank: int = 0) -> EngineConfig:
    """Returns the engine's settings of the rollout backend `agentic`.

    Args:
        replica_rank: number of the server; each samples differently.

    Raises:
        ConfigError: an option is unknown or of a wrong type.
    """
    from verl_agentic.cpu.inference.scheduler import EngineConfig, EngineOptions

    raw_options = plain((rollout.get("engine_kwargs") or {}).get("agentic"))
    options = read_settings(EngineOptions, raw_options, section=f"{ROLLOUT}.engine_kwargs.agentic")
    return EngineConfig(**vars(options), max_running=rollout.max_num_seqs, seed=rollout.seed + replica_rank)


FEATURES = Features(
    places={"engine": f"{ROLLOUT}.engine_kwargs.agentic"},
    adapters=(
        Adapter(
            module="extensions.server.register",
            needs="verl.workers.rollout.replica",
            gives="rollout backend agentic",
            chosen_by=f"{ROLLOUT}.name=agentic",
            demanded_by=lambda config: has(config, f"{ROLLOUT}.name", "agentic"),
        ),
        Adapter(
            module="extensions.server.checkpoint_engine",
            needs="verl.checkpoint_engine.base",
            gives="checkpoint engine object_store",
            chosen_by=f"{ROLLOUT}.checkpoint_engine.backend=object_store",
            demanded_by=lambda config: has(config, f"{ROLLOUT}.checkpoint_engine.backend", "object_store"),
        ),
    ),
)
