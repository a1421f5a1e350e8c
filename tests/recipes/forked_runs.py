"""Runs `main_ppo` for several configurations, one after the other, each in a fork of this process.

python forked_runs.py JOBS.json: a list of `{"config": FILE, "environment": {...}, "ended": FILE}`. verl is imported
once. Each fork has environment variables of its own. A run that fails does not stop the others.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from verl.trainer.main_ppo import main as main_ppo

from verl_agentic.verl.extensions.dryrun.step_probe import write_error

_RUN_S = 600


def run(job: dict[str, Any]) -> None:
    """Runs one configuration, and writes the time it took, and its error if it failed."""
    os.environ.update(job["environment"])
    started, error = time.monotonic(), ""
    try:
        config: Any = OmegaConf.load(job["config"])
        del config["hydra"]
        main_ppo.__wrapped__(config)
    except Exception as cause:
        write_error("", cause)
        error = f"{type(cause).__name__}: {cause}"
    Path(job["ended"]).write_text(json.dumps({"error": error, "seconds": time.monotonic() - started}))


def main() -> None:
    """Runs all jobs."""
    for job in json.loads(Path(sys.argv[1]).read_text()):
        child = os.fork()
        if child == 0:
            signal.alarm(_RUN_S)  # ends a run that hangs, which is then one that was not run
            run(job)
            sys.exit()  # ends Ray, if the run started it
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
