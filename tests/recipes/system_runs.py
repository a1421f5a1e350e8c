"""Runs of systems: their configs, with rows that their own commands make, and one step of each in a fork."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import yaml
from judges import judging, preferring

from verl_agentic.base.env import EnvRow
from verl_agentic.base.types import Message
from verl_agentic.checks.cli.dryrun.launch import probe_environment, report_of
from verl_agentic.checks.cli.dryrun.plan import DryrunOptions, DryrunPlan, make_plan
from verl_agentic.checks.dryrun.step_report import Report
from verl_agentic.cli import main
from verl_agentic.config.recipe_groups import Recipe, load_recipe, recipe_names
from verl_agentic.cpu.quickstart.child_process import CPU_ENVIRONMENT, ChildFailedError, MemoryMeter, run_child
from verl_agentic.cpu.tiny_model import make_tiny_model
from verl_agentic.data.prepare import read_records
from verl_agentic.log.files.rows import row_of_columns, write_rows
from verl_agentic.swe.grading.repo_task import RepoTask
from verl_agentic.swe.sample_store import sample_store

_TASKS, _PROCESSES = 16, 2
_POSITIONS = 131_072
_JUDGE = "http://127.0.0.1:8001/v1"
"""The endpoint that systems with a judge have; the tests serve one elsewhere."""
_LABEL = "[[[SPLIT]]]".join(
    [
        "alpha beta",
        "[[['alpha', 'beta']]]",
        str({"key_points": [{"verification_code": "def check(text):\n    return len(text) % 2 == 0", "weight": 0.5}]}),
    ]
)
"""A label of rlvrr, with a check of style that a random text passes or not."""
OWN: Mapping[str, Sequence[str]] = {
    # The solution is not guided and the sampled attempts are. No group has two outcomes, so the test compares them.
    "agent_rlvr": ["algorithm.adv_estimator=batch_baseline"],
    # A group of one has no place for the solution.
    "coderl": ["actor_rollout_ref.rollout.n=2"],
    # There is no solution where the policy answers its own searches.
    "ssrl": [
        "agentic.rubric.components=[{use: ssrl}, {use: length_linear, "
        "options: {unit: tokens, target: 0, per_step: 0.0001, max_penalty: 0.2}}]"
    ],
}
"""Changes that a step of a random model needs to have a signal."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a system."""

    plan: DryrunPlan
    report: Report
    seconds: float


