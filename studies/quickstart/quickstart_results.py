"""Prints finished quickstart runs as a Markdown table, and draws their learning curves into one SVG.

python studies/quickstart/quickstart_results.py outputs/quickstart outputs/quickstart-control --svg CURVE.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from verl_agentic.log.files.record_files import read_json_lines
from verl_agentic.web.pages.charts import Series, line_file, metric_points

_COLOURS = ("#0b6e4f", "#1f5fbf", "#7a3e9d", "#b3541e", "#555555")
_COLUMNS = {
    "success_base": "untrained",
    "success_sft": "after SFT",
    "success_rl": "after RL",
    "greedy_sft": "greedy, SFT",
    "greedy_rl": "greedy, RL",
    "tool_rate_sft": "tool used, SFT",
    "tool_rate_rl": "tool used, RL",
    "wall_s": "wall time, s",
    "peak_rss_gb": "memory, GB",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    parser.add_argument("--svg", type=Path, help="where the learning curves go")
    args = parser.parse_args()
    runs = {_label(folder): folder for folder in args.runs}
    print(f"| run | {' | '.join(_COLUMNS.values())} |")
    print("|---" * (len(_COLUMNS) + 1) + "|")
    for label, folder in runs.items():
        summary = json.loads((folder / "summary.json").read_text())
        print(f"| {label} | {' | '.join(_number(name, summary[name]) for name in _COLUMNS)} |")
    if args.svg:
        args.svg.write_text(_draw(runs))


def _label(folder: Path) -> str:
    seed = json.loads((folder / "summary.json").read_text())["seed"]
    return f"{'control, ' if folder.name.endswith('control') else ''}seed {seed}"


def _number(name: str, value: float) -> str:
    return f"{value:.0f}" if name == "wall_s" else f"{value:.1f}" if name == "peak_rss_gb" else f"{value:.3f}"


def _draw(runs: dict[str, Path]) -> str:
    steps: dict[int, dict[str, Any]] = {}
    for label, folder in runs.items():
        for _, row in read_json_lines(folder / "metrics.jsonl"):
            if row["phase"] == "rl":
                steps.setdefault(row["step"], {"step": row["step"]})[label] = row["episode/acc"]
    rows = [steps[step] for step in sorted(steps)]
    return line_file(
        (
            Series(label=label, points=metric_points(rows, label), colour=colour)
            for label, colour in zip(runs, _COLOURS, strict=False)
        ),
        y="share of episodes solved",
    )


if __name__ == "__main__":
    main()
