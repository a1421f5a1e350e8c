"""A group of sandboxes with a private network: the machines of one task, such as compiler, service and scanner."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

from verl_agentic.base.errors import ConfigError
from verl_agentic.sandbox.interface import Sandbox, Tree
from verl_agentic.sandbox.pools.backends import make_backend

MAX_SANDBOXES = 16
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")  # a number would be an address


@contextlib.asynccontextmanager
async def sandbox_group(
    names: Sequence[str],
    *,
    backend: Literal["namespaces", "docker"] = "namespaces",
    trees: Mapping[str, Sequence[Tree]] | None = None,
    images: Mapping[str, str] | None = None,
    **options: Any,
) -> AsyncIterator[Mapping[str, Sandbox]]:
    """Provides sandboxes by name for a block; each has its own files and processes.

    Executions whose limits have `network=True` share one network, which has only a loopback device and is separate from
    those of this machine and of other groups. In every sandbox, the name of a sandbox is an address: a service binds to
    its own name and a port from 1024 on, and the others connect to that name. Nothing enforces which sandbox binds to a
    name. With `docker`, abstract Unix sockets belong to the network, too, and executions without it reach them.

    Args:
        names: of the sandboxes, 1 to 16: lower-case letters, digits and hyphens, beginning with a letter.
        backend: `namespaces` or `docker`.
        trees: name -> folders that the sandbox begins with.
        images: name -> image of the container, for `docker`.
        options: fields of the backend's configuration.

    Raises:
        ConfigError: a name cannot be that of a host, a tree or image has no sandbox, or the backend has no such group.
        SandboxError: a sandbox could not be made.
    """
    trees, images = trees or {}, images or {}
    _check_names(names, {*trees, *images})
    if backend not in ("namespaces", "docker"):
        raise ConfigError(f"a group needs the backend namespaces or docker, got {backend!r}; choose one of them")
    maker = make_backend(backend, hosts=list(names), **options)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(maker.close)
        await maker.start()
        sandboxes: dict[str, Sandbox] = {}
        for name in names:
            sandboxes[name] = await maker.create(trees=trees.get(name, ()), image=images.get(name))
            stack.push_async_callback(sandboxes[name].close)
        yield sandboxes


def _check_names(names: Sequence[str], used: set[str]) -> None:
    is_named = [_NAME.fullmatch(name) is not None for name in names]
    if not 1 <= len(names) <= MAX_SANDBOXES or len({*names}) < len(names) or not all(is_named) or "localhost" in names:
        raise ConfigError(
            f"a group has 1 to {MAX_SANDBOXES} different names of lower-case letters, digits and hyphens, which begin "
            f"with a letter, got {names}; choose other names"
        )
    if unknown := used - {*names}:
        raise ConfigError(f"trees and images are of sandboxes of the group, got {sorted(unknown)}; name one of {names}")
