"""Simulates a training run on 1,000 nodes with 100,000 concurrent episodes: discrete events, one per piece of a turn.

python studies/cluster/simulate_cluster.py [--plots docs] [--quick] # a few minutes on one core
python studies/cluster/simulate_cluster.py --real                   # the same model against 64 episodes on this machine
python studies/cluster/simulate_cluster.py --measure                # costs of the processes at the head

Constants are in `cluster_constants.yaml`, each with its source. Those of GPUs are published numbers: no run on GPUs
has validated the results.

`gpu_check_error`: largest relative error of the simulated engine on two published measurements of one GPU.

`real_error`: relative error of the predicted wall time of 64 episodes, whose constants come from smaller runs; the
median of three repeats.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # _report

from _cluster_answers import EPISODES_PER_NODE, Cluster, load_constants, published_check
from _report import Target, progress, report

from verl_agentic.web.pages.charts import Series, line_file

_COLOURS = ("#0b6e4f", "#1f5fbf", "#7a3e9d", "#b3541e", "#555555", "#b08900", "#c2185b")
_NODES, _SMALL = 1_000, 10
_LEVELS, _SIGMAS = (1_000, 3_000, 10_000, 30_000, 100_000), (0.25, 0.5, 0.75, 1.0)
_CHECKPOINTS_MIN = (10, 30, 60)
_SIZES = (1, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000)
_MAX_ERROR = 0.15


def main() -> int:
    """Runs what is asked for and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small cluster, or few episodes: a smoke test")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="write the plots there as SVG files")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--real", action="store_true", help="compare with a real run; needs a quiet machine")
    kind.add_argument("--measure", action="store_true", help="measure constants of the control processes with Ray")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    if options.real:
        return _real(quick=options.quick)
    if options.measure:
        from _cluster_control import measure_control

        return report("simulate_cluster", ratios={}, figures=measure_control(quick=options.quick), targets={})
    return _simulate(quick=options.quick, plots=options.plots)


def _real(*, quick: bool) -> int:
    from _cluster_real import Size, measure_real

    found = measure_real(Size(episodes=8, small=4, repeats=1) if quick else Size())
    ratio = found.pop("predicted_over_measured")
    return report(
        "simulate_cluster",
        ratios={"predicted_over_measured": ratio, "real_error": round(abs(ratio - 1), 3)},
        figures=found,
        targets={"real_error": Target(bound=_MAX_ERROR, at_least=False, is_goal=quick)},
    )


def _simulate(*, quick: bool, plots: Path | None) -> int:
    known, begin = load_constants(), time.process_time()
    cluster = Cluster(known, progress=progress)
    nodes, small = (10, 4) if quick else (_NODES, _SMALL)
    levels = (100, EPISODES_PER_NODE * nodes) if quick else _LEVELS
    check = published_check(known)
    answers: dict[str, Any] = {
        "first_queue": cluster.first_queue(nodes, levels),
        "tails": cluster.tails(small, _SIGMAS[::3] if quick else _SIGMAS),
        "lost_node": cluster.lost_node(small),
        "lost_time_share": {
            f"checkpoint every {minutes} min": cluster.lost_shares(_SIZES, 60 * minutes) for minutes in _CHECKPOINTS_MIN
        },
    }
    if plots:
        for name, drawing in _drawings(answers).items():
            (plots / f"scaling_{name}.svg").write_text(drawing)
    return report(
        "simulate_cluster",
        ratios={"gpu_check_error": round(max(abs(ratio - 1) for ratio in check.values()), 3)},
        figures={**answers, "gpu_check": check, "nodes": nodes, "cpu_s": round(time.process_time() - begin, 1)},
        targets={
            "gpu_check_error": Target(bound=_MAX_ERROR, at_least=False),
            "cpu_s": Target(bound=600, at_least=False),
        },
    )


def _drawings(answers: Mapping[str, Any]) -> dict[str, str]:
    """Returns the plots by name."""
    tails = {
        name: [(sigma, 100 * state["idle"]) for sigma, state in found.items()]
        for name, found in answers["tails"].items()
    }
    levels: Mapping[int, Any] = answers["first_queue"]["levels"]
    stations = {
        name: [(level / 1_000, 100 * state["busy"][name]) for level, state in levels.items()]
        for name in next(iter(levels.values()))["busy"]
    }
    lost = {
        name: [(nodes, 100 * share) for nodes, share in found.items()]
        for name, found in answers["lost_time_share"].items()
    }
    return {
        "idle": _lines(tails, x="tail: sigma of the logarithm of the number of turns", y="GPU time without work, %"),
        "queues": _lines(stations, x="concurrent episodes, thousands", y="time in which it is busy, %"),
        "lost_nodes": _lines(lost, x="nodes that train", y="time lost, %"),
    }


def _lines(points: Mapping[str, list[tuple[float, float]]], *, x: str, y: str) -> str:
    series = [
        Series(label=name, points=found, colour=colour)
        for (name, found), colour in zip(points.items(), _COLOURS, strict=False)
    ]
    return line_file(series, x=x, y=y)


if __name__ == "__main__":
    sys.exit(main())
