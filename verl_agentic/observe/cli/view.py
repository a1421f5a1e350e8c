"""`verl-agentic view`: shows the trajectories of a run or an evaluation, in the browser or as one HTML file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from verl_agentic.cli.options.numbers import MAX_PORT, whole

if TYPE_CHECKING:
    from verl_agentic.observe.viewer.run_view import RunView


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "run_dir",
        type=Path,
        metavar="RUN_DIR",
        help="read this folder of a run or an evaluation; its log may lie deeper",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="listen at this address (default %(default)s: this machine)"
    )
    parser.add_argument("--port", type=whole(0, MAX_PORT), default=0, help="listen at this port (default: a free one)")
    parser.add_argument("--no-browser", action="store_true", help="print the address and open no browser")
    export = parser.add_argument_group("one file instead of a server")
    export.add_argument("--export", type=Path, metavar="FILE", help="write one page that needs no server")
    export.add_argument(
        "--limit",
        type=whole(1),
        default=200,
        metavar="N",
        help="export the N newest trajectories, in whole groups (default 200)",
    )
    export.add_argument("--step", type=_parse_steps, metavar="A[:B]", help="export only step A, or steps A to B")
    export.add_argument(
        "--key",
        type=_parse_key,
        action="append",
        default=[],
        metavar="SPLIT/STEP/UID",
        help="export only this group; may be repeated",
    )
    export.add_argument(
        "--spot-check",
        type=whole(1),
        metavar="N",
        help="export N random and N suspicious trajectories for a human check",
    )
    export.add_argument("--seed", type=int, default=0, help="set the seed of --spot-check (default %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Serves the page until Ctrl-C, or writes it to a file."""
    from verl_agentic.base.errors import ConfigError

    chosen = [name for name in ("step", "key", "spot_check") if getattr(args, name)]
    if args.export is None and chosen:
        raise ConfigError(f"--{chosen[0].replace('_', '-')} needs --export, got none; add --export FILE")
    view = _open_view(args.run_dir)
    return _serve_view(args, view) if args.export is None else _export_page(args, view)


def _open_view(run_dir: Path) -> RunView:
    """Returns the view of a run, or if there is none, of the evaluations in the folder.

    Raises:
        DataError: the folder has neither a run nor an evaluation.
    """
    import sys

    from verl_agentic.base.errors import DataError
    from verl_agentic.log.metric_log import read_metrics
    from verl_agentic.log.run_files import EVALUATION, find_evaluations, find_runs, require_one_run
    from verl_agentic.observe.viewer.run_view import RunView, is_run

    if run_dir.is_dir() and not is_run(run_dir) and not read_metrics(run_dir):
        raise DataError(
            f"nothing to view below {run_dir}, got neither the log of a run (trajectories/trajectories-*.arrows, "
            f"metrics-*.jsonl) nor an evaluation ({EVALUATION}); name the folder that the run logs to "
            "(agentic.log.dir) or the --out of `verl-agentic evaluate`"
        )
    require_one_run(run_dir)
    view = RunView(run_dir)
    evaluations = find_evaluations(run_dir) if find_runs(run_dir) else []
    if evaluations and run_dir not in evaluations:
        names = ", ".join(str(path) for path in evaluations[:3])
        print(f"showing the run; to see evaluations, pass their own folders: {names}", file=sys.stderr)
    return view


def _serve_view(args: argparse.Namespace, view: RunView) -> int:
    import webbrowser

    from verl_agentic.observe.viewer.viewer_server import PageServer

    with PageServer(view, host=args.host, port=args.port) as server:
        print(f"{server.url}  (Ctrl-C ends)", flush=True)
        if not args.no_browser:
            webbrowser.open(server.url)
        server.serve_forever()
    return 0


def _export_page(args: argparse.Namespace, view: RunView) -> int:
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.observe.viewer.export import newest_rows, spot_check_rows, write_page
    from verl_agentic.observe.viewer.query import Query

    if args.spot_check is not None:
        rows = spot_check_rows(view, count=args.spot_check, seed=args.seed)
        suspicious = sum(why != ["random"] for why in rows.values())
        description = f"{len(rows) - suspicious} trajectories at random, {suspicious} suspicious"
    else:
        query = Query(ranges={"step": args.step} if args.step else {})
        rows = {row: [] for row in newest_rows(view, limit=args.limit, query=query, keys=args.key)}
        description = f"{len(rows)} trajectories"
    try:
        write_page(args.export, view, rows)
    except OSError as cause:
        raise ConfigError(f"the page cannot be written, got {cause}; choose another --export") from cause
    print(f"{args.export}: {description}, {args.export.stat().st_size / 1e6:.1f} MB")
    return 0


def _parse_steps(text: str) -> tuple[float, float]:
    first, _, last = text.partition(":")
    try:
        return float(int(first)), float(int(last or first))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a step, or two with a colon between, got {text!r}") from None


def _parse_key(text: str) -> tuple[str, int, str]:
    parts = text.split("/", 2)
    if len(parts) != 3 or not parts[1].isdigit():
        raise argparse.ArgumentTypeError(f"must be SPLIT/STEP/UID, such as train/12/3f2a, got {text!r}")
    return parts[0], int(parts[1]), parts[2]
