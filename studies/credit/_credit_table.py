"""Results of the trainings: means and spreads over seeds, a table, learning curves."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from _credit_methods import ABLATIONS, METHODS

from verl_agentic.web.pages.charts import Series, line_file, metric_points

_TASK, _GAME = "quickstart", "text_game"
_REFERENCE = "grpo"
_COLOURS = ("#0b6e4f", "#1f5fbf", "#7a3e9d", "#b3541e")  # as many as a chart has room to name
_HEAD = (
    "| task | method | seeds | after SFT | after RL | tool used | tokens, thousands | steps | groups played "
    "| groups of equal outcomes | time over GRPO's |"
)
_MASKS = ("grpo", "all_tokens")


class Results:
    """The finished trainings."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}

    def add(self, result: dict[str, Any]) -> None:
        """Adds one; the same training again takes the place of the first."""
        self._found.setdefault((result["recipe"], result["method"]), {})[result["seed"]] = result

    def values(self, recipe: str, method: str, key: str) -> list[Any]:
        """Returns a value of all seeds, in their order; empty when none is done."""
        seeds = self._found.get((recipe, method), {})
        return [seeds[seed][key] for seed in sorted(seeds)]

    def mean(self, recipe: str, method: str, key: str = "success_rl") -> float | None:
        """Returns the mean over seeds; None when none is done."""
        values = self.values(recipe, method, key)
        return statistics.fmean(values) if values else None

    def best(self, recipe: str, methods: Sequence[str], *, count: int) -> list[str]:
        """Returns the methods with the highest mean success, the best first."""
        means = {name: mean for name in methods if (mean := self.mean(recipe, name)) is not None}
        return sorted(means, key=lambda name: -means[name])[:count]

    def markdown(self) -> str:
        """Returns the table."""
        rows = [
            self._row(recipe, method.name, method.title)
            for recipe in (_TASK, _GAME)
            for method in (*METHODS, *ABLATIONS)
            if (recipe, method.name) in self._found
        ]
        return "\n".join([_HEAD, "|---" * (_HEAD.count("|") - 1) + "|", *rows])

    def ratios(self) -> dict[str, float]:
        """Returns success over that of the side it is compared with, where both are done."""
        sides = {f"{m.name}_vs_grpo": (_TASK, m.name, _REFERENCE) for m in METHODS if m.name != _REFERENCE}
        sides |= {f"{m.name}_vs_grpo_game": (_GAME, m.name, _REFERENCE) for m in METHODS if m.name != _REFERENCE}
        sides["observations_trained_vs_masked"] = (_TASK, "all_tokens", _REFERENCE)
        sides["observations_trained_vs_masked_game"] = (_GAME, "all_tokens", _REFERENCE)
        sides["failures_score_0_vs_void"] = (_TASK, "failures_score_0", "failures_void")
        sides["shaped_filter_reward_vs_acc"] = (_TASK, "shaped_filter_reward", "shaped_filter_acc")
        found: dict[str, float] = {}
        for name, (recipe, ours, theirs) in sides.items():
            over, under = self.mean(recipe, ours), self.mean(recipe, theirs)
            if over is not None and under:
                found[name] = round(over / under, 4)
        return found

    def figures(self) -> dict[str, Any]:
        """Returns what each method reached, and the groups that said nothing and were trained on all the same."""
        found: dict[str, Any] = {"trainings": sum(map(len, self._found.values()))}
        for (recipe, method), seeds in self._found.items():
            success = self.values(recipe, method, "success_rl")
            found[f"{recipe}/{method}/success_rl_mean"] = round(statistics.fmean(success), 4)
            found[f"{recipe}/{method}/success_rl_std"] = round(_spread(success), 4)
            found[f"{recipe}/{method}/seeds"] = len(seeds)
        for kind in ("acc", "reward"):
            share = self.mean(_TASK, f"shaped_filter_{kind}", "zero_signal_share")
            if share is not None:
                found[f"zero_signal_share_filter_{kind}"] = round(share, 4)
        return found

    def curves(self, methods: Sequence[str]) -> list[dict[str, Any]]:
        """Returns one mapping per step: the mean success of every method, while all of its seeds train."""
        series = {name: list(zip(*self.values(_TASK, name, "curve"), strict=False)) for name in methods}
        longest = max(map(len, series.values()), default=0)
        return [
            {"step": step + 1, **{name: statistics.fmean(s[step]) for name, s in series.items() if step < len(s)}}
            for step in range(longest)
        ]

    def drawings(self) -> dict[str, str]:
        """Returns the learning curves as SVG files by name, as many methods in each as can be told apart."""
        names, at_once = [method.name for method in METHODS], len(_COLOURS)
        sets = {f"curves_{place // at_once}": names[place : place + at_once] for place in range(0, len(names), at_once)}
        drawn: dict[str, str] = {}
        for title, every in {**sets, "curves_masks": _MASKS}.items():
            some = [name for name in every if self.values(_TASK, name, "curve")]
            rows = self.curves(some)
            drawn[title] = line_file(
                (
                    Series(label=name, points=metric_points(rows, name), colour=colour)
                    for name, colour in zip(some, _COLOURS, strict=False)
                ),
                y="share of episodes solved",
            )
        return drawn

    def _row(self, recipe: str, method: str, title: str) -> str:
        def shown(key: str, pattern: str = "{:.3f}") -> str:
            values = self.values(recipe, method, key)
            spread = f" ± {pattern.format(_spread(values))}" if len(values) > 1 else ""
            return pattern.format(statistics.fmean(values)) + spread

        seconds, reference = self.mean(recipe, method, "step_s"), self.mean(recipe, _REFERENCE, "step_s")
        cells = [
            *(recipe, title, str(len(self._found[recipe, method]))),
            f"{self.mean(recipe, method, 'success_sft'):.3f}",
            *(shown("success_rl"), shown("tool_rate_rl")),
            f"{(self.mean(recipe, method, 'tokens') or 0) / 1000:.0f}",
            *(f"{self.mean(recipe, method, key):.0f}" for key in ("steps", "groups")),
            f"{self.mean(recipe, method, 'zero_signal_share'):.3f}",
            f"{seconds / reference:.2f}" if seconds and reference else "",
        ]
        return f"| {' | '.join(cells)} |"


def _spread(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
