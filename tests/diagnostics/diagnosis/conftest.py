"""Runs from plain numbers, and the fixtures of broken ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from verl_agentic.log.reader import write_run
from verl_agentic.observe.diagnosis.evidence import RunEvidence


@pytest.fixture
def run_of(tmp_path: Path) -> Callable[..., RunEvidence]:
    """Returns a function that writes a run and gives its evidence."""

    def write(
        *,
        metrics: Mapping[str, Sequence[float]] | None = None,
        episodes: Sequence[Mapping[str, Any]] = (),
        updates: Sequence[Mapping[str, Any]] = (),
        config: Mapping[str, Any] | None = None,
    ) -> RunEvidence:
        """Metrics are name -> one value a step from 1; episodes say what differs from a plain one."""
        columns = dict(metrics or {})
        steps = zip(*columns.values(), strict=True)
        rows = [(step, dict(zip(columns, values, strict=True))) for step, values in enumerate(steps, start=1)]
        plain = {"split": "train", "step": 1, "place": "last", "role": "policy"}
        trajectories = [{**plain, "uid": f"u{number}", **episode} for number, episode in enumerate(episodes)]
        write_run(tmp_path, trajectories=trajectories, updates=updates, metrics=rows)
        if config is not None:
            (tmp_path / "config.yaml").write_text(yaml.safe_dump({"trainer": {}, **config}))
        return RunEvidence(tmp_path)

    return write
