"""Plays the first hour of four people with the commands of their pages, from a fresh clone of this commit.

    python benchmarks/first_hour.py                     # all four
    python benchmarks/first_hour.py --only verl_user    # one of them

| path | page | first success |
|---|---|---|
| curious | README.md, "See it learn" | a model learns in one command, and answers a question |
| verl_user | docs/from_verl.md | a fault of a script is named; one step of it with two overrides and its own tool |
| researcher | docs/own_method.md | two runs that differ in one change, compared |
| author | docs/own_environment.md | an environment passes its checks, is played, and trained on |

`curious` installs everything. The others begin in an environment that has verl: theirs borrows the packages of the
Python that runs this script. Installing this package into it counts. A failed command is counted and printed; the next
one runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT / "tests" / "fixtures"))

from page_commands import read_commands, read_section, write_files  # noqa: E402

_TOOL = '''from verl.tools.function_tool import function_tool


@function_tool
def multiply(a: int, b: int) -> str:
    """Multiplies two numbers.

    Args:
        a: the first.
        b: the second.
    """
    return str(a * b)
'''
_SCRIPT = """set -x
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_files=train.parquet \\
    data.val_files=train.parquet \\
    data.train_batch_size=8 \\
    data.max_prompt_length=512 \\
    data.max_response_length=256 \\
    actor_rollout_ref.model.path=model \\
    actor_rollout_ref.actor.ppo_mini_batch_size=8 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \\
    actor_rollout_ref.rollout.name=vllm \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \\
    actor_rollout_ref.rollout.n=4 \\
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2 \\
    actor_rollout_ref.rollout.multi_turn.function_tool_path=tools.py \\
    actor_rollout_ref.rollout.multi_turn.format=hermes \\
    trainer.logger=console \\
    trainer.n_gpus_per_node=1 \\
    trainer.total_epochs=1 "$@"
"""
"""A script like those of verl's examples. Its agent loop uses no tools, a trap that preflight names."""


