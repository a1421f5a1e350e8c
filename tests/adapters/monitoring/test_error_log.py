"""The first errors of a run's processes, and what the driver says last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from verl_agentic.verl.extensions.monitoring import error_log
from verl_agentic.verl.extensions.monitoring.error_log import FirstErrors

_PLAIN = """
import logging, sys, threading
from pathlib import Path
from verl_agentic.verl.extensions.monitoring.error_log import install

install(Path(sys.argv[1]))
quiet = logging.getLogger("quiet")
quiet.propagate, quiet.handlers = False, [logging.NullHandler()]

def fail(text):
    raise ValueError(text)

def in_thread():
    fail("in a thread")

for number in range(5):
    quiet.error("request %d failed", number)
logging.getLogger("other").warning("no error")
try:
    fail("logged " + __import__("os").environ["MY_API_KEY"])
except ValueError:
    quiet.exception("while reading")
thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
logging.getLogger("x").error("%d", "does not fit")
{}["uncaught"]
"""

_RAY = """
import os, signal, sys
import ray
from omegaconf import OmegaConf
from verl_agentic.verl.extensions.monitoring import error_log
from verl_agentic.verl.run_dir import KEY

folder, scratch = sys.argv[1:]

class Worker:
    def __init__(self):
        import verl_agentic.verl.extensions.monitoring.error_log  # as the plugin does

    def ping(self):
        return os.environ.get("VERL_AGENTIC_RUN_DIR")

class Raiser(Worker):
    def update(self):
        raise ArithmeticError("the loss is not finite")

class Relay(Worker):
    def step(self, raiser):
        return ray.get(raiser.update.remote())

class Victim(Worker):
    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)

def run_ppo(config):
    settings = OmegaConf.to_container(config.ray_kwargs.ray_init)
    ray.init(num_cpus=3, _temp_dir=scratch, include_dashboard=False, **settings)
    raiser, relay, victim = (ray.remote(kind).remote() for kind in (Raiser, Relay, Victim))
    assert ray.get([raiser.ping.remote(), victim.ping.remote()]) == [folder, folder]
    for _ in range(3):
        try:
            ray.get(relay.step.remote(raiser))
        except ArithmeticError:
            pass
    ray.get(victim.die.remote())

config = OmegaConf.create({"ray_kwargs": {"ray_init": {}}})
OmegaConf.set_struct(config, True)
from omegaconf import open_dict
with open_dict(config):
    OmegaConf.update(config, KEY, folder, force_add=True)
main = {"run_ppo": run_ppo}
error_log.watch_driver(config, main)
try:
    main["run_ppo"](config)
except Exception:  # as Hydra does
    print("a long traceback", file=sys.stderr)
    sys.exit(1)
"""

_NO_FOLDER = """
import sys
from omegaconf import OmegaConf
from verl_agentic.verl.extensions.monitoring import error_log

def run_ppo(config):
    raise RuntimeError("no CUDA") from OSError("driver")

main = {"run_ppo": run_ppo}
error_log.watch_driver(OmegaConf.create({}), main)
error_log.watch_driver(OmegaConf.create({}), main)  # a second check of the same configuration
main["run_ppo"](None)
"""


def run(script: str, *arguments: str, timeout_s: float = 200.0, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "VERL_"))}
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**environment, **variables},
        check=False,
    )


def test_a_process_keeps_each_kind_of_error_once_wherever_it_comes_from(tmp_path: Path) -> None:
    process = run(_PLAIN, str(tmp_path), MY_API_KEY="sk-12345678")
    assert process.returncode == 1
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("errors-") and path.suffix == ".jsonl"
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(one["type"], one["count"]) for one in kept] == [
        ("ERROR of quiet", 5),
        ("ValueError", 2),  # logged, and in the thread: the same line of code
        ("KeyError", 1),
    ]
    requests, error, last = kept
    assert requests["message"] == "request 0 failed" and requests["actor"] == ""
    assert error["message"] == "logged [MY_API_KEY]" and "in fail" in error["traceback"]
    assert last["message"] == "'uncaught'" and last["where"].endswith("<string>:27")
    assert "KeyError" in process.stderr and "in a thread" in process.stderr, "the other hooks still run"
    assert "sk-12345678" not in path.read_text()


def test_an_error_of_an_actor_that_is_a_thread_has_its_name(tmp_path: Path) -> None:
    kept = FirstErrors(tmp_path)
    error = {"trace": "", "origin": "here"}
    thread = threading.Thread(target=lambda: kept.add("KeyError", "gone", **error), name="ray::RolloutServer")
    thread.start()
    thread.join()
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text())["actor"] == "RolloutServer"


def test_no_part_of_a_secret_is_kept_where_a_text_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-12345678")
    most = error_log._MAX_CHARS
    kept = FirstErrors(tmp_path)
    kept.add("E", "x" * (most - 6) + "sk-12345678", trace="sk-12345678" + "y" * (most - 6), origin="a.py:1")
    (path,) = tmp_path.iterdir()
    one = json.loads(path.read_text())
    assert len(one["message"]) == len(one["traceback"]) == most
    assert "sk-" not in one["message"] and "5678" not in one["traceback"]


def test_without_a_folder_the_driver_still_says_last_what_ended_it(tmp_path: Path) -> None:
    process = run(_NO_FOLDER)
    assert process.returncode == 1
    told = process.stderr.split("why the run failed")[1].splitlines()
    assert told[1] == "Ended by RuntimeError: no CUDA", "who raised it says what to do; not its cause"
    assert any("in run_ppo" in line for line in told) and set(told[-1]) == {"="}
    assert process.stderr.count("why the run failed") == 1


@pytest.mark.nightly
def test_of_two_actors_one_that_raises_and_one_that_is_killed_are_both_told_below_all_of_rays_output(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    with tempfile.TemporaryDirectory(prefix="va", ignore_cleanup_errors=True) as scratch:  # sockets have short paths
        process = run(_RAY, str(folder), scratch)
    assert process.returncode == 1, process.stderr
    before, told = process.stderr.split("==================== verl_agentic: why the run failed ====================")
    assert "a long traceback" in before
    lines = told.strip().splitlines()
    assert lines[0].startswith("First errors of its processes, the earliest first (")
    assert lines[1] == "1. ArithmeticError: the loss is not finite"
    assert "ray::Raiser" in lines[2] and lines[2].endswith(", 3 times"), "the relay only passes it on"
    assert "in update" in lines[3]
    assert "RayTaskError" not in told
    (ended,) = (line for line in lines if line.startswith("Ended by"))
    assert ended.startswith("Ended by number 2, ActorDiedError:") and "Victim" in ended and "memory ran out" in ended
    kept = [json.loads(line) for path in folder.glob("errors-*.jsonl") for line in path.read_text().splitlines()]
    assert [(one["actor"], one["type"]) for one in kept if one["actor"]] == [("Raiser", "ArithmeticError")]
