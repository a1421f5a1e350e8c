"""Starts verl's own trainers on the CPU, as a user would, and reads what they log.

Trainers are forked from a process that has imported verl, because that takes more CPU time than many trainings.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch.distributed
from patience import PATIENCE_S

from verl_agentic.cpu.tiny_model import make_tiny_model
from verl_agentic.episode.env_package import load_env_package
from verl_agentic.log.files.rows import write_rows

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

_SETTINGS = {"VERL_PLATFORM": "cpu", "GOMP_SPINCOUNT": "20000", "HF_HUB_OFFLINE": "1"}
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["verl.trainer.main_ppo", "verl_agentic.verl.extensions.cpu.warm.warm_process"])


class Trainer:
    """`python -m MODULE` in a process of its own, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, arguments: Sequence[str], folder: Path, log: Path, **variables: str) -> None:
        """Starts it. `arguments`: the module, and those of its command line."""
        environment = {**os.environ, **_SETTINGS, **variables}
        self._process = _FORKS.Process(target=_become, args=(list(arguments), environment, str(folder), str(log)))
        with pytest.MonkeyPatch.context() as patch:  # the first one starts the process that imports verl
            for name, value in _SETTINGS.items():
                patch.setenv(name, value)
            self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Returns the exit status if the process has ended."""
        return self._process.exitcode

    def wait(self, timeout_s: float | None = None) -> int:
        """Waits for the end. Raises TimeoutError."""
        self._process.join(timeout_s)
        if self._process.exitcode is None:
            raise TimeoutError(f"the trainer runs after {timeout_s} s")
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Sends a signal, if the process runs."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def run_ranks(arguments: Sequence[str], folder: Path, *, num_ranks: int = 2, **variables: str) -> str:
    """Runs a module on several ranks, as torchrun does, and returns what all of them print. Raises AssertionError."""
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    common |= {"WORLD_SIZE": str(num_ranks), "LOCAL_WORLD_SIZE": str(num_ranks), "OMP_NUM_THREADS": "1"}
    with contextlib.ExitStack() as stack:
        trainers = []
        for rank in map(str, range(num_ranks)):
            trainer = Trainer(
                arguments, folder, folder / f"rank_{rank}.log", RANK=rank, LOCAL_RANK=rank, **common, **variables
            )
            stack.callback(end, trainer)
            trainers.append(trainer)
        codes = [trainer.wait(PATIENCE_S) for trainer in trainers]
    printed = "".join((folder / f"rank_{rank}.log").read_text(errors="replace") for rank in range(num_ranks))
    assert not any(codes), printed[-6_000:]
    return printed


def _become(arguments: list[str], environment: Mapping[str, str], folder: str, log: str) -> None:
    os.setsid()
    with open(log, "ab") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = list(arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # `multiprocessing` leaves them out


@dataclass
class Run:
    """A folder with a model and rows, and what `main_ppo` does in it."""

    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)
    config: tuple[Path, str] | None = None
    """Folder and name of a recipe; None: `run.yaml` in the folder."""

    def command(self) -> list[str]:
        """Returns the module and the arguments of the command line."""
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
        return ["verl.trainer.main_ppo", *name, *overrides]

    @property
    def checkpoints(self) -> Path:
        """Returns the folder in which verl saves checkpoints."""
        return self.folder / "checkpoints"

    @contextlib.contextmanager
    def start(self, name: str = "metrics") -> Iterator[Trainer]:
        """Starts training; at the end of the block no process of it is left."""
        # Ray's sockets do not fit into the long paths of pytest's folders.
        with tempfile.TemporaryDirectory(prefix="va", ignore_cleanup_errors=True) as ray_folder:
            trainer = Trainer(
                [*self.command(), f"+ray_kwargs.ray_init._temp_dir={ray_folder}"],
                self.folder,
                self.folder / f"{name}.log",
                VERL_FILE_LOGGER_PATH=str(self.folder / f"{name}.jsonl"),
            )
            try:
                yield trainer
            finally:
                end(trainer)

    def finish(self, name: str = "metrics") -> list[dict[str, Any]]:
        """Trains to the end and returns the metrics of each step."""
        with self.start(name) as trainer:
            code = trainer.wait(PATIENCE_S)
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


def wait_for(condition: Any, *, process: Trainer) -> None:
    """Waits until `condition()` holds, while the process lives."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, f"ended with {process.poll()}"
        assert time.monotonic() < deadline, f"nothing after {PATIENCE_S} s"
        time.sleep(0.1)


def end(trainer: Trainer) -> None:
    """Ends the process and all that it started."""
    descendants = []
    with contextlib.suppress(psutil.Error):
        descendants = psutil.Process(trainer.pid).children(recursive=True)
    for number, patience_s in ((signal.SIGINT, 20), (signal.SIGKILL, None)):
        if trainer.poll() is None:
            trainer.send_signal(number)
            with contextlib.suppress(TimeoutError):
                trainer.wait(patience_s)
    for survivor in psutil.wait_procs(descendants, timeout=5)[1]:
        with contextlib.suppress(psutil.Error):
            survivor.kill()