@dataclass
class Hour:
    """The shell of one path, with its time and its failed commands."""

    folder: Path
    environment: dict[str, str]
    wall_s: float = 0.0
    cpu_s: float = 0.0
    failures: list[str] = field(default_factory=list)

    def run(self, commands: Sequence[str], *, folder: Path | None = None) -> str:
        """Runs lines in one shell, prints their output, and returns it with single spaces between words."""
        failed = self.folder / "failed.txt"
        trap = f"trap 'echo \"$BASH_COMMAND\" >> {failed}' ERR"
        began, cpu_s, output = time.monotonic(), _measure_children(), ""
        with subprocess.Popen(
            ["bash", "-uxc", "\n".join([trap, *commands])],
            cwd=folder or self.folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write("0\n")  # the turn of somebody who plays an environment
            for line in process.stdout:
                print(line, end="", file=sys.stderr, flush=True)
                output += line
        self.wall_s += time.monotonic() - began
        self.cpu_s += _measure_children() - cpu_s
        if failed.is_file():
            self.failures += failed.read_text().splitlines()
            failed.unlink()
        return " ".join(output.split())  # tables break lines

    def require(self, is_met: bool, success: str) -> None:
        """Counts a success that is missing."""
        if not is_met:
            self.failures.append(f"no success: {success}")


def _measure_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def play_curious(hour: Hour, clone: Path) -> None:
    """Installs, trains, and asks the question that the quickstart suggests."""
    commands = read_commands(read_section("README.md", first="## See it learn", end="## In your own run"))
    output = hour.run([line for line in commands if line.startswith("make quickstart")], folder=clone)
    hour.require((clone / "outputs/quickstart/report.html").is_file(), "the report")
    suggestion = re.search(r"try it: (verl-agentic play [^?]*What is (\d+)\*(\d+)\?')", output)
    answer = hour.run([f".venv/bin/{suggestion[1]}"], folder=clone) if suggestion else ""
    is_right = suggestion is not None and str(int(suggestion[2]) * int(suggestion[3])) in answer
    hour.require(is_right, "a right answer of the trained model")


def play_verl_user(hour: Hour, clone: Path) -> None:
    """Checks a script, then runs a step of it with two overrides, with its own tool."""
    (hour.folder / "tools.py").write_text(_TOOL)
    (hour.folder / "run.sh").write_text(_SCRIPT)
    _make_rows(hour, clone)
    commands = read_commands(read_section("docs/from_verl.md"))
    _install(hour, clone, [line for line in commands if line.startswith("pip install")])
    preflight, *steps = [line for line in commands if re.match(r"sed|\w+=", line)]  # bash run.sh itself needs a GPU
    output = hour.run([f"{preflight} || true"])  # it fails for what it finds
    hour.require("uses no tools" in output, "preflight names the fault of the script")
    output = hour.run(steps)
    is_ready = "this run can start" in output or "no fault in what was tested" in output
    hour.require(is_ready and "the prompt shows multiply" in output, "the script's tool in a run that can start")


def play_researcher(hour: Hour, clone: Path) -> None:
    """Trains with a published system and with one change, and compares."""
    text = read_section("docs/own_method.md", end="## Get a figure")
    write_files(text, hour.folder)
    _install(hour, clone, _readme_install())
    output = hour.run(read_commands(text))
    is_compared = "my_method.py:centred" in output.partition("different keys")[2]
    hour.require(is_compared and (hour.folder / "compare.html").is_file(), "two runs that differ in the change")


def play_author(hour: Hour, clone: Path) -> None:
    """Makes an environment, checks it, plays it, and trains on it."""
    text = read_section("docs/own_environment.md", end="## Train a large model")
    write_files(text, hour.folder)
    _install(hour, clone, _readme_install())
    hour.run(read_commands(text))
    hour.require((hour.folder / "episodes.html").is_file(), "episodes of the new environment")
    summary = hour.folder / "outputs/quickstart-mine/summary.json"
    figures = json.loads(summary.read_text()) if summary.is_file() else {"success_sft": 0.0, "success_rl": 0.0}
    hour.require(figures["success_rl"] > figures["success_sft"], "a model that learns in the new environment")


_PATHS: dict[str, tuple[float, Callable[[Hour, Path], None]]] = {
    "curious": (8.0, play_curious),
    "verl_user": (5.0, play_verl_user),
    "researcher": (15.0, play_researcher),
    "author": (15.0, play_author),
}
"""Path -> the minutes within which it must end on two quiet cores, and its function."""


def _readme_install() -> list[str]:
    commands = read_commands(read_section("README.md", first="## In your own run", end="## What is in the box"))
    return [line for line in commands if line.startswith("pip install .")]


def _install(hour: Hour, clone: Path, commands: Sequence[str]) -> None:
    """Makes an environment that has verl, which does not count, and runs the page's installation in the clone."""
    venv = hour.folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    (site,) = venv.glob("lib/*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    hour.environment["PATH"] = f"{venv / 'bin'}:{hour.environment['PATH']}"
    hour.run(commands, folder=clone)


def _make_rows(hour: Hour, clone: Path) -> None:
    """Writes the model and the rows that the user of verl has: not part of the hour."""
    code = (
        "import pandas as pd; from verl_agentic.cli import main; main(['tiny-model', '--out', 'model']); "
        "pd.DataFrame([{'data_source': 'openai/gsm8k', 'prompt': [{'role': 'user', 'content': f'What is {a}*7?'}], "
        "'ability': 'math', 'reward_model': {'style': 'rule', 'ground_truth': str(7 * a)}, "
        "'extra_info': {'index': a}} for a in range(64)]).to_parquet('train.parquet')"
    )
    environment = {**hour.environment, "PYTHONPATH": str(clone)}
    subprocess.run([sys.executable, "-c", code], cwd=hour.folder, env=environment, check=True, stdout=sys.stderr)


def play_path(name: str, folder: Path) -> dict[str, Any]:
    """Plays one path in a folder, and returns its figures."""
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", str(_ROOT), str(clone)], check=True)
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VERL_", "VIRTUAL"))
    }
    hour = Hour(folder=folder, environment={**environment, "RAY_ADDRESS": "local"})
    limit_min, play_pages = _PATHS[name]
    play_pages(hour, clone)
    return {
        "path": name,
        "wall_min": round(hour.wall_s / 60, 1),
        "limit_min": limit_min,
        "cpu_s": round(hour.cpu_s),
        "load": round(os.getloadavg()[2], 1),
        "failures": hour.failures,
    }


def main() -> int:
    """Plays the chosen paths; the exit code is 1 if a command failed or a success is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=tuple(_PATHS), help="play this path")
    only = parser.parse_args().only
    all_figures = []
    for name in [only] if only else _PATHS:
        with tempfile.TemporaryDirectory(prefix=f"first_hour_{name}_") as folder:
            all_figures.append(play_path(name, Path(folder)))
        print(json.dumps(all_figures[-1]), flush=True)
    return int(any(figures["failures"] for figures in all_figures))


if __name__ == "__main__":
    sys.exit(main())
