"""An environment of unknown origin whose code runs in a sandbox, as a package of this process.

This process sends calls and reads answers. It imports nothing of the environment, so the environment's code cannot
change what judges it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import EnvError, EnvUnavailableError, boundary
from verl_agentic.base.types import Message
from verl_agentic.bridges.remote.link import result_of
from verl_agentic.bridges.remote.remote_env import EnvClientConfig, RemoteEnv
from verl_agentic.bridges.remote.wire import dumps, to_messages, to_row
from verl_agentic.data.making import sandboxed_env
from verl_agentic.episode.env_package import EnvPackage
from verl_agentic.sandbox.interface import Backend, Limits, SandboxSession

_T = TypeVar("_T")
_NO_VERDICT = "no verdict: the code ended the validation"


class EnvBox:
    """A session in a sandbox that answers the calls of one environment. It has an event loop in a thread of its own,
    because rows and solutions are functions that wait."""

    def __init__(self, backend: Backend, *, limits: Limits, packages: Sequence[str]) -> None:
        """Starts nothing yet.

        Args:
            backend: shows `packages`.
            limits: of the session; `wall_s` is that of one call.
            packages: folders of Python packages, as the sandbox sees them.
        """
        self._backend, self._limits, self._packages = backend, limits, list(packages)
        self._session: SandboxSession | None = None
        self._calls: list[tuple[Mapping[str, Any], asyncio.Future[Any]]] = []
        self._lock = asyncio.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="env-box", daemon=True)
        self._thread.start()

    async def start(self, name: str, files: Mapping[str, str]) -> None:
        """Loads the package of these files. Raises EnvUnavailableError if it does not run."""
        await self._run_in_thread(self._start_session(name, files))

    async def call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer to a call. Raises EnvUnavailableError if the code ended the session or took too long."""
        return await self._run_in_thread(self._answer_call(call))

    def ask(self, op: str, data: Mapping[str, Any]) -> Any:
        """Waits for the result of a call of the package. Raises AgenticError for a failure."""
        call = self._answer_call({"op": op, "session": "", "data": data})
        return result_of(asyncio.run_coroutine_threadsafe(call, self._loop).result())

    async def close(self) -> None:
        """Ends the sandbox and the thread."""
        await self._run_in_thread(self._backend.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    def keep(self, session: str) -> None:
        """Does nothing: sessions have no lease here."""

    drop = keep

    async def _run_in_thread(self, work: Coroutine[Any, Any, _T]) -> _T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _start_session(self, name: str, files: Mapping[str, str]) -> None:
        await self._backend.start()
        sandbox = await self._backend.create()
        await sandbox.put_tree({path: text.encode() for path, text in files.items()}, at=name)
        self._session = await sandbox.open_session("python", limits=self._limits)
        source = inspect.getsource(sandboxed_env)
        await self._run_code(f"{source}\nbegin({'./' + name!r}, {self._packages!r})\n")

    async def _answer_call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer to a call, which goes to the sandbox together with others of this moment."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._calls.append((call, future))
        if len(self._calls) == 1:
            async with self._lock:
                waiting, self._calls = self._calls, []
                await self._answer_all(waiting)
        return await future

    async def _answer_all(self, waiting: Sequence[tuple[Mapping[str, Any], asyncio.Future[Any]]]) -> None:
        failure: EnvError | None = None
        answers: Any = ()
        try:
            answers = await self._run_code(f"answer({dumps([call for call, _ in waiting]).decode()!r})")
        except EnvError as cause:
            failure = cause
        if failure is None and (not isinstance(answers, list) or len(answers) != len(waiting)):
            failure = EnvUnavailableError(_NO_VERDICT)
        for index, (_, future) in enumerate(waiting):
            if future.done():  # its caller has gone
                continue
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(answers[index] if isinstance(answers[index], dict) else {})

    async def _run_code(self, text: str) -> Any:
        """Returns the last line of what the session prints."""
        assert self._session is not None
        result = await self._session.run(text, wall_s=self._limits.wall_s)
        if result.timed_out:
            raise EnvUnavailableError(f"no result in time: it ran for more than {self._limits.wall_s:g} s")
        if result.signal_name is not None:
            raise EnvUnavailableError(_NO_VERDICT)
        if not result.ok:
            lines = result.stderr.strip().splitlines() or [f"exit code {result.exit_code}"]
            raise EnvUnavailableError(f"it does not run: {lines[-1][:300]}")
        try:
            return json.loads(result.stdout.strip().rpartition("\n")[2])
        except (ValueError, RecursionError) as cause:
            raise EnvUnavailableError(_NO_VERDICT) from cause


class _BoxedEnv(RemoteEnv):
    """An environment in a box."""

    def __init__(self, row: EnvRow, *, box: EnvBox) -> None:
        super().__init__(row, config=EnvClientConfig(urls=()))
        self._box: Any = box

    async def _open_session(self) -> Any:
        self._link, self._session, self._number = self._box, uuid.uuid4().hex, 0
        return result_of(await self._box.call(self._number_call("start", self._data)))


def boxed_package(box: EnvBox, *, env_id: str, folder: Path) -> EnvPackage:
    """Returns the package of an environment in a box.

    Args:
        box: has started.
        env_id: name of the environment.
        folder: of this machine, with the examples.
    """

    def make_rows(*, split: str, count: int, seed: int) -> list[EnvRow]:
        rows = box.ask("rows", {"split": split, "count": count, "seed": seed})
        with boundary(EnvError, "reading the rows of an environment"):
            return [to_row(row) for row in rows]

    def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
        def next_message(messages: Sequence[Message]) -> Message:
            message = box.ask("gold", {"row": row, "messages": list(messages)})
            with boundary(EnvError, "reading the solution of an environment"):
                return to_messages([message])[0]

        return next_message

    return EnvPackage(
        env_id=env_id,
        folder=folder,
        make_env=lambda row: _BoxedEnv(row, box=box),
        make_rows=make_rows,
        gold=gold,
        demonstrator=None,
    )
