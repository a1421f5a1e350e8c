"""`verl-agentic data export`: writes trajectories of a run as training data, with the ids and masks of its log."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Literal

from verl_agentic.cli.options.typed_options import Options, declare, typed_command
from verl_agentic.evaluate.cli.cluster_options import ClusterOptions, JobsOptions, work_of


class ChoiceOptions(Options):
    """Options that choose rows."""

    GROUP = ("choice; void rows are always left out",)
    split: Literal["train", "val"] | None = declare("take training, or validation and evaluations (default: training, "
                                                    "if there is any)")  # fmt: skip
    where: str | None = declare("take rows for which this holds, such as 'acc >= 1 and step > 10 and "
                                'numbers["reward/format"] > 0\'; the columns are those of the log',
                                metavar="CONDITION")  # fmt: skip
    best: int | None = declare("take the N best sessions of each group (--by)", min=1, metavar="N")
    per_prompt: int | None = declare("take the first N sessions of each prompt", min=1, metavar="N")
    by: str = declare("compare this: acc, score, reward, a part such as reward/format, or step for pairs of turns by "
                      "their value (default %(default)s)", "acc", metavar="NAME")  # fmt: skip
    drop_guidance: bool = declare("write guided attempts behind the prompt of unguided ones at the task", False)


class PairOptions(Options):
    """Options of pairs and steps."""

    GROUP = ("pairs and steps",)
    gap: float = declare("leave out pairs whose values differ by G or less (default %(default)g: ties)", 0.0,
                         metavar="G")  # fmt: skip
    continuations: int = declare("take turns that K sessions or more share; the value is their mean outcome (default "
                                 "%(default)s)", 4, min=1, metavar="K")  # fmt: skip
    critic: str | None = declare("ask this function (messages, text of a turn) -> value about turns, as "
                                 "module:function or path.py:function", metavar="ADDRESS")  # fmt: skip
    critic_weight: float | None = declare("give its value the weight W and the mean outcome 1 - W (default 0.5)",
                                          metavar="W")  # fmt: skip


class DataExportOptions(ChoiceOptions, PairOptions, JobsOptions, ClusterOptions):
    """Options of an export."""

    COMMON = ("split", "where", "best", "per_prompt", "by")
    run_dir: Path = declare("read the log of this run, or the evaluations below this folder", is_required=True,
                            is_positional=True, metavar="RUN_DIR")  # fmt: skip
    shape: Literal["sft", "pairs", "outcomes", "steps", "rows", "cpt"] = declare(
        "write rows for SFT, pairs for DPO, rows with their outcome or turns with their value for reward models, all "
        "columns, or rows for continual pretraining (every token is trained)", is_required=True, flags=["--as"]
    )  # fmt: skip
    out: Path = declare("write this .parquet or .jsonl file", is_required=True, metavar="FILE")


def write_export(options: DataExportOptions) -> int:
    """Writes the file and prints its numbers; returns 0."""
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.data.export.critique import Critic, asking_here
    from verl_agentic.data.export.export_run import ExportOptions, export_run

    critic = None
    if options.critic is not None:
        make_work = functools.partial(asking_here, options.critic)
        critic = Critic(
            function=options.critic,
            weight=0.5 if options.critic_weight is None else options.critic_weight,
            jobs=options.jobs,
            journal=options.journal,
            asking=work_of(options, make_work, concurrency=options.jobs),
        )
    elif unused := [
        name for name in ("ray", "workers", "journal", "critic_weight") if getattr(options, name) is not None
    ]:
        raise ConfigError(f"--{unused[0].replace('_', '-')} is for a critic, got no --critic; drop it")
    names = ("shape", "split", "where", "best", "per_prompt", "by", "drop_guidance", "gap", "continuations")
    selection = ExportOptions(**{name: getattr(options, name) for name in names}, critic=critic)
    summary = export_run(options.run_dir, options.out, selection)
    print(f"{options.out}: {summary.records} {selection.shape} from {summary.rows} rows of the log")
    for reason, count in summary.left_out.items():
        print(f"  left out: {count} rows {reason}")
    print(f"data.train_files={options.out.resolve()}")
    return 0


add_arguments, run = typed_command(DataExportOptions, write_export)
