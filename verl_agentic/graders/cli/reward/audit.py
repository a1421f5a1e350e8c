"""`verl-agentic reward audit`: checks on stored trajectories that a rubric is fit for training.

With `--env`, scripted policies play an environment instead (`scripts.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import functools
from pathlib import Path
from typing import TYPE_CHECKING

from verl_agentic.cli.findings import print_findings
from verl_agentic.cli.options.typed_options import add_options, read_options
from verl_agentic.evaluate.cli.cluster_options import ClusterOptions, JobsOptions, work_of
from verl_agentic.graders.cli.reward.scripts import add_script_options, audit_env
from verl_agentic.graders.cli.reward.trajectories import add_trajectory_arguments, chosen_groups

if TYPE_CHECKING:
    from verl_agentic.graders.reward_audit.audit_rubric import RewardAudit, TermAudit, Thresholds
    from verl_agentic.graders.stored_samples import StoredSample
    from verl_agentic.rewards.rubric import Rubric

_THRESHOLDS = {
    "max_unearned": (
        0.0,
        "allow silence, an echo of the prompt or an unrelated answer this share of an outcome's range",
    ),
    "max_false_positives": (0.0, "accept this share of the wrong answers as right"),
    "max_false_negatives": (0.05, "reject this share of the right answers"),
    "max_unstable": (0.0, "allow this share of samples with different verdicts in 5 runs"),
    "max_failed": (0.0, "let a component fail on this share of samples"),
    "max_dead": (0, "allow this many components that never differ inside a group"),
    "max_share": (0.5, "allow one shaping component this share of the variance inside groups"),
    "min_outcome_share": (0.5, "require this share of that variance for the outcome"),
    "max_p95_s": (10.0, "allow 95 %% of the checks this many seconds"),
}


class ShareOptions(JobsOptions, ClusterOptions):
    """Options of the work on verdicts."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_trajectory_arguments(parser, limit=256, nargs="?")
    add_script_options(parser)
    parser.add_argument(
        "--rubric", type=Path, metavar="FILE", help="read the rubric from this YAML file (needed with RUN_DIR)"
    )
    add_options(parser, ShareOptions)
    group = parser.add_argument_group("thresholds", "If one is passed, the exit code is 1.")
    for name, (default, line) in _THRESHOLDS.items():
        option = f"--{name.replace('_', '-')}"
        group.add_argument(
            option, type=type(default), default=default, metavar="X", help=f"{line} (default %(default)s)"
        )
    parser.add_argument("--json", action="store_true", help="print everything as JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Audits the rubric and prints the findings; returns 1 if a threshold is passed."""
    from verl_agentic.base.errors import ConfigError

    if (args.run_dir is None) == (args.env is None):
        raise ConfigError(f"audit either RUN_DIR or --env, got {args.run_dir} and {args.env}; give one of them")
    if args.env is not None:
        return audit_env(args)
    if args.rubric is None:
        raise ConfigError("stored trajectories are audited for a rubric; name its file with --rubric")
    return _audit_run(args)


def _audit_run(args: argparse.Namespace) -> int:
    import json

    from verl_agentic.graders.reward_audit.audit_rubric import Thresholds
    from verl_agentic.rewards.rubric import Rubric

    rubric = Rubric.from_file(args.rubric)
    chosen = chosen_groups(args)
    thresholds = Thresholds(**{name: getattr(args, name) for name in _THRESHOLDS})
    audit = asyncio.run(_audit_groups(args, rubric, chosen.groups, thresholds))
    if args.json:
        print(json.dumps({"run_dir": str(args.run_dir), "rubric": str(args.rubric), "trajectories": chosen.to_dict(),
                          **audit.to_dict()}))  # fmt: skip
    else:
        _print_audit(args, audit)
        print(chosen)
    return 0 if audit.is_fine else 1


async def _audit_groups(
    args: argparse.Namespace, rubric: Rubric, groups: list[list[StoredSample]], thresholds: Thresholds
) -> RewardAudit:
    from rich.console import Console

    from verl_agentic.graders.reward_audit.audit_rubric import audit
    from verl_agentic.graders.reward_audit.unit_scores import scoring_here, unit_scores
    from verl_agentic.rewards.rubric import Rubric

    make_work = functools.partial(scoring_here, functools.partial(Rubric.from_file, args.rubric))
    shared = read_options(ShareOptions, args)
    scoring = work_of(shared, make_work, concurrency=shared.jobs)
    settings = [
        args.rubric.read_text(encoding="utf-8"),
        [stored.sample.to_dict() for group in groups for stored in group],
    ]
    async with unit_scores(scoring, jobs=shared.jobs, journal=shared.journal, settings=settings) as score:
        if args.json:
            return await audit(rubric, groups, thresholds=thresholds, score=score)
        with Console(stderr=True).status("scoring") as status:
            return await audit(rubric, groups, thresholds=thresholds, score=score, on_look=status.update)


def _print_audit(args: argparse.Namespace, audit: RewardAudit) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    title = f"{args.rubric.name} on {audit.num_samples} samples in {audit.num_groups} groups of {args.run_dir}"
    for cells_of, columns, terms in (
        (_format_costs, ("kind", "variance", "median", "p95", "unstable", "failed"), audit.terms),
        (
            _format_answers,
            ("silence", "echo", "wrong taken for right", "right taken for wrong"),
            _list_tried_terms(audit),
        ),
    ):
        table = Table(title=Text(title), title_justify="left")
        title = "score of the outcome for no work, and for answers"
        table.add_column("component")
        for name in columns:
            table.add_column(name, justify="left" if name == "kind" else "right")
        for term in terms:
            is_bad = any(problem.evidence["component"] == term.name for problem in audit.problems)
            table.add_row(*cells_of(term), style="red" if is_bad else None)
        if terms:
            console.print(table)
    for line in _list_notes(audit):
        console.print(Text(line, style="dim"), soft_wrap=True)
    if audit.problems:
        print_findings(console, audit.problems)
    else:
        console.print(Text("no threshold is passed", style="green"))


def _list_tried_terms(audit: RewardAudit) -> list[TermAudit]:
    """Returns the terms that could score counterfactual episodes."""
    return [term for term in audit.terms if not term.unearned.skipped]


def _format_costs(term: TermAudit) -> list[str]:
    repeats = term.repeats
    share = "" if term.variance_share is None else f"{term.variance_share:.1%}"
    share = "dead" if term.is_dead else "held out" if term.is_held_out else share
    seconds = ["" if s is None else f"{1000 * s:.3g} ms" for s in (repeats.median_s, repeats.p95_s)]
    return [term.name, term.kind, share, *seconds, str(repeats.unstable), str(repeats.failed)]


def _format_answers(term: TermAudit) -> list[str]:
    gold = term.gold
    wrong = "" if gold.skipped else f"{gold.false_positives} of {gold.num_wrong}"
    right = "" if gold.skipped else f"{gold.false_negatives} of {gold.num_right}"
    return [term.name, f"{term.unearned.silent:.3g}", f"{term.unearned.echo:.3g}", wrong, right]


def _list_notes(audit: RewardAudit) -> list[str]:
    measured = audit.outcome_variance_share
    notes = [f"the outcome has at most a weight of {audit.outcome_share:.1%} of the reward" + (
        "" if measured is None else f", and has {measured:.1%} of its variance inside groups"
    )]  # fmt: skip
    if not audit.num_compared:
        notes.append("every group has one sample, so there is no variance inside groups")
    if audit.num_void:
        notes.append(f"{audit.num_void} samples could not be scored")
    for term in audit.terms:
        if term.kind != "outcome":
            continue
        if term.unearned.skipped or term.gold.skipped:
            skipped = "answers" if not term.unearned.skipped else "leaks and answers"
            notes.append(f"{term.name}: not tried with {skipped}: {term.unearned.skipped or term.gold.skipped}")
        else:
            rewritten = f", rewritten as in {term.gold.family}" if term.gold.family else ", no rewriting is accepted"
            notes.append(f"{term.name}: answers were written {term.gold.form}{rewritten}")
    return notes
