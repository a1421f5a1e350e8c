"""A repository in a sandbox: commands, a shell, files, and the changes of an episode."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl_agentic import ConfigError, EnvError
from verl_agentic.sandbox.interface import Command, CommandResult, Limits, Sandbox, SandboxSession, TakenTree, Tree
from verl_agentic.swe.grading.repo_task import read_tree
from verl_agentic.swe.grading.run_tests import IMAGE_ENV, IMAGE_FOLDER

FOLDER = "testbed"
_SITE = ".site"
_MAX_BYTES, _MAX_FILES = 64 * 2**20, 20_000
BEGIN = (
    "git init -q . && git add -A && git -c user.name=base -c user.email=base@localhost commit -q -m base "
    "&& git config user.name agent && git config user.email agent@localhost && pwd"
)
_START_S = 60.0


class RepoBox:
    """The sandbox of one episode, with the repository as a fresh git repository of one commit."""

    def __init__(
        self,
        pool: Any,
        *,
        base: Path | None,
        site: Path | None = None,
        image: str = "",
        limits: Limits,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Takes a pool that leases sandboxes.

        Args:
            pool: of the sandboxes.
            base: the base tree; None for that of the image.
            site: folder of installed test requirements, if any.
            image: image with the repository in `/testbed` and its requirements, for the backend `docker`.
            limits: of commands.
            env: additional environment of commands.
        """
        self._env = env or {}
        self._pool, self._base, self._site, self._image, self._limits = pool, base, site, image, limits
        self._lease = AsyncExitStack()
        self._sandbox: Sandbox | None = None
        self._shell: SandboxSession | None = None
        self.root = ""
        """Path of the repository inside."""
        self.is_of_image = base is None
        """True if the base tree is that of the image."""
        self.begin: Mapping[str, bytes] = {}
        """Files of the base tree, after `open`."""

    async def open(self) -> None:
        """Leases the sandbox and makes the repository. Raises EnvError if git fails."""
        trees = [] if self._base is None else [Tree(source=self._base, at=FOLDER)]
        if self._site is not None:
            trees.append(Tree(source=self._site, at=_SITE, read_only=True))
        self._sandbox = await self._lease.enter_async_context(self._pool.lease(trees=trees, image=self._image or None))
        if self._base is None:
            await self._copy_from_image()
        begun = await self._run_argv(["bash", "-c", f"cd {FOLDER} && {BEGIN}"], wall_s=_START_S)
        if not begun.ok:
            raise EnvError(
                f"the repository could not be made, got {begun.stderr[-300:]!r}; if git is missing in a container, set "
                "env_config.image to an image that has it"
            )
        self.root = begun.stdout.strip().splitlines()[-1]
        self.begin = (
            (await self.taken()).files if self._base is None else await asyncio.to_thread(read_tree, self._base)
        )

    async def _copy_from_image(self) -> None:
        """Copies the repository of the image without its history, which may have the solution."""
        pack = f"tar -C {IMAGE_FOLDER} --exclude=./.git --exclude=./.venv -cf - ."
        copy = f"mkdir {FOLDER} && {pack} | tar -C {FOLDER} -xf - && chmod -R u+rwX {FOLDER}"
        result = await self._run_argv(["bash", "-o", "pipefail", "-c", copy], wall_s=_START_S)
        if not result.ok:
            raise EnvError(
                f"the image's {IMAGE_FOLDER} could not be copied, got {result.stderr[-300:]!r}; raise disk_mb?"
            )

    async def command(self, text: str, *arguments: str, wall_s: float) -> CommandResult:
        """Runs a command line in a new shell in the repository; `$1` is the first argument."""
        return await self._run_argv(["bash", "-c", f"cd {FOLDER} || exit\n{text}", "bash", *arguments], wall_s=wall_s)

    async def shell(self, text: str, *, wall_s: float) -> CommandResult:
        """Runs a command line in the shell of the episode; a new one is opened if it has ended."""
        if self._shell is None:
            self._shell = await self._require_sandbox().open_session("bash", limits=self._limits)
            settings = " ".join(f"{name}={value}" for name, value in self._build_env().items())
            await self._shell.run(f"cd {FOLDER}; export {settings}", wall_s=_START_S)
        result = await self._shell.run(text, wall_s=wall_s)
        if result.timed_out or result.oom or result.exit_code < 0:
            session, self._shell = self._shell, None
            await session.close()
        return result

    async def read(self, path: str) -> bytes | None:
        """Returns the content of a regular file, or None."""
        place = self._resolve_path(path)
        result = await self._run_argv(["true"], wall_s=_START_S, outputs=[place])
        return result.files.get(place)

    async def write(self, path: str, content: bytes) -> None:
        """Writes a file. Raises ConfigError if its path leaves the repository or goes through a link."""
        await self._require_sandbox().put_tree({self._resolve_path(path): content})

    async def taken(self) -> TakenTree:
        """Returns all files of the repository; links are not followed, and git's folder is left out."""
        tree = await self._require_sandbox().take_tree(FOLDER, max_bytes=_MAX_BYTES, max_files=_MAX_FILES)
        is_git = (".git/", ".git")
        files = {path: content for path, content in tree.files.items() if not path.startswith(is_git[0])}
        skipped = {path: why for path, why in tree.skipped.items() if not path.startswith(is_git)}
        return replace(tree, files=files, skipped=skipped)

    async def close(self) -> None:
        """Ends the sandbox."""
        self._sandbox = self._shell = None
        await self._lease.aclose()

    def _resolve_path(self, path: str) -> str:
        """Returns a path below the working folder. Raises ConfigError if it leaves the repository."""
        full = posixpath.normpath(posixpath.join(self.root, path))
        if not full.startswith(f"{self.root}/"):
            raise ConfigError(f"the path must lie in {self.root}, got {path!r}; give the path of a file in it")
        return FOLDER + full.removeprefix(self.root)

    def _build_env(self) -> dict[str, str]:
        folder = posixpath.dirname(self.root) if self.root else "."
        site = [] if self._site is None else [f"{folder}/{_SITE}"]
        paths = [f"{self.root}/src", self.root, *site] if self.root else site
        settings = {"PYTHONPATH": ":".join(paths), "PYTHONDONTWRITEBYTECODE": "1", "GIT_CONFIG_NOSYSTEM": "1"}
        return {**settings, **(IMAGE_ENV if self._image else {}), **self._env}

    def _require_sandbox(self) -> Sandbox:
        if self._sandbox is None:
            raise EnvError("the repository's sandbox is closed, got a call to it; open it first")
        return self._sandbox

    async def _run_argv(
        self, argv: list[str], *, wall_s: float, outputs: tuple[str, ...] | list[str] = ()
    ) -> CommandResult:
        command = Command(argv=argv, env=self._build_env(), outputs=outputs)
        return await self._require_sandbox().run(command, limits=replace(self._limits, wall_s=wall_s))
