"""Results of the study of long episodes: a table, and learning curves with intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from _long_methods import METHODS, SUBGOALS

from verl_agentic.observe.diagnosis.turn_variance import variance_of_sum
from verl_agentic.observe.success_over_attempts import proportion_interval
from verl_agentic.web.pages.charts import Series, line_file

_COLOURS = ("#1f5fbf", "#0b6e4f", "#7a3e9d", "#b3541e")
_REFERENCE, _REFERENCE_COLOUR = "grpo", "#8a8f98"
_CHARTS = {"critics": ("rloo", "turn_gae", "step_critic"), "siblings": ("gigpo", "salt", "spa", "arpo")}
"""The methods of each chart, beside GRPO."""
_WINDOW = 3
"""Steps that a point of a curve averages."""
_STEP_EPISODES = 64
"""Episodes of a step: `long_quest/grpo.yaml`."""
_REACHED = 0.7
"""Success on training tasks whose tokens are counted."""
_T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Two-sided 95 % quantile of Student's t for the mean of so many seeds."""
_HEAD = (
    "| method | rewards | seeds | success after RL | 95 % interval | mean success of the training | tokens to 0.7, "
    "thousands | steps | correlation of turns | variance of an episode's sum | time over GRPO's |"
)


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean with its 95 % interval."""

    value: float
    low: float
    high: float


class Results:
    """The finished trainings."""

    def __init__(self) -> None:
        self._found: dict[str, dict[int, dict[str, Any]]] = {}

    def add(self, result: dict[str, Any]) -> None:
        """Adds one; the same training again replaces the first."""
        self._found.setdefault(result["method"], {})[result["seed"]] = result

    def markdown(self) -> str:
        """Returns the table."""
        rows = [self._row(method.name, method.title) for method in METHODS if method.name in self._found]
        return "\n".join([_HEAD, "|---" * (_HEAD.count("|") - 1) + "|", *rows])

    def figures(self) -> dict[str, Any]:
        """Returns what each method reached."""
        found: dict[str, Any] = {"trainings": sum(map(len, self._found.values()))}
        for name in self._found:
            success = self._success(name)
            found |= {
                f"{name}/success_rl": round(success.value, 4),
                f"{name}/success_rl_low": round(success.low, 4),
                f"{name}/success_rl_high": round(success.high, 4),
                f"{name}/success_of_training": round(statistics.fmean(self._areas(name)), 4),
                f"{name}/seeds": len(self._found[name]),
            }
        return found

    def ratios(self) -> dict[str, float]:
        """Returns the success of each method over that of GRPO with the same rewards and seeds."""
        found: dict[str, float] = {}
        for name in self._found:
            reference = self._found.get(_reference_of(name), {})
            seeds = self._found[name].keys() & reference.keys()
            if seeds and name != _reference_of(name):
                ours = [self._found[name][seed]["success_rl"] for seed in sorted(seeds)]
                theirs = [reference[seed]["success_rl"] for seed in sorted(seeds)]
                if any(theirs):
                    found[f"{name}_vs_grpo"] = round(sum(ours) / sum(theirs), 4)
        return found

    def drawings(self) -> Mapping[str, str]:
        """Returns learning curves over sampled tokens as SVG files by name."""
        drawn: dict[str, str] = {}
        for rewards, suffix in (("sparse", ""), ("subgoals", SUBGOALS)):
            for chart, names in _CHARTS.items():
                shown = zip((_REFERENCE, *names), (_REFERENCE_COLOUR, *_COLOURS), strict=False)
                series = [
                    _series(name, list(self._found[f"{name}{suffix}"].values()), colour=colour, place=place)
                    for place, (name, colour) in enumerate(shown)
                    if f"{name}{suffix}" in self._found
                ]
                if series:
                    drawn[f"curves_{rewards}_{chart}"] = line_file(
                        series, x="sampled tokens, thousands", y="share of episodes solved"
                    )
        return drawn

    def _runs(self, name: str) -> list[dict[str, Any]]:
        return [self._found[name][seed] for seed in sorted(self._found[name])]

    def _success(self, name: str) -> Mean:
        return interval([run["success_rl"] for run in self._runs(name)], num_plays=self._runs(name)[0]["num_plays"])

    def _areas(self, name: str) -> list[float]:
        return [statistics.fmean(run["curve"]) for run in self._runs(name)]

    def _row(self, name: str, title: str) -> str:
        runs, success = self._runs(name), self._success(name)
        reference = self._found.get(_reference_of(name), {})
        seconds = [(run["step_s"], reference[run["seed"]]["step_s"]) for run in runs if run["seed"] in reference]
        tokens = [_tokens_to(run, _REACHED) for run in runs]
        reached = [count for count in tokens if count is not None]
        cells = [
            title,
            "outcome and subgoals" if name.endswith(SUBGOALS) else "outcome",
            str(len(runs)),
            f"{success.value:.3f}",
            f"{success.low:.3f} to {success.high:.3f}",
            f"{statistics.fmean(self._areas(name)):.3f}",
            f"{statistics.fmean(reached) / 1000:.0f}" if len(reached) == len(runs) else "not reached",
            f"{statistics.fmean(run['steps'] for run in runs):.0f}",
            *_horizon(runs),
            f"{sum(own for own, _ in seconds) / sum(theirs for _, theirs in seconds):.2f}" if seconds else "",
        ]
        return f"| {' | '.join(cells)} |"


def interval(values: Sequence[float], *, num_plays: int) -> Mean:
    """Returns the mean of runs with its 95 % interval.

    Several runs: Student's t over seeds. One run: Wilson's interval over its episodes, which leaves out the seed.
    """
    mean = statistics.fmean(values)
    if len(values) == 1:
        low, high = proportion_interval(mean * num_plays, num_plays)
        return Mean(value=mean, low=low, high=high)
    half = _T_95.get(len(values), 2.0) * statistics.stdev(values) / math.sqrt(len(values))
    return Mean(value=mean, low=max(0.0, mean - half), high=min(1.0, mean + half))


def smoothed(curve: Sequence[float]) -> list[float]:
    """Returns the mean of each point and up to two before it."""
    return [statistics.fmean(curve[max(0, place + 1 - _WINDOW) : place + 1]) for place in range(len(curve))]


def _series(name: str, runs: Sequence[Mapping[str, Any]], *, colour: str, place: int) -> Series:
    """Returns the mean curve of a method and some of its intervals; a step has about the same tokens in all runs."""
    steps = min(len(run["curve"]) for run in runs)
    points, intervals = [], []
    for step in range(steps):
        tokens = statistics.fmean(run["curve_tokens"][step] for run in runs) / 1000
        plays = _STEP_EPISODES * min(step + 1, _WINDOW)
        mean = interval([smoothed(run["curve"])[step] for run in runs], num_plays=plays)
        points.append((tokens, mean.value))
        if step % 4 == place % 4:  # those of other methods are beside it
            intervals.append((tokens, mean.low, mean.high))
    return Series(label=name, points=points, colour=colour, intervals=intervals)


def _tokens_to(run: Mapping[str, Any], success: float) -> float | None:
    """Returns the sampled tokens after which a training reached a success; None if it did not."""
    for value, tokens in zip(smoothed(run["curve"]), run["curve_tokens"], strict=True):
        if value >= success:
            return tokens
    return None


def _horizon(runs: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Returns the correlation of the advantages of two turns, and the variance of their sum over independent turns."""
    found = [run["horizon"] for run in runs if run["horizon"]["correlation"] is not None]
    if not found:
        return "", ""
    factors = [
        variance_of_sum(one["turns"], variance=1.0, correlation=one["correlation"]) / one["turns"] for one in found
    ]
    return f"{statistics.fmean(one['correlation'] for one in found):.2f}", f"{statistics.fmean(factors):.1f}x"


def _reference_of(name: str) -> str:
    return f"{_REFERENCE}{SUBGOALS}" if name.endswith(SUBGOALS) else _REFERENCE
