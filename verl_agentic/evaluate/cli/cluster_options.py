"""`--ray` and `--workers`: options of commands that can run their jobs on a Ray cluster."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from verl_agentic.cli.options.numbers import whole


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument("--ray", metavar="ADDRESS", help="run on this Ray cluster; auto: on the one that runs here, "
                         "or on the cores of this machine (default: in this process)")  # fmt: skip
    cluster.add_argument(
        "--workers", type=whole(1), metavar="N", help="use N worker processes on the cluster (default: one per CPU)"
    )


def add_jobs_options(parser: argparse.ArgumentParser, *, job: str) -> None:
    """Adds `--jobs` and `--journal`, for commands without a journal of their own.

    Args:
        parser: of the command.
        job: names the results in the help text.
    """
    parser.add_argument("--jobs", type=int, default=8, metavar="N", help=f"compute N {job} at a time (default 8)")
    parser.add_argument("--journal", type=Path, metavar="FILE", help=f"keep {job} in this file of JSON lines, from "
                        "which the same command continues; remove it when their code changes")  # fmt: skip


def jobs_of(args: argparse.Namespace) -> int:
    """Returns `--jobs`. Raises ConfigError if it is less than 1."""
    from verl_agentic.base.errors import ConfigError

    if args.jobs < 1:
        raise ConfigError(f"--jobs must be at least 1, got {args.jobs}; leave it out for the default")
    return args.jobs


@contextlib.asynccontextmanager
async def work_of(
    args: argparse.Namespace,
    make_work: Callable[[], AbstractAsyncContextManager[Callable[[Any], Awaitable[Any]]]],
    *,
    concurrency: int,
) -> AsyncIterator[Callable[[Any], Awaitable[Any]]]:
    """Yields the function that runs one job: on the cluster of the options, or in this process.

    Args:
        args: with the options.
        make_work: makes the function; pickles.
        concurrency: number of jobs that the caller runs at one time.

    Raises:
        ConfigError: `--workers` without `--ray`, or as `ray_workers`.
    """
    from verl_agentic.base.errors import ConfigError

    if args.ray is None:
        if args.workers is not None:
            raise ConfigError(f"--workers needs a cluster, got --workers {args.workers} alone; add --ray auto")
        async with make_work() as work:
            yield work
        return
    from verl_agentic.verl.extensions.cluster.ray_workers import ray_workers

    async with ray_workers(make_work, address=args.ray, workers=args.workers, concurrency=concurrency) as work:
        yield work
