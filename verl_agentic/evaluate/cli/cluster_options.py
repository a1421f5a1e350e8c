"""`--ray` and `--workers`: options of commands that can run their jobs on a Ray cluster."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from verl_agentic.cli.options.typed_options import Options, declare


class ClusterOptions(Options):
    """`--ray` and `--workers`."""

    GROUP = ("cluster",)
    ray: str | None = declare("run on this Ray cluster; auto: on the one that runs here, or on the cores of this "
                              "machine (default: in this process)", metavar="ADDRESS")  # fmt: skip
    workers: int | None = declare("use N worker processes on the cluster (default: one per CPU)", min=1, metavar="N")


class JobsOptions(Options):
    """`--jobs` and `--journal`, for commands without a journal of their own."""

    jobs: int = declare("compute N results at a time (default %(default)s)", 8, min=1, metavar="N")
    journal: Path | None = declare("keep the results in this file of JSON lines, from which the same command "
                                   "continues; remove it when their code changes", metavar="FILE")  # fmt: skip


@contextlib.asynccontextmanager
async def work_of(
    options: ClusterOptions,
    make_work: Callable[[], AbstractAsyncContextManager[Callable[[Any], Awaitable[Any]]]],
    *,
    concurrency: int,
) -> AsyncIterator[Callable[[Any], Awaitable[Any]]]:
    """Yields the function that runs one job: on the cluster of the options, or in this process.

    Args:
        options: of the command.
        make_work: makes the function; pickles.
        concurrency: number of jobs that the caller runs at one time.

    Raises:
        ConfigError: `--workers` without `--ray`, or as `ray_workers`.
    """
    from verl_agentic.base.errors import ConfigError

    if options.ray is None:
        if options.workers is not None:
            raise ConfigError(f"--workers needs a cluster, got --workers {options.workers} alone; add --ray auto")
        async with make_work() as work:
            yield work
        return
    from verl_agentic.verl.extensions.cluster.ray_workers import ray_workers

    async with ray_workers(make_work, address=options.ray, workers=options.workers, concurrency=concurrency) as work:
        yield work
