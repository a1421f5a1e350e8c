"""`verl-agentic data split`: divides rows into rows for SFT and rows for RL that share no task."""

from __future__ import annotations

import os
from pathlib import Path

from verl_agentic.cli.options.typed_options import Options, declare, typed_command


class SplitOptions(Options):
    """Options of a division."""

    file: Path = declare("divide the rows of this file", is_required=True, is_positional=True, metavar="FILE")
    sft: float = declare("share for SFT (default %(default)s)", 0.3, metavar="SHARE")
    rates: Path | None = declare("give the hardest rows to RL, by this folder of an evaluation (default: "
                                 "divide at random)", metavar="DIR")  # fmt: skip
    seed: int = declare("divide by this seed (default %(default)s)", 0)
    out: Path | None = declare("write FILE_sft and FILE_rl into this folder (default: beside FILE)", metavar="DIR")
    jobs: int = declare("use N processes (default: the cores)", os.cpu_count() or 1, min=1, metavar="N")


def split_file(options: SplitOptions) -> int:
    """Writes both files; returns 0."""
    import numpy as np

    from verl_agentic.data.overlap.split_rows import choose_sft, rates_of_rows
    from verl_agentic.data.overlap.write_kept import write_kept
    from verl_agentic.evaluate.evaluation_log import read_episodes

    rates = None
    if options.rates:
        rates = rates_of_rows(options.file, [rows[-1] for rows in read_episodes(options.rates).values()])
    is_sft = choose_sft(options.file, share=options.sft, rates_N=rates, seed=options.seed, jobs=options.jobs)
    folder, stem, suffix = options.out or options.file.parent, options.file.stem, options.file.suffix
    chosen = {folder / f"{stem}_sft{suffix}": is_sft, folder / f"{stem}_rl{suffix}": ~is_sft}
    for out in chosen:
        out.unlink(missing_ok=True)  # an old half beside a new one would share tasks with it
    for out, is_chosen in chosen.items():
        count = write_kept(options.file, is_chosen, out)
        known_rates = rates[is_chosen & ~np.isnan(rates)] if rates is not None else []
        mean = f", mean pass rate {np.mean(known_rates):.2f} of {len(known_rates)}" if len(known_rates) else ""
        print(f"{out}: {count} rows{mean}")
    return 0


add_arguments, run = typed_command(SplitOptions, split_file)
