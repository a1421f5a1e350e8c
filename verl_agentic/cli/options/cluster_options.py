"""`--ray` and `--workers`: options of commands that can run their jobs on a Ray cluster."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
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
    from verl_agentic.errors import ConfigError

    if args.ray is None:
        if args.workers is not None:
            raise ConfigError(f"--workers needs a cluster, got --workers {args.workers} alone; add --ray auto")
        async with make_work() as work:
            yield work
        return
    from verl_agentic.adapters.cluster.ray_workers import ray_workers

    async with ray_workers(make_work, address=args.ray, workers=args.workers, concurrency=concurrency) as work:
        yield work
