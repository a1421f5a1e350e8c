"""`verl-agentic data split`: divides rows into rows for SFT and rows for RL that share no task."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from verl_agentic.cli.options.numbers import whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("file", type=Path, metavar="FILE", help="divide the rows of this file")
    parser.add_argument("--sft", type=float, default=0.3, metavar="SHARE", help="share for SFT (default %(default)s)")
    parser.add_argument(
        "--rates",
        type=Path,
        metavar="DIR",
        help="give the hardest rows to RL, by this folder of an evaluation (default: divide at random)",
    )
    parser.add_argument("--seed", type=int, default=0, help="divide by this seed (default %(default)s)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write FILE_sft and FILE_rl into this folder (default: beside FILE)"
    )
    parser.add_argument(
        "--jobs", type=whole(1), default=os.cpu_count() or 1, metavar="N", help="use N processes (default: the cores)"
    )


def run(args: argparse.Namespace) -> int:
    """Writes both files; returns 0."""
    import numpy as np

    from verl_agentic.data.overlap.split_rows import choose_sft, rates_of_rows
    from verl_agentic.data.overlap.write_kept import write_kept
    from verl_agentic.evaluate.evaluation_log import read_episodes

    rates = None
    if args.rates:
        rates = rates_of_rows(args.file, [rows[-1] for rows in read_episodes(args.rates).values()])
    is_sft = choose_sft(args.file, share=args.sft, rates_N=rates, seed=args.seed, jobs=args.jobs)
    folder, stem, suffix = args.out or args.file.parent, args.file.stem, args.file.suffix
    chosen = {folder / f"{stem}_sft{suffix}": is_sft, folder / f"{stem}_rl{suffix}": ~is_sft}
    for out in chosen:
        out.unlink(missing_ok=True)  # an old half beside a new one would share tasks with it
    for out, is_chosen in chosen.items():
        count = write_kept(args.file, is_chosen, out)
        known_rates = rates[is_chosen & ~np.isnan(rates)] if rates is not None else []
        mean = f", mean pass rate {np.mean(known_rates):.2f} of {len(known_rates)}" if len(known_rates) else ""
        print(f"{out}: {count} rows{mean}")
    return 0
