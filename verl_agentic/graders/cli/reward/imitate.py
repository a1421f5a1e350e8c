"""`verl-agentic reward imitate`: trains a discriminator between experts and the policy, for `imitation`."""

from __future__ import annotations

import argparse
from pathlib import Path

from verl_agentic.graders.cli.reward.trajectories import add_trajectory_arguments, chosen_groups


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_trajectory_arguments(parser, limit=2_000)
    parser.add_argument("--experts", type=Path, required=True, metavar="RUN_DIR", help="read the experts' trajectories "
                        "from this folder, such as an evaluation of a stronger model")  # fmt: skip
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="write the discriminator to this JSON file"
    )


def run(args: argparse.Namespace) -> int:
    """Writes the discriminator, tests it on a held-out fifth of the texts, and returns 0."""
    from verl_agentic.graders.models.discriminator import Discriminator

    policy = _read_texts(args)
    args.run_dir, args.of, args.split, args.source = args.experts, None, None, None
    expert = _read_texts(args)
    training_texts = [[text for i, text in enumerate(side) if i % 5 or len(side) < 5] for side in (expert, policy)]
    trial = Discriminator.fit(*training_texts)
    pairs = [(a, b) for a in expert[::5] for b in policy[::5]]
    right = sum(trial.logit(a) > trial.logit(b) for a, b in pairs) / len(pairs)
    Discriminator.fit(expert, policy).save(args.out)
    print(f"{args.out}: {len(expert)} texts of experts, {len(policy)} of the policy")
    print(f"on held-out texts, the expert's has the higher logit in {right:.1%} of the pairs")
    return 0


def _read_texts(args: argparse.Namespace) -> list[str]:
    from verl_agentic.rewards.turns import texts

    samples = [stored.sample for group in chosen_groups(args).groups for stored in group]
    return ["\n".join(texts(sample.turns, starts_in_reasoning=False)) for sample in samples]
