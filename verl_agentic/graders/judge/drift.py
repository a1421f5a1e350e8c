"""Drift of a judge: it judges the same work again during a run, and its values are compared with its first ones.

A served judge can change under its name: another version, quantisation or prompt template. Rewards of different steps
are then not comparable.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.metric import Metric
from verl_agentic.base.settings import Settings, setting
from verl_agentic.graders.judge.options import JudgeOptions
from verl_agentic.graders.judge.panel import gathered, rule
from verl_agentic.graders.judge.probes import JudgeProbe, make_probes, read_probes
from verl_agentic.rewards.rubric import Rubric

_SAMPLES = "samples of the drift set with both values"
METRICS = (
    Metric(name="judge_drift/change", unit="reward", per="sample", rows=_SAMPLES, join="last"),
    Metric(name="judge_drift/shift", unit="reward", per="sample", rows=_SAMPLES, join="last"),
    Metric(name="judge_drift/no_value", unit="share", per="sample", rows="samples of the drift set", join="last"),
)
_FILE = "judge_drift.json"


class JudgeDriftSettings(Settings):
    """A set of samples that a judge of the rubric judges again during a run.

    The judge is asked by the trainer's process, without a cache of verdicts. Its first values are in `judge_drift.json`
    beside the checkpoints, so that a resumed run compares with them. Remove the file after a change that you want.
    """

    component: str = "judge"
    """Name of the judge in the rubric: an entry that uses the component `judge`."""
    every: int = setting(20, min=1)
    """Steps between two measurements. The first step is measured."""
    tasks: str | None = None
    """YAML file with `tasks`: name -> `prompt`, `reference` and `wrong`, and optionally `call` and `observation`. Each
    is judged with the right and with the wrong answer. None: the four tasks of `verl-agentic judge probe`."""

    def read_options(self, reward: Mapping[str, Any]) -> JudgeOptions:
        """Returns the options of the judge, without its cache.

        Args:
            reward: verl's section `reward`, with the rubric.

        Raises:
            ConfigError: the rubric has no such judge.
        """
        rubric = Rubric.from_config(reward)
        judges = {term.name: term.component for term in rubric.terms if term.component.type.name == "judge"}
        if self.component not in judges:
            raise ConfigError(f"judge_drift needs a judge of the rubric, got {self.component!r}; it has {list(judges)}")
        options = judges[self.component].options.items()
        return JudgeOptions.from_mapping({key: value for key, value in options if key not in ("cache", "cache_mb")})

    def load_samples(self) -> list[JudgeProbe]:
        """Returns the samples. Raises ConfigError if the file is missing, and DataError if it has another form."""
        if self.tasks is None:
            return make_probes({"tasks": read_probes()["tasks"], "attacks": []})
        try:
            text = Path(self.tasks).expanduser().read_text(encoding="utf-8")
        except OSError as cause:
            raise ConfigError(f"judge_drift.tasks must be a file, got {self.tasks!r}: {cause}") from cause
        return make_probes({"tasks": (yaml.safe_load(text) or {}).get("tasks"), "attacks": []})


class DriftWatch:
    """Measures the drift of one judge."""

    def __init__(self, settings: JudgeDriftSettings, options: JudgeOptions, *, folder: Path) -> None:
        """Loads the samples.

        Args:
            folder: of the first values.

        Raises:
            ConfigError, DataError: see `JudgeDriftSettings.load_samples`.
        """
        self._every = settings.every
        self._options = options
        self._samples = settings.load_samples()
        self._path = folder / _FILE
        self._last_step = 0

    def measure(self, step: int) -> dict[str, float]:
        """Returns the metrics of a step; empty between two measurements."""
        if (step - 1) % self._every or step == self._last_step:
            return {}
        self._last_step = step
        with ThreadPoolExecutor(1) as thread:  # the caller may have an event loop
            values = thread.submit(asyncio.run, self._judge_samples()).result()
        known = {name: value for name, value in values.items() if value is not None}
        first = {**known, **self._read_first_values()}
        changes = [value - first[name] for name, value in known.items()]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(first), encoding="utf-8")
        metrics = {"judge_drift/no_value": 1 - len(known) / len(values)}
        if changes:
            metrics["judge_drift/change"] = sum(map(abs, changes)) / len(changes)
            metrics["judge_drift/shift"] = sum(changes) / len(changes)
        return metrics

    async def _judge_samples(self) -> dict[str, float | None]:
        rulings = await gathered([rule(self._options.blocks(probe.sample), self._options) for probe in self._samples])
        return {probe.name: ruling.value for probe, ruling in zip(self._samples, rulings, strict=True)}

    def _read_first_values(self) -> dict[str, float]:
        with contextlib.suppress(FileNotFoundError):
            return json.loads(self._path.read_text(encoding="utf-8"))
        return {}
