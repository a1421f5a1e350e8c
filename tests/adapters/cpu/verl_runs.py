"""Starts verl's own trainers on the CPU, as a user would, and reads what they log."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from verl_agentic.data.rows import write_rows
from verl_agentic.data.tiny_model import make_tiny_model
from verl_agentic.env_package import load_env_package

_RECIPE = """
hydra:
  searchpath: [pkg://verl_agentic.config]
  output_subdir: null
  run: {dir: .}
defaults: [ppo_trainer, agentic/cpu, _self_]
agentic: {env: python_math, limits: {max_turns: 2}}
algorithm: {adv_estimator: grpo}
data: {train_batch_size: 4, max_prompt_length: 64, max_response_length: 48}
actor_rollout_ref:
  actor: {ppo_mini_batch_size: 4, optim: {lr: 1.0e-3}}
  rollout:
    n: 2
    multi_turn: {format: hermes}
trainer:
  logger: [file]
  total_epochs: 100
  total_training_steps: 2
  val_before_train: false
  test_freq: -1
  save_freq: -1
  resume_mode: disable
  project_name: test
  experiment_name: test
"""


@dataclass
class Run:
    """A folder with a model and rows, and what `main_ppo` does in it."""

    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)
    config: tuple[Path, str] | None = None
    """Folder and name of a recipe; None: `run.yaml` in the folder."""

    def command(self) -> list[str]:
        """Returns the command line."""
        data, model = self.folder / "rows.jsonl", self.folder / "model"
        settings = {
            "data.train_files": data,
            "data.val_files": data,
            "actor_rollout_ref.model.path": model,
            "critic.model.path": model,
            "trainer.default_local_dir": self.checkpoints,
            **self.settings,
        }
        overrides = [f"{name}={value}" for name, value in settings.items()]
        config_folder, config_name = self.config or (self.folder, "run")
        name = ["--config-dir", str(config_folder), "--config-name", config_name]
        return [sys.executable, "-m", "verl.trainer.main_ppo", *name, *overrides]

    @property
    def checkpoints(self) -> Path:
        """Returns the folder in which verl saves checkpoints."""
        return self.folder / "checkpoints"

    @contextlib.contextmanager
    def start(self, name: str = "metrics") -> Iterator[subprocess.Popen[bytes]]:
        """Starts training; at the end of the block no process of it is left."""
        # Ray's sockets do not fit into the long paths of pytest's folders.
        with tempfile.TemporaryDirectory(prefix="va", ignore_cleanup_errors=True) as ray_folder:
            environment = {
                **os.environ,
                "VERL_PLATFORM": "cpu",
                "GOMP_SPINCOUNT": "20000",
                "HF_HUB_OFFLINE": "1",
                "VERL_FILE_LOGGER_PATH": str(self.folder / f"{name}.jsonl"),
            }
            with (self.folder / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(
                    [*self.command(), f"+ray_kwargs.ray_init._temp_dir={ray_folder}"],
                    env=environment,
                    cwd=self.folder,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                try:
                    yield process
                finally:
                    end(process)

    def finish(self, name: str = "metrics", *, timeout_s: float = 400) -> list[dict[str, Any]]:
        """Trains to the end and returns the metrics of each step."""
        with self.start(name) as process:
            code = process.wait(timeout_s)
        assert code == 0, (self.folder / f"{name}.log").read_text(errors="replace")[-6_000:]
        return self.metrics(name)

    def metrics(self, name: str = "metrics") -> list[dict[str, Any]]:
        """Returns the steps logged so far."""
        path = self.folder / f"{name}.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.is_file() else []
        return [{"step": record["step"], **record["data"]} for record in map(json.loads, lines)]


def make_run(folder: Path, **settings: Any) -> Run:
    """Returns a run on a random model and 64 multiplications; `settings` use `__` for the dots of names."""
    make_rows = load_env_package("python_math").make_rows
    assert make_rows is not None
    make_tiny_model(folder / "model", seed=0)
    write_rows(make_rows(split="train", count=64, seed=0), folder / "rows.jsonl")
    (folder / "run.yaml").write_text(_RECIPE)
    return Run(folder, settings)


def wait_for(condition: Any, *, timeout_s: float, process: subprocess.Popen[bytes]) -> None:
    """Waits until `condition()` holds, while the process lives."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert process.poll() is None, f"ended with {process.returncode}"
        assert time.monotonic() < deadline, f"nothing after {timeout_s} s"
        time.sleep(0.1)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and all that it started."""
    descendants = []
    with contextlib.suppress(psutil.Error):
        descendants = psutil.Process(process.pid).children(recursive=True)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
    if process.poll() is None:
        process.kill()
        process.wait()
    for survivor in psutil.wait_procs(descendants, timeout=5)[1]:
        with contextlib.suppress(psutil.Error):
            survivor.kill()
