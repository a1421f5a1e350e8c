"""The environment `appworld`: an episode on an environment server of AppWorld, with one tool, `python`.

Verified against the source of appworld 0.1.3.post1 (`serve/environment.py`, `environment.py`, `evaluator.py`). Its data
was not at hand. `POST /initialize`, `/execute`, `/task_completed`, `/evaluate` and `/close` take `task_id` and return
`{"output": ...}`. A server has one world at a time, and freezes the clock of its process. So the package is never
imported here, and every episode has a server of its own for as long as it lasts.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import random
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.errors import ConfigError, DataError, EnvBusyError, EnvError, boundary
from verl_agentic.base.paths import private_folder
from verl_agentic.base.tools.function_tool import tool
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Message, Reward
from verl_agentic.web.http_service import Attempts, HttpService

URLS_VARIABLE, DATA_VARIABLE = "VERL_AGENTIC_APPWORLD_URLS", "APPWORLD_ROOT"
_SPLITS = {
    "train": ("train",),
    "test": ("dev",),
    "test_normal": ("test_normal",),
    "test_challenge": ("test_challenge",),
}
_PAUSE_S = 0.2
_PROMPT = (
    "You solve tasks of {first_name} {last_name} ({email}, {phone_number}) by Python code over the APIs of apps, as "
    "apis.APP.API(...). Variables stay between calls. apis.api_docs.show_app_descriptions(), "
    "apis.api_docs.show_api_descriptions(app_name=...) and apis.api_docs.show_api_doc(app_name=..., api_name=...) "
    "describe them, and apis.supervisor has the passwords. It is {datetime}. When the task is done, call "
    "apis.supervisor.complete_task(), with answer=... if it asks for one."
)
logger = logging.getLogger(__name__)


class AppWorldEnv(ToolEnv):
    """The client's half of a world."""

    def __init__(self, row: EnvRow, *, urls: Sequence[str], wait_s: float, timeout_s: float) -> None:
        super().__init__(row, [tool(timeout_s=timeout_s)(self.python)], max_parallel_calls=1)
        self._urls, self._wait_s = urls, wait_s
        self._task_id: str = row.extra["task_id"]
        self._lease: IO[str] | None = None
        self._server: HttpService | None = None

    async def start(self) -> tuple[Message, ...]:
        """Waits for a free server, makes the world of the task, and returns its instruction."""
        url, self._lease = await _lease_of(self._urls, wait_s=self._wait_s)
        self._server = HttpService(url, name="AppWorld's server", extra="appworld")
        task = await self._call_server("initialize", experiment_name=f"verl_agentic_{uuid.uuid4().hex}")
        with boundary(EnvError, "reading the task of AppWorld"):
            about = _PROMPT.format(**task["supervisor"], datetime=task["datetime"])
            return (Message("system", about), Message("user", task["instruction"]))

    async def python(self, code: str) -> str:
        """Runs Python code in the session of the task and returns what it prints.

        Args:
            code: the program.
        """
        output = await self._call_server("execute", code=code)
        self.is_done = bool(await self._call_server("task_completed"))
        return str(output)

    async def score(self, transcript: Transcript) -> Reward:
        """Returns 1 if all tests of the task's final state pass; their share is in the info."""
        verdict = await self._call_server("evaluate", suppress_errors=True)
        with boundary(EnvError, "reading the verdict of AppWorld"):
            passed, failed = len(verdict["passes"]), len(verdict["failures"])
            solved = bool(verdict["success"]) and not failed
            share = passed / max(1, passed + failed)
            return Reward(float(solved), info={"tests_passed": share}, details={"failures": verdict["failures"]})

    async def close(self) -> None:
        """Closes the world, and leaves the server to others."""
        try:
            if self._server is not None:
                await self._call_server("close")
        except EnvError as cause:
            logger.warning("a world of AppWorld is left to the next episode's initialize: %s", cause)
        finally:
            if self._server is not None:
                await self._server.close()
            if self._lease is not None:
                self._lease.close()

    async def _call_server(self, method: str, **arguments: Any) -> Any:
        if self._server is None:
            raise EnvError("an AppWorld environment was not started, got a call; start it")
        answer = await self._server.ask("POST", f"/{method}", json={"task_id": self._task_id, **arguments})
        with boundary(EnvError, f"reading the answer of {self._server.name}"):
            return answer["output"]


