"""`verl-agentic swe mutate`: makes tasks from synthetic bugs in a release."""

from __future__ import annotations

import argparse

from verl_agentic.cli.options.option_values import whole
from verl_agentic.swe.cli.bug_tasks import add_bug_options, make_bug_tasks
from verl_agentic.swe.cli.progress import add_index_options, add_out, mine_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("release", metavar="PACKAGE==VERSION", help="make bugs in this release")
    parser.add_argument("--max", type=whole(1), default=60, metavar="N", help="try N bugs (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="take the bugs in the order of this seed (default: 0)")
    add_out(parser)
    add_index_options(parser)
    add_bug_options(parser)


def run(args: argparse.Namespace) -> int:
    """Mutates, prints a table, and returns 0 if there is at least one task, else 1."""
    from verl_agentic.swe.bugs.break_trees import mutate_tree
    from verl_agentic.swe.releases.mine_packages import Releases, origin_of
    from verl_agentic.swe.releases.pip import parse_requirement

    name, version = parse_requirement(args.release)

    def make(journal, suites, report):
        releases = Releases(journal, mine_options(args, packages=[name]))
        release = releases.release(name, version)
        files, hidden, origin = origin_of(release, site=releases.site(release))
        return mutate_tree(files, hidden, origin, journal, suites, count=args.max, seed=args.seed, on_result=report)

    return make_bug_tasks(args, "mutate", args.out, make)
