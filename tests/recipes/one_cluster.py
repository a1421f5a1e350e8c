"""Runs `main_ppo` for several configurations, one after the other, in one Ray cluster.

python one_cluster.py JOBS.json: a list of `{"config": FILE, "environment": {...}, "ended": FILE, "timeout_s": 300}`.
Each run has its own workers with its own environment variables. They are forked from one warm process, so that verl is
imported once and Ray is started once. A run that fails does not stop the others.
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
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env
from verl.trainer.main_ppo import TaskRunnerV1
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config
from verl.utils.device import auto_set_device

from verl_agentic.adapters.dryrun import step_probe


def run(job: dict[str, Any]) -> None:
    """Runs one configuration as `main_ppo` does."""
    config: Any = OmegaConf.load(job["config"])
    config.pop("hydra", None)
    auto_set_device(config)
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    runtime_env = OmegaConf.to_container(OmegaConf.create(get_ppo_ray_runtime_env(config)))
    runtime_env["env_vars"]["TRANSFER_QUEUE_ENABLE"] = "1"
    if not ray.is_initialized():
        options: Any = OmegaConf.to_container(config.ray_kwargs.ray_init)
        ray.init(**{**options, "runtime_env": runtime_env})
    # Workers inherit the environment of the actor that starts them.
    own = {"env_vars": {**runtime_env["env_vars"], **job["environment"]}}
    runner = TaskRunnerV1.options(runtime_env=own).remote()
    try:
        ray.get(runner.run.remote(config), timeout=job["timeout_s"])
    finally:
        ray.kill(runner)  # and with it all actors that it owns


def main() -> None:
    """Runs all jobs, and writes for each whether it ended well."""
    for job in json.loads(Path(sys.argv[1]).read_text()):
        os.environ.update(job["environment"])
        started, error = time.monotonic(), ""
        try:
            run(job)
        except Exception as cause:
            step_probe.write_error("", cause)
            error = f"{type(cause).__name__}: {cause}"
        Path(job["ended"]).write_text(json.dumps({"error": error, "seconds": time.monotonic() - started}))


if __name__ == "__main__":
    main()