async def _lease_of(urls: Sequence[str], *, wait_s: float) -> tuple[str, IO[str]]:
    """Returns a server that no episode of this machine uses, and its lock, which ends with the file or the process.

    Raises:
        EnvBusyError: all of them stayed in use.
    """
    async for _ in Attempts(first_s=_PAUSE_S, max_s=_PAUSE_S, within_s=wait_s):
        for url in random.sample(urls, len(urls)):
            name = hashlib.sha256(url.encode()).hexdigest()[:16]
            path = private_folder("appworld") / f"{name}.lock"
            lock = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return url, lock
            except OSError:
                lock.close()
    raise EnvBusyError(f"all {len(urls)} servers of AppWorld are in use, got one more episode; start more servers")


def make_env(
    row: EnvRow, *, urls: str | Sequence[str] = "", wait_s: float = 90.0, timeout_s: float = 100.0
) -> AppWorldEnv:
    """Returns the environment of one episode.

    Args:
        row: `extra["task_id"]` names the task.
        urls: of environment servers, each used by one episode at a time; default: those in
            `VERL_AGENTIC_APPWORLD_URLS`, with spaces between. Give trainers on different machines different servers.
        wait_s: time to get a server, in seconds.
        timeout_s: deadline of one program, in seconds.

    Raises:
        ConfigError: there is no url.
        DataError: the row names no task.
    """
    raw_urls = urls or os.environ.get(URLS_VARIABLE, "")
    addresses = raw_urls.split() if isinstance(raw_urls, str) else list(raw_urls)
    if not addresses or not all(url.startswith(("http://", "https://")) for url in addresses):
        raise ConfigError(f"AppWorld needs the urls of its servers, got {raw_urls!r}; set urls or {URLS_VARIABLE}")
    if not isinstance(row.extra.get("task_id"), str):
        raise DataError(f"a row must name its task_id, got {dict(row.extra)}; make rows with make_rows")
    return AppWorldEnv(row, urls=addresses, wait_s=wait_s, timeout_s=timeout_s)


def make_rows(*, split: str, count: int, seed: int, root: str = "") -> list[EnvRow]:
    """Returns rows of different tasks of AppWorld's data.

    Args:
        split: `train`, `test` (AppWorld's `dev`), `test_normal` or `test_challenge`.
        count: number of rows.
        seed: of the choice.
        root: folder that has AppWorld's `data`; default: that in `APPWORLD_ROOT`, else the working directory.

    Raises:
        ConfigError: an unknown split, the data is missing, or there are too few tasks.
    """
    if split not in _SPLITS:
        raise ConfigError(f"split must be one of {sorted(_SPLITS)}, got {split!r}")
    folder = Path(root or os.environ.get(DATA_VARIABLE, ".")) / "data" / "datasets"
    files = [folder / f"{name}.txt" for name in _SPLITS[split]]
    if missing := [str(file) for file in files if not file.is_file()]:
        raise ConfigError(f"AppWorld's data is missing, got no {missing}; run `appworld download data`, or set root")
    # A line may have a tag behind the name of its task.
    names = [line.split()[0].split(":")[0] for file in files for line in file.read_text().splitlines() if line.strip()]
    if count > len(names):
        raise ConfigError(f"AppWorld has {len(names)} tasks for {split}, got count={count}; lower it")
    chosen = random.Random(f"{split}/{seed}").sample(names, count)
    prompt = (Message("user", "The task comes from AppWorld's server."),)
    return [EnvRow(prompt=prompt, data_source="appworld", extra={"task_id": name}) for name in chosen]
