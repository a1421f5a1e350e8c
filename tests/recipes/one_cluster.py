"""Runs `main_ppo` for several configurations, one after the other, in one Ray cluster.

python one_cluster.py JOBS.json: a list of `{"config": FILE, "environment": {...}, "ended": FILE}`. Each run has workers
with environment variables of its own. They are forked from one warm process, so that verl is imported once and Ray is
started once. A run that fails does not stop the others.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import ray
from omegaconf import OmegaConf
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env
from verl.trainer.main_ppo import TaskRunnerV1
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config
from verl.utils.device import auto_set_device

from verl_agentic.adapters.dryrun.step_probe import write_error

_RUN_S, _END_S = 600, 120


def run(config: Any, environment: dict[str, str]) -> None:
    """Runs one configuration as `main_ppo` does."""
    auto_set_device(config)
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    variables: Any = OmegaConf.to_container(OmegaConf.create(get_ppo_ray_runtime_env(config)["env_vars"]))
    variables["TRANSFER_QUEUE_ENABLE"] = "1"
    if not ray.is_initialized():
        options: Any = OmegaConf.to_container(config.ray_kwargs.ray_init)
        ray.init(**{**options, "runtime_env": {"env_vars": variables}})
    # Actors inherit the environment of the actor that makes them.
    runner = TaskRunnerV1.options(runtime_env={"env_vars": {**variables, **environment}}).remote()
    try:
        ray.get(runner.run.remote(config), timeout=_RUN_S)
    finally:
        ray.kill(runner)  # its actors end with it
        _remove_placement_groups()


def _remove_placement_groups() -> None:
    """Removes those of the last run, which Ray keeps for a while: the next run's have the same names."""
    deadline = time.monotonic() + _END_S
    while left := [key for key, group in placement_group_table().items() if group["state"] != "REMOVED"]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the workers of a run have not ended within {_END_S} s")
        for key in left:
            remove_placement_group(PlacementGroup(ray.PlacementGroupID.from_hex(key)))
        time.sleep(0.1)


def main() -> None:
    """Runs all jobs; writes for each the time it took, and its error if it failed."""
    for job in json.loads(Path(sys.argv[1]).read_text()):
        os.environ.update(job["environment"])
        started, error = time.monotonic(), ""
        try:
            config: Any = OmegaConf.load(job["config"])
            del config["hydra"]
            run(config, job["environment"])
        except Exception as cause:
            write_error("", cause)
            error = f"{type(cause).__name__}: {cause}"
        Path(job["ended"]).write_text(json.dumps({"error": error, "seconds": time.monotonic() - started}))


if __name__ == "__main__":
    main()
