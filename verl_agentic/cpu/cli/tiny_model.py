"""`verl-agentic tiny-model`: writes a tiny random model."""

from __future__ import annotations

import argparse
from pathlib import Path

from verl_agentic.cpu.tiny_model import DEFAULT_PRESET, PRESETS, make_tiny_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="write the model to this folder")
    parser.add_argument(
        "--preset",
        choices=sorted(PRESETS),
        default=DEFAULT_PRESET,
        help="make a model of this size (default %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="set the seed of the random weights (default %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Writes the model."""
    count = make_tiny_model(args.out, preset=args.preset, seed=args.seed)
    print(f"{args.out}: {count / 1e6:.2f} M parameters, preset {args.preset}, seed {args.seed}")
    return 0