class Runs:
    """Runs of systems, in two processes side by side."""

    def __init__(self, folder: Path, systems: Sequence[Recipe], judge: str) -> None:
        """Writes config and rows of each system, and one model whose tokenizer knows their texts."""
        self._folder, self._judge = folder, judge
        self._steps: dict[str, Step] = {}
        self._refused: dict[str, Exception] = {}
        """Systems without rows, whose errors stop no other."""
        self._names = [system.name for system in systems]
        texts: list[str] = []
        for system in systems:
            self._out(system.name).mkdir(parents=True)
            (folder / system.name / "run.yaml").write_text(self._written(system))
            try:
                texts += _texts(self._write_rows(system))
            except Exception as refused:
                self._refused[system.name] = refused
        make_tiny_model(folder / "model", texts=sorted(set(texts)) * 2, token_share=0.03)
        path = folder / "model" / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "max_position_embeddings": _POSITIONS}))

    def config(self, name: str) -> list[str]:
        """Returns the arguments that name the config of a system. Raises the error of its rows."""
        if name in self._refused:
            raise self._refused[name]
        return ["--config-dir", str(self._folder / name), "--config-name", "run"]

    def step(self, name: str) -> Step:
        """Returns the step of a system; the first call runs those of all systems."""
        if not self._steps:
            plans = dict(self._plans())
            parts = [dict(list(plans.items())[place::_PROCESSES]) for place in range(_PROCESSES)]
            with ThreadPoolExecutor(_PROCESSES) as threads:
                self._steps = dict(chain(*threads.map(self._run, filter(None, parts))))
        self.config(name)
        return self._steps[name]

    def _plans(self) -> Iterator[tuple[str, DryrunPlan]]:
        for name in self._names:
            folder, overrides = self._folder / name, list(OWN.get(name, []))
            if name not in self._refused:
                try:
                    yield (
                        name,
                        make_plan(
                            DryrunOptions(
                                config_dir=folder, config_name="run", overrides=overrides, out=self._out(name)
                            )
                        ),
                    )
                except Exception as refused:
                    self._refused[name] = refused

    def _write_rows(self, system: Recipe) -> list[EnvRow]:
        """Writes the rows of a system that this package makes, and returns them."""
        folder = self._folder / system.name
        commands = system.noted("toy") or _block(system, "bash")
        command = re.findall(r"^verl-agentic prepare (?:.*\\\n)*.*", commands, re.MULTILINE)
        if command:
            words = shlex.split(command[-1].replace("\\\n", " "), comments=True)
            files = prepared(words[2:], folder, count=_TASKS)
        else:  # rows of verl, without an environment
            prompts = [(Message("user", f"Explain alpha and beta to reader {number}."),) for number in range(_TASKS)]
            rows = [EnvRow(prompt=prompt, ground_truth=_LABEL, data_source=system.name) for prompt in prompts]
            files = {split: folder / f"{split}.jsonl" for split in ("train", "test")}
            for path in files.values():
                write_rows(rows, path)
        return [row_of_columns(record, str(path)) for path in files.values() for record in read_records(path)]

    def _run(self, plans: Mapping[str, DryrunPlan]) -> list[tuple[str, Step]]:
        """Runs a step of each system in forks of one process."""
        folder, meter = self._out(next(iter(plans))), MemoryMeter()
        log = folder / "main_ppo.log"
        # Ray's sockets do not fit into the long paths of pytest's folders.
        with tempfile.TemporaryDirectory(prefix="va", ignore_cleanup_errors=True) as ray_folder:
            jobs = [
                {
                    "config": str(plan.write(self._out(name), ray_folder=ray_folder)),
                    "environment": probe_environment(plan, self._out(name)),
                    "ended": str(self._out(name) / "ended.json"),
                }
                for name, plan in plans.items()
            ]
            path = folder / "jobs.json"
            path.write_text(json.dumps(jobs))
            command = [sys.executable, str(Path(__file__).with_name("forked_runs.py")), str(path)]
            try:
                environment = {**CPU_ENVIRONMENT, **jobs[0]["environment"]}
                run_child(command, log=log, environment=environment, meter=meter)
            except ChildFailedError:
                pass  # the systems that were not run say so
            finally:
                meter.stop()
        return [(name, self._ended(name, plan, log)) for name, plan in plans.items()]

    def _ended(self, name: str, plan: DryrunPlan, log: Path) -> Step:
        path = self._out(name) / "ended.json"
        ended = json.loads(path.read_text()) if path.is_file() else {"error": "not run", "seconds": 0.0}
        text = log.read_text(errors="replace") if ended["error"] == "not run" else ended["error"]
        report = report_of(plan, self._out(name), log=text, ended_well=not ended["error"])
        return Step(plan=plan, report=report, seconds=ended["seconds"])

    def _out(self, name: str) -> Path:
        return self._folder / name / "out"

    def _written(self, system: Recipe) -> str:
        """Returns the config of the README with files of the tests, and a judge of the tests."""
        config = yaml.safe_load(_block(system, "yaml"))
        folder = self._folder / system.name
        suffix = "parquet" if system.noted("toy") or "verl-agentic prepare" in system.readme else "jsonl"
        # A batch may be larger than the number of tasks.
        copies = -(-int(system.value("data.train_batch_size")) // _TASKS)
        files: dict[str, Any] = {
            "train_files": [str(folder / f"train.{suffix}")] * copies,
            "val_files": str(folder / f"test.{suffix}"),
        }
        config.setdefault("actor_rollout_ref", {}).setdefault("model", {})["path"] = str(self._folder / "model")
        config["data"] = {**config.get("data", {}), **files}
        config["trainer"] = {**config.get("trainer", {}), "default_local_dir": str(folder / "checkpoints")}
        components = [value.value for value in system.values if value.key.startswith("agentic.rubric.components")]
        if _JUDGE in json.dumps(components):
            written = json.loads(json.dumps(components).replace(_JUDGE, self._judge))
            config.setdefault("agentic", {})["rubric"] = {"components": written}
        return yaml.safe_dump(config, sort_keys=False)


@contextmanager
def judged_runs(folder: Path, systems: Sequence[Recipe]) -> Iterator[Runs]:
    """Yields runs, and serves their judge until the block ends; it prefers the shorter answer, as the solution's is."""
    with judging(preferring(lambda a, b: "tie" if len(a) == len(b) else "A" if len(a) < len(b) else "B")) as judge:
        yield Runs(folder, systems, judge.url)


def prepared(words: Sequence[str], out: Path, *, count: int) -> dict[str, Path]:
    """Runs `verl-agentic prepare` and returns the files of the splits.

    Args:
        words: the arguments; tasks are the bundled ones.
        out: folder of the files.
        count: number of rows of each split, in place of the numbers among the arguments.
    """
    tasks = f"tasks={sample_store().path}"
    own = [tasks if word.startswith("tasks=") else word for word in words]
    assert main(["prepare", *own, "--train", str(count), "--test", str(count), "--out", str(out)]) == 0
    return {split: out / f"{split}.parquet" for split in ("train", "test")}


def _texts(rows: Sequence[EnvRow]) -> Iterator[str]:
    """Yields the texts that a tokenizer has to shorten: prompts and long solutions."""
    for row in rows:
        yield from (message.content for message in row.prompt)
        if "task" in row.extra:
            patch = RepoTask.from_json(row.extra["task"]).patch
            yield from (patch, json.dumps(patch))


def _block(system: Recipe, language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", system.readme, re.MULTILINE | re.DOTALL)
    assert found is not None, f"the README of {system.name} has no block of {language}"
    return found[1]


def trained_systems() -> list[Recipe]:
    """Returns the systems that `main_ppo` trains."""
    systems = [load_recipe("system", name) for name in recipe_names("system")]
    return [system for system in systems if not system.noted("trainer")]
