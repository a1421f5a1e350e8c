"""`verl-agentic quickstart`: SFT warm start and GRPO through verl's own trainers, on a laptop."""

from __future__ import annotations

import argparse
from pathlib import Path

from verl_agentic.cli.options.device_option import add_device_option, read_device
from verl_agentic.cli.options.numbers import whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "--recipe", default="quickstart", help="train this recipe, which needs a course.yaml (default %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=None, help="write to this folder (default outputs/RECIPE, with -vllm and -cuda)"
    )
    parser.add_argument(
        "--engine",
        choices=("agentic", "vllm"),
        default="agentic",
        help="sample the rollouts of GRPO with this engine; vllm must be installed (default %(default)s)",
    )
    add_device_option(parser, work="train and evaluate", default="cpu")
    parser.add_argument(
        "--seed", type=int, default=0, help="set the seed of weights, data and sampling (default %(default)s)"
    )
    parser.add_argument(
        "--control",
        action="store_true",
        help="shuffle rewards inside each group, as a control run, which must not improve",
    )
    parser.add_argument(
        "--rl-steps", type=whole(1), default=None, help="train this many GRPO steps (default: the recipe's)"
    )
    parser.add_argument(
        "--sft-steps", type=whole(1), default=None, help="train this many SFT steps (default: the recipe's)"
    )
    parser.add_argument(
        "--eval-tasks",
        type=whole(1),
        default=None,
        help="evaluate on this many held-out tasks (default: the recipe's)",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="repeat every phase, also those that an earlier run has finished"
    )


def run(args: argparse.Namespace) -> int:
    """Runs all unfinished phases and shows the results."""
    from verl_agentic.cpu.quickstart.phases import Quickstart
    from verl_agentic.cpu.quickstart.run_state import QuickstartSettings

    settings = QuickstartSettings(
        recipe=args.recipe,
        seed=args.seed,
        control=args.control,
        rl_steps=args.rl_steps,
        sft_steps=args.sft_steps,
        eval_tasks=args.eval_tasks,
        engine=args.engine,
        device=read_device(args),
    )
    name = "-".join([args.recipe, *(part for part in (args.engine, settings.device) if part in ("vllm", "cuda"))])
    return Quickstart(args.out or Path("outputs") / name, settings, fresh=args.fresh).run()
