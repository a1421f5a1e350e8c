"""The figures of one run that a comparison shows: success over the steps, and means of metrics over the last ones."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.log.run_files import require_one_run
from verl_agentic.observe.diagnosis.history import REWARD
from verl_agentic.observe.diagnosis.run_records import RunRecords, is_number
from verl_agentic.observe.success_over_attempts import Mean, clustered_mean, success_interval

Z_95 = 1.96
"""Standard errors on each side of a 95 % interval."""
MAX_POINTS = 40
"""Points of a curve: the steps of a longer run are pooled."""
MEASURES = {
    "reward": "critic/score/mean",
    "groups without signal": "credit/zero_signal_group_frac",
    "void episodes": "episode/void",
    "turns": "episode/num_turns",
    "tool calls": "episode/tool_calls",
    "tool errors": "episode/tool_errors",
    "attempts at reward hacking": "episode/hacking/any",
    "tokens of the policy": "episode/model_tokens",
    "entropy": "batch/entropy",
    "KL to the reference": "batch/ref_kl",
    "KL of the update": "actor/ppo_kl",
    "gradient norm": "actor/grad_norm",
    "seconds per step": "timing_s/step",
    "tokens per second": "perf/throughput",
}
"""Title -> metric, averaged over the last steps."""
FAMILIES = {"reward part": "episode/reward/", "stop": "episode/stop/", "calls of": "episode/calls/"}
"""Title -> prefix of metrics that are shown where a run has one that is not 0."""


@dataclass(frozen=True, kw_only=True)
class RunFigures:
    """The figures of a run."""

    name: str
    run_dir: Path
    num_steps: int
    window: tuple[int, int]
    """First and last of the steps that are averaged."""
    success: Mean | None
    """Mean outcome of valid training episodes in the window, clustered by group; None without a trajectory log."""
    interval: tuple[float, float] | None
    """95 % interval of `success`."""
    tasks: Mapping[str, float]
    """Task -> its mean outcome in the window."""
    curve: Sequence[tuple[float, float, float, float]]
    """`(step, mean outcome, low, high)` with a 95 % interval, which has no width without a trajectory log."""
    validation: Mapping[str, float]
    """Metric of verl's validation -> its last value."""
    measures: Mapping[str, float]
    """Title -> mean over the window."""
    wall_s: float | None
    """From the first step to the last, with the duration of the first."""
    num_tokens: float
    """Tokens of all training batches."""
    config: Mapping[str, Any] = field(repr=False)
    """Dotted key -> value of the resolved config."""


def read_figures(run_dir: Path, *, name: str, num_last: int) -> RunFigures:
    """Returns the figures of a run.

    Args:
        run_dir: folder of one run.
        name: of the run, for tables.
        num_last: number of last steps that are averaged.

    Raises:
        DataError: the folder has no steps, or has several runs.
    """
    require_one_run(run_dir)
    records = RunRecords(run_dir)
    steps = sorted({row["step"] for row in records.metrics} | set(map(int, records.rows["step"])))
    if not steps:
        raise DataError(f"{run_dir} has no training step to compare; name the folder of a run, such as agentic.log.dir")
    window = (steps[-num_last:][0], steps[-1])
    recent = [row for row in records.metrics if window[0] <= row["step"] <= window[1]]
    groups = _read_groups(records)
    in_window = groups[groups["step"].between(*window)]
    return RunFigures(
        name=name,
        run_dir=run_dir,
        num_steps=len(steps),
        window=window,
        success=clustered_mean(list(in_window["acc"])) if len(in_window) else None,
        interval=_compute_interval(list(in_window["acc"])) if len(in_window) else None,
        tasks=_average_tasks(in_window),
        curve=_make_curve(groups, records.metrics),
        validation=_last_values(records.metrics, prefix="val-core/"),
        measures=_average_measures(recent),
        wall_s=_measure_wall_time(records.metrics),
        num_tokens=sum(_collect_values(records.metrics, "perf/total_num_tokens")),
        config=dict(_flatten_config(records.config)),
    )


def _read_groups(records: RunRecords) -> Any:
    """Returns a frame with a line per group: step, task, and the outcomes of its valid episodes."""
    episodes = records.episodes
    valid = episodes[~episodes["is_void"].astype(bool) & episodes["acc"].notna()]
    by_group = valid.groupby(["step", "uid"], as_index=False, sort=True)
    return by_group.agg({"task_id": "first", "acc": list})


def _average_tasks(groups: Any) -> dict[str, float]:
    outcomes: dict[str, list[float]] = {}
    for task, values in zip(groups["task_id"], groups["acc"], strict=True):
        if task:
            outcomes.setdefault(task, []).extend(values)
    return {task: statistics.fmean(values) for task, values in outcomes.items()}


def _make_curve(groups: Any, metrics: Sequence[Mapping[str, Any]]) -> list[tuple[float, float, float, float]]:
    if not len(groups):
        name = next((name for name in REWARD if _collect_values(metrics, name)), REWARD[0])
        points = [(row["step"], row[name]) for row in metrics if is_number(row.get(name))]
        return [(step, value, value, value) for step, value in points]
    steps = sorted(set(groups["step"]))
    width, curve = math.ceil(len(steps) / MAX_POINTS), []
    for start in range(0, len(steps), width):
        pooled = steps[start : start + width]
        outcomes = list(groups[groups["step"].between(pooled[0], pooled[-1])]["acc"])
        curve.append((statistics.fmean(pooled), clustered_mean(outcomes).value, *_compute_interval(outcomes)))
    return curve


def _compute_interval(groups: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Returns the 95 % interval of the mean outcome, which is unbounded for one group of outcomes outside 0 to 1."""
    if all(0 <= outcome <= 1 for group in groups for outcome in group):
        return success_interval(groups)  # also right where all have failed, or all succeeded
    mean = clustered_mean(groups)
    half = math.inf if mean.stderr is None else Z_95 * mean.stderr
    return mean.value - half, mean.value + half


def _average_measures(metrics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    names = dict(MEASURES)
    for title, prefix in FAMILIES.items():
        found_here = sorted({name for row in metrics for name in row if name.startswith(prefix)})
        names |= {f"{title} {name.removeprefix(prefix)}": name for name in found_here}
    means = {
        title: statistics.fmean(values) for title, name in names.items() if (values := _collect_values(metrics, name))
    }
    return {title: mean for title, mean in means.items() if mean or title in MEASURES}


def _last_values(metrics: Sequence[Mapping[str, Any]], *, prefix: str) -> dict[str, float]:
    return {name: row[name] for row in metrics for name in row if name.startswith(prefix) and is_number(row[name])}


def _measure_wall_time(metrics: Sequence[Mapping[str, Any]]) -> float | None:
    times = _collect_values(metrics, "time")
    return times[-1] - times[0] + next(iter(_collect_values(metrics[:1], "timing_s/step")), 0.0) if times else None


def _collect_values(metrics: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(row[name]) for row in metrics if is_number(row.get(name))]


def _flatten_config(config: Any, prefix: str = "") -> Any:
    """Yields dotted keys and values."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten_config(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
