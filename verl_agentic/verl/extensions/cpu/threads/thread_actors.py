"""Ray's actors as threads of one process.

A synchronous actor is a thread that runs its calls in order, or `max_concurrency` threads. An asynchronous actor is a
thread with an event loop. Each thread has its own context variables, as a process would.
"""

from __future__ import annotations

import asyncio
import contextvars
import pickle
import queue
import threading
import traceback
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from ray._private.async_compat import has_async_methods
from ray.exceptions import ActorDiedError, RayTaskError, TaskCancelledError

from verl_agentic.verl.extensions.cpu.threads.thread_objects import ObjectRef, PickledValue, Shared, pickle_value

_DEFAULT_CONCURRENCY = 1000
"""Ray's number of calls that an asynchronous actor runs at once."""
ADDRESS = "127.0.0.1"
_current_actor: contextvars.ContextVar[ThreadActor | None] = contextvars.ContextVar("current_actor", default=None)


def current_actor() -> ThreadActor | None:
    """Returns the actor whose call runs here; None in the driver."""
    return _current_actor.get()


class ThreadActor(Shared):
    """One actor. Its calls get arguments and return values as copies."""

    def __init__(self, cls: type, arguments: PickledValue, *, name: str, max_concurrency: int | None) -> None:
        """Starts the threads; the first one makes the object.

        Args:
            cls: class of the object.
            arguments: pair of positional and keyword arguments of the class.
            name: empty for an actor without a name.
            max_concurrency: number of calls that run at once; None for Ray's default.
        """
        self.cls, self.name, self.id = cls, name, ActorId()
        self._arguments = arguments
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._pending: set[ObjectRef] = set()
        self._object: Any = None
        self._is_async = has_async_methods(cls)
        self._concurrency = max_concurrency or (_DEFAULT_CONCURRENCY if self._is_async else 1)
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop() if self._is_async else None
        self._context = contextvars.Context()
        self.threads: list[threading.Thread] = []
        self._start_thread(self._run_actor)

    def call(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ObjectRef:
        """Starts a call and returns the reference of its result.

        Raises:
            TypeError: the arguments cannot be pickled.
        """
        call = _Call(self, method, pickle_value((args, kwargs)))
        with self._lock:
            if self._error is not None:
                call.reference.set_error(self._error)
                return call.reference
            self._pending.add(call.reference)
        call.reference.done.add_done_callback(lambda _: self._pending.discard(call.reference))
        if self._loop is None:
            self._calls.put(call.run)
        else:
            # A context of its own: else the call would see the variables of its caller.
            self._loop.call_soon_threadsafe(self._start_task, call, context=self._context.copy())
        return call.reference

    def kill(self, error: BaseException | None = None) -> None:
        """Makes all open and later calls fail, and ends the threads after the call that they run."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error or ActorDiedError()
        for reference in list(self._pending):
            reference.set_error(self._error)
        for _ in range(self._concurrency if self._loop is None else 0):
            self._calls.put(None)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop_loop)

    @property
    def object(self) -> Any:
        """Returns the object of the actor's class, in its own threads only."""
        return self._object

    def _start_thread(self, target: Callable[[], None]) -> None:
        # The name tells logs of errors which actor failed.
        name, context = f"ray::{self.cls.__name__}", self._context.copy()
        thread = threading.Thread(target=context.run, args=(target,), name=name, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _run_actor(self) -> None:
        self._context.run(_current_actor.set, self)
        _current_actor.set(self)
        if self._loop is not None:
            asyncio.set_event_loop(self._loop)
        try:
            args, kwargs = resolve(self._arguments)
            self._object = self.cls(*args, **kwargs)
        except BaseException as error:
            self.kill(ActorDiedError(task_error(error, f"{self.cls.__name__}.__init__", self)))
        if self._loop is None:
            for _ in range(self._concurrency - 1):
                self._start_thread(self._run_calls)
            self._run_calls()
        else:
            self._slots = asyncio.Semaphore(self._concurrency)
            self._tasks: set[asyncio.Task[None]] = set()
            self._loop.run_forever()
            self._loop.close()

    def _run_calls(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def _start_task(self, call: _Call) -> None:
        assert self._loop is not None
        task = self._loop.create_task(self._run_in_slot(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        loop = self._loop
        call.reference.cancel = lambda: loop.call_soon_threadsafe(task.cancel)

    async def _run_in_slot(self, call: _Call) -> None:
        async with self._slots:
            await call.run_async()

    def _stop_loop(self) -> None:
        assert self._loop is not None
        for task in self._tasks:
            task.cancel()
        self._loop.call_soon(self._loop.stop)


class _Call:
    def __init__(self, actor: ThreadActor, method: str, arguments: PickledValue) -> None:
        self._actor, self._method, self._arguments = actor, method, arguments
        self.reference = ObjectRef()

    def run(self) -> None:
        try:
            args, kwargs = resolve(self._arguments)
            self.reference.set_value(getattr(self._actor.object, self._method)(*args, **kwargs))
        except BaseException as error:
            self._report_error(error)

    async def run_async(self) -> None:
        try:
            args, kwargs = self._arguments.load()
            args = [await argument if isinstance(argument, ObjectRef) else argument for argument in args]
            kwargs = {
                name: await argument if isinstance(argument, ObjectRef) else argument
                for name, argument in kwargs.items()
            }
            value = getattr(self._actor.object, self._method)(*args, **kwargs)
            self.reference.set_value(await value if isinstance(value, Coroutine) else value)
        except asyncio.CancelledError:
            self.reference.set_error(TaskCancelledError())
            raise
        except BaseException as error:
            self._report_error(error)

    def _report_error(self, error: BaseException) -> None:
        if self.reference.done.done():
            return  # the actor was killed
        function = f"{self._actor.cls.__name__}.{self._method}"
        self.reference.set_error(task_error(error, function, self._actor))
        if isinstance(error, SystemExit):
            self._actor.kill()


class ActorId:
    """The id of an actor; the counterpart of `ray.ActorID`."""

    def __init__(self) -> None:
        self._hex = uuid.uuid4().hex

    def hex(self) -> str:
        """Returns the id."""
        return self._hex


class ActorHandle(Shared):
    """`handle.method.remote(...)`; the counterpart of `ray.actor.ActorHandle`."""

    def __init__(self, actor: ThreadActor) -> None:
        self._actor = actor
        self._actor_id = self._ray_actor_id = actor.id

    def __getattr__(self, name: str) -> ActorMethod:
        if not callable(getattr(self._actor.cls, name, None)):
            raise AttributeError(f"{self._actor.cls.__name__} has no method {name!r}")
        return ActorMethod(self._actor, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and other._actor is self._actor

    def __hash__(self) -> int:
        return hash(self._actor)

    def __repr__(self) -> str:
        return f"Actor({self._actor.cls.__name__}, {self._actor.id.hex()})"

    def __deepcopy__(self, _: Any) -> ActorHandle:
        return self


class ActorMethod:
    """A method of an actor."""

    def __init__(self, actor: ThreadActor, name: str) -> None:
        self._actor, self._name = actor, name

    def remote(self, *args: Any, **kwargs: Any) -> ObjectRef:
        """Starts a call."""
        return self._actor.call(self._name, args, kwargs)

    def options(self, **_: Any) -> ActorMethod:
        """Options of a call concern the schedules of a cluster."""
        return self


def resolve(arguments: PickledValue) -> tuple[list[Any], dict[str, Any]]:
    """Returns positional and keyword arguments; references among them are replaced by their values."""
    args, kwargs = arguments.load()
    return [_resolve_argument(argument) for argument in args], {
        name: _resolve_argument(argument) for name, argument in kwargs.items()
    }


def _resolve_argument(argument: Any) -> Any:
    return argument.get() if isinstance(argument, ObjectRef) else argument


def task_error(error: BaseException, function: str, actor: ThreadActor | None = None) -> RayTaskError:
    """Returns Ray's exception for a call that raised `error`."""
    cause: Any = error.cause if isinstance(error, RayTaskError) else error
    if not isinstance(cause, Exception):  # it would end the thread that waits for the result
        cause = RuntimeError(repr(error)).with_traceback(error.__traceback__)
    name = f"ray::{function}()"
    ray_error = RayTaskError(
        name,
        "".join(traceback.format_exception(error)),
        cause,
        proctitle=name,
        # Ray looks for the address of this node where none is given, which can take seconds without a network.
        ip=ADDRESS,
        actor_repr=actor and actor.cls.__name__,
        actor_id=actor and actor.id.hex(),
    )
    ray_error.cause = pickle.loads(pickle.dumps(ray_error.cause))  # without a traceback, as from another process
    return ray_error
