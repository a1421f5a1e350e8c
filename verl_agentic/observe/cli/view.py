"""`verl-agentic view`: shows the trajectories of runs or of an evaluation, in the browser or as one HTML file."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_agentic.cli.options.option_values import MAX_PORT
from verl_agentic.cli.options.typed_options import Options, declare, typed_command

if TYPE_CHECKING:
    from verl_agentic.observe.viewer.run_view import RunView


def _parse_steps(text: str) -> tuple[float, float]:
    first, _, last = text.partition(":")
    try:
        return float(int(first)), float(int(last or first))
    except ValueError:
        raise ArgumentTypeError(f"must be a step, or two with a colon between, got {text!r}") from None


def _parse_key(text: str) -> tuple[str, int, str]:
    parts = text.split("/", 2)
    if len(parts) != 3 or not parts[1].isdigit():
        raise ArgumentTypeError(f"must be SPLIT/STEP/UID, such as train/12/3f2a, got {text!r}")
    return parts[0], int(parts[1]), parts[2]


class PageOptions(Options):
    """Options of the page that needs no server."""

    GROUP = ("one file instead of a server",)
    export: Path | None = declare("write one page that needs no server", metavar="FILE")
    limit: int = declare("export the N newest trajectories, in whole groups (default %(default)s)", 200, min=1,
                         metavar="N")  # fmt: skip
    step: tuple[float, float] | None = declare("export only step A, or steps A to B", type=_parse_steps,
                                               metavar="A[:B]")  # fmt: skip
    key: Sequence[tuple[Any, ...]] = declare("export only this group; may be repeated", (), type=_parse_key,
                                             metavar="SPLIT/STEP/UID")  # fmt: skip
    spot_check: int | None = declare("export N random and N suspicious trajectories for a human check", min=1,
                                     metavar="N")  # fmt: skip
    seed: int = declare("set the seed of --spot-check (default %(default)s)", 0)


class ViewOptions(PageOptions):
    """Options of the viewer."""

    COMMON = ("port", "no_browser", "export", "limit", "step")
    run_dirs: Sequence[Path] = declare("read this folder of a run or an evaluation; its log may lie deeper; several "
                                       "runs are shown beside each other", is_required=True, is_positional=True,
                                       nargs="+", metavar="RUN_DIR")  # fmt: skip
    host: str = declare("listen at this address (default %(default)s: this machine)", "127.0.0.1")
    port: int = declare("listen at this port (default: a free one)", 0, min=0, max=MAX_PORT)
    no_browser: bool = declare("print the address and open no browser", False)


def show_run(options: ViewOptions) -> int:
    """Serves the page until Ctrl-C, or writes it to a file."""
    from verl_agentic.base.errors import ConfigError

    chosen = [name for name in ("step", "key", "spot_check") if getattr(options, name)]
    if options.export is None and chosen:
        raise ConfigError(f"--{chosen[0].replace('_', '-')} needs --export, got none; add --export FILE")
    views = [_open_view(run_dir) for run_dir in options.run_dirs]
    if options.export is None:
        return _serve_views(options, views)
    if len(views) > 1:
        raise ConfigError(
            f"--export writes the page of one run, got {len(views)} runs; name one, or use `verl-agentic compare --out`"
        )
    return _export_page(options, views[0], options.export)


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


def _serve_views(options: ViewOptions, views: Sequence[RunView]) -> int:
    import webbrowser

    from verl_agentic.observe.viewer.viewer_server import PageServer

    with PageServer(*views, host=options.host, port=options.port) as server:
        print(f"{server.url}  (Ctrl-C ends)", flush=True)
        if not options.no_browser:
            webbrowser.open(server.url)
        server.serve_forever()
    return 0


def _export_page(options: PageOptions, view: RunView, out: Path) -> int:
    from verl_agentic.base.errors import ConfigError
    from verl_agentic.observe.viewer.export import newest_rows, spot_check_rows, write_page
    from verl_agentic.observe.viewer.query import Query

    if options.spot_check is not None:
        rows = spot_check_rows(view, count=options.spot_check, seed=options.seed)
        suspicious = sum(why != ["random"] for why in rows.values())
        description = f"{len(rows) - suspicious} trajectories at random, {suspicious} suspicious"
    else:
        query = Query(ranges={"step": options.step} if options.step else {})
        rows = {row: [] for row in newest_rows(view, limit=options.limit, query=query, keys=options.key)}
        description = f"{len(rows)} trajectories"
    try:
        write_page(out, view, rows)
    except OSError as cause:
        raise ConfigError(f"the page cannot be written, got {cause}; choose another --export") from cause
    print(f"{out}: {description}, {out.stat().st_size / 1e6:.1f} MB")
    return 0


add_arguments, run = typed_command(ViewOptions, show_run)
