"""`verl-agentic reward steps`: labels turns for a process reward model, from rollouts that branch."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_agentic.cli.options.option_values import whole
from verl_agentic.graders.cli.reward.trajectories import add_trajectory_arguments, chosen_groups

if TYPE_CHECKING:
    from verl_agentic.graders.stored_samples import StoredSample


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_trajectory_arguments(parser, limit=100_000)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="write JSON lines to this "
                        "file: prompt, completions, and for each labelled turn its label and rollouts")  # fmt: skip
    parser.add_argument("--continuations", type=whole(1), default=4, metavar="K", help="label a state from K rollouts "
                        "or more (default %(default)s)")  # fmt: skip
    parser.add_argument(
        "--hard", action="store_true", help="label a state 1 if any rollout succeeds (default: with their share)"
    )


def run(args: argparse.Namespace) -> int:
    """Writes the labels; returns 1 if no turn has one."""
    from verl_agentic.base.errors import ConfigError

    if args.continuations < 1:
        raise ConfigError(f"--continuations must be positive, got {args.continuations}")
    chosen = chosen_groups(args)
    rows = [row for group in chosen.groups for row in _iter_rows(group, k=args.continuations, soft=not args.hard)]
    if not rows:
        print(f"no turn has {args.continuations} continuations; let rollouts branch, or lower --continuations")
        return 1
    args.out.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    print(f"{args.out}: {sum(len(row['labels']) for row in rows)} labels in {len(rows)} rows")
    print(chosen)
    return 0


def _iter_rows(group: Sequence[StoredSample], *, k: int, soft: bool) -> Iterator[dict[str, Any]]:
    """Yields a row per sample that has labels; rows that share a state share its label."""
    from verl_agentic.graders.turns.step_labels import label_steps

    scored = [stored for stored in group if stored.score is not None and "acc" in stored.score]
    outcomes = [float(stored.score["acc"]) for stored in scored if stored.score is not None]
    for stored, labels in zip(
        scored, label_steps([stored.sample for stored in scored], outcomes, continuations=k, soft=soft), strict=True
    ):
        turns = [turn for turn in stored.sample.turns if turn.index in labels]
        if turns:
            yield {
                "prompt": [message.to_dict() for message in stored.sample.prompt],
                "completions": [turn.text for turn in turns],
                "observations": [list(turn.observations) for turn in turns],
                "labels": [labels[turn.index].value for turn in turns],
                "continuations": [labels[turn.index].continuations for turn in turns],
            }
