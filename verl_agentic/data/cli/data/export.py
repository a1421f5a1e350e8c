"""`verl-agentic data export`: writes trajectories of a run as training data, with the ids and masks of its log."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path

from verl_agentic.cli.options.numbers import whole
from verl_agentic.evaluate.cli.cluster_options import add_cluster_options, add_jobs_options, jobs_of, work_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="read the log of this run, or the evaluations "
                        "below this folder")  # fmt: skip
    parser.add_argument("--as", dest="shape", choices=("sft", "pairs", "outcomes", "steps", "rows", "cpt"),
                        required=True, help="write rows for SFT, pairs for DPO, rows with their outcome or turns with "
                        "their value for reward models, all columns, or rows for continual pretraining (every token "
                        "is trained)")  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="write this .parquet or .jsonl file")
    choice = parser.add_argument_group("choice; void rows are always left out")
    choice.add_argument("--split", choices=("train", "val"), help="take training, or validation and evaluations "
                        "(default: training, if there is any)")  # fmt: skip
    choice.add_argument("--where", metavar="CONDITION", help="take rows for which this holds, such as 'acc >= 1 and "
                        'step > 10 and numbers["reward/format"] > 0\'; the columns are those of the log')  # fmt: skip
    choice.add_argument("--best", type=whole(1), metavar="N", help="take the N best sessions of each group (--by)")
    choice.add_argument("--per-prompt", type=whole(1), metavar="N", help="take the first N sessions of each prompt")
    choice.add_argument("--by", default="acc", metavar="NAME", help="compare this: acc, score, reward, a part such as "
                        "reward/format, or step for pairs of turns by their value (default %(default)s)")  # fmt: skip
    pairs = parser.add_argument_group("pairs and steps")
    pairs.add_argument("--gap", type=float, default=0.0, metavar="G", help="leave out pairs whose values differ by G "
                       "or less (default %(default)g: ties)")  # fmt: skip
    pairs.add_argument("--continuations", type=whole(1), default=4, metavar="K", help="take turns that K sessions or "
                       "more share; the value is their mean outcome (default %(default)s)")  # fmt: skip
    pairs.add_argument("--critic", metavar="ADDRESS", help="ask this function (messages, text of a turn) -> value "
                       "about turns, as module:function or path.py:function")  # fmt: skip
    pairs.add_argument("--critic-weight", type=float, metavar="W", help="give its value the weight W and the mean "
                       "outcome 1 - W (default 0.5)")  # fmt: skip
    add_jobs_options(parser, job="values of the critic")
    add_cluster_options(parser)


def run(args: argparse.Namespace) -> int:
    """Writes the file and prints its numbers; returns 0."""
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.data.export.critique import Critic, asking_here
    from verl_agentic.data.export.export_run import ExportOptions, export_run

    critic = None
    if args.critic is not None:
        make_work = functools.partial(asking_here, args.critic)
        critic = Critic(
            function=args.critic,
            weight=0.5 if args.critic_weight is None else args.critic_weight,
            jobs=jobs_of(args),
            journal=args.journal,
            asking=work_of(args, make_work, concurrency=args.jobs),
        )
    elif unused := [name for name in ("ray", "workers", "journal", "critic_weight") if getattr(args, name) is not None]:
        raise ConfigError(f"--{unused[0].replace('_', '-')} is for a critic, got no --critic; drop it")
    names = ("shape", "split", "where", "best", "per_prompt", "by", "gap", "continuations")
    options = ExportOptions(**{name: getattr(args, name) for name in names}, critic=critic)
    summary = export_run(args.run_dir, args.out, options)
    print(f"{args.out}: {summary.records} {options.shape} from {summary.rows} rows of the log")
    for reason, count in summary.left_out.items():
        print(f"  left out: {count} rows {reason}")
    print(f"data.train_files={args.out.resolve()}")
    return 0
