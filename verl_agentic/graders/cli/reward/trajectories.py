"""Options that choose stored trajectories."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from verl_agentic.cli.options.option_values import whole

if TYPE_CHECKING:
    from verl_agentic.graders.stored_samples import StoredSample

_KINDS = ("training", "validation", "evaluation")


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The trajectories of a command."""

    groups: list[list[StoredSample]]
    kinds: Mapping[str, int]
    """Kind -> number of used trajectories."""
    left_out: Mapping[str, int]
    """Kind that `--of` did not choose -> number of its trajectories."""

    def __str__(self) -> str:
        """Returns one line with the counts, and the option that changes the choice."""
        line = f"used: {_format_counts(self.kinds)}"
        return f"{line}; left out: {_format_counts(self.left_out)} (choose with --of)" if self.left_out else line

    def to_dict(self) -> dict[str, Any]:
        """Returns the counts as JSON."""
        return {"used": dict(self.kinds), "left_out": dict(self.left_out)}


def add_trajectory_arguments(parser: argparse.ArgumentParser, *, limit: int, nargs: Literal["?"] | None = None) -> None:
    """Adds the folder, which `nargs="?"` makes optional, and the options that choose trajectories in it."""
    parser.add_argument(
        "run_dir", type=Path, nargs=nargs, metavar="RUN_DIR", help="read the trajectories stored below this folder"
    )
    parser.add_argument("--of", choices=(*_KINDS, "all"), help="take the trajectories of training steps, of "
                        "validation during training, or of `evaluate` and `quickstart` (default: the first kind that "
                        "the folder has)")  # fmt: skip
    parser.add_argument("--split", choices=("train", "val"), help="take only training, or only validation and "
                        "evaluations (default: both)")  # fmt: skip
    parser.add_argument("--source", metavar="TEXT", help="take only files whose path below RUN_DIR contains this")
    parser.add_argument("--limit", type=whole(1), default=limit, metavar="N", help="take at most N samples, in whole "
                        "groups, evenly over the run (default %(default)s)")  # fmt: skip


def chosen_groups(args: argparse.Namespace) -> Chosen:
    """Returns the chosen groups. Raises DataError if there are none."""
    from verl_agentic.base.errors import DataError
    from verl_agentic.graders.stored_samples import read_samples, take_groups

    stored = read_samples(args.run_dir)
    fitting = [s for s in stored if args.split in (None, s.split) and (args.source or "") in s.source]
    counts = Counter(map(_get_kind, fitting))
    chosen_kind = args.of or next((kind for kind in _KINDS if counts[kind]), "all")
    chosen = [s for s in fitting if chosen_kind in ("all", _get_kind(s))]
    if not chosen:
        sources = sorted({f"{s.source} ({s.split})" for s in stored})
        of = f"--of {args.of}, " if args.of else ""
        raise DataError(
            f"no trajectory matches {of}--split {args.split} and --source {args.source}; there are {sources}"
        )
    groups = take_groups(chosen, args.limit)
    left_out = {kind: counts[kind] for kind in _KINDS if counts[kind] and chosen_kind not in ("all", kind)}
    return Chosen(groups=groups, kinds=Counter(_get_kind(s) for group in groups for s in group), left_out=left_out)


def _get_kind(stored: StoredSample) -> str:
    if stored.source != "training":
        return "evaluation"
    return "training" if stored.split == "train" else "validation"


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} of {kind}" for kind, count in counts.items())
