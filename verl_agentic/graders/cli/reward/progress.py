"""`verl-agentic reward progress`: trains SPA's progress estimator on stored trajectories, for `progress`."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from verl_agentic.cli.options.option_values import whole
from verl_agentic.graders.cli.reward.trajectories import add_trajectory_arguments, chosen_groups

if TYPE_CHECKING:
    from verl_agentic.graders.stored_samples import StoredSample
    from verl_agentic.rewards.sample import Sample

_PRINT_EVERY = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_trajectory_arguments(parser, limit=5_000)
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="train from this Hugging Face model, "
                        "such as the policy after SFT")  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="write the estimator to this folder")
    parser.add_argument(
        "--steps", type=whole(1), default=300, metavar="N", help="train for N updates (default %(default)s)"
    )
    parser.add_argument("--batch", type=whole(1), default=8, metavar="N", help="train on N episodes an update (default "
                        "%(default)s)")  # fmt: skip
    parser.add_argument(
        "--lr", type=float, default=1e-5, metavar="X", help="set the learning rate (default %(default)s)"
    )
    parser.add_argument("--max-tokens", type=whole(16), default=4096, metavar="N", help="read the last N tokens of an "
                        "episode (default %(default)s)")  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="set the order of the episodes (default %(default)s)"
    )
    parser.add_argument("--device", default="cpu", metavar="NAME", help="train on this device of torch (default "
                        "%(default)s)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Trains on four fifths of the groups, tests on the others, writes the estimator, and returns 0."""
    from verl_agentic.methods.progress_model import ProgressModel, ProgressTraining, train_progress

    settings = ProgressTraining(
        steps=args.steps, batch=args.batch, lr=args.lr, max_tokens=args.max_tokens, seed=args.seed
    )
    groups = [_pair_with_outcomes(group) for group in chosen_groups(args).groups]
    held_out = [pair for group in groups[::5] for pair in group] if len(groups) >= 5 else []
    training = [pair for i, group in enumerate(groups) if i % 5 or not held_out for pair in group]
    model = ProgressModel(args.model, device=args.device, max_tokens=args.max_tokens)
    train_progress(model, training, settings, on_step=_print_step)
    args.out.mkdir(parents=True, exist_ok=True)
    model.save(args.out)
    print(f"{args.out}: trained on {len(training)} episodes")
    if held_out:
        outcomes = [outcome for _, outcome in held_out]
        error = statistics.fmean((sum(model(sample)) - outcome) ** 2 for sample, outcome in held_out)
        constant = statistics.pvariance(outcomes)
        print(f"on {len(held_out)} held-out episodes, squared error {error:.3f}; {constant:.3f} for a constant")
    return 0


def _pair_with_outcomes(group: Sequence[StoredSample]) -> list[tuple[Sample, float]]:
    """Returns the episodes of a group that have turns and an outcome."""
    scored = ((stored.sample, (stored.score or {}).get("acc")) for stored in group)
    return [(sample, float(outcome)) for sample, outcome in scored if sample.turns and outcome is not None]


def _print_step(step: int, loss: float) -> None:
    if step % _PRINT_EVERY == 0:
        print(f"step {step}: loss {loss:.4f}", flush=True)
