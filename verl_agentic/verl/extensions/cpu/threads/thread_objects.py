"""Objects and references of actors that are threads of one process.

A value is pickled when it is passed, as for another process. So no actor sees a later change of an argument, and what
cannot be pickled fails here as it would on a cluster. References and actor handles inside of a value stay themselves.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import io
import itertools
import pickle
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from ray import cloudpickle
from ray.exceptions import RayTaskError

_IMMUTABLE = (type(None), bool, int, float, str, bytes)
_numbers = itertools.count()
"""Ids of references; random ones would cost more than the rest of a reference."""


class Shared:
    """An object that stays itself when a value that holds it is passed."""


@dataclass(frozen=True)
class PickledValue:
    """A value as bytes; the buffers of its arrays are read-only copies."""

    data: Any
    """The bytes, or the value itself if it is immutable."""
    buffers: list[bytes] = field(default_factory=list)
    shared: list[Shared] = field(default_factory=list)
    is_plain: bool = False

    def load(self) -> Any:
        """Returns a new copy of the value."""
        if self.is_plain:
            return self.data
        reader = pickle.Unpickler(io.BytesIO(self.data), buffers=self.buffers)
        reader.persistent_load = self.shared.__getitem__  # type: ignore[method-assign]
        return reader.load()


class _Pickler(cloudpickle.Pickler):
    def __init__(self, stream: io.BytesIO, buffers: list[bytes]) -> None:
        super().__init__(stream, protocol=5, buffer_callback=lambda buffer: buffers.append(bytes(buffer.raw())))
        self.shared: list[Shared] = []

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, Shared):
            return None
        self.shared.append(obj)
        return len(self.shared) - 1


def pickle_value(value: Any) -> PickledValue:
    """Returns a copy of the value that later changes do not reach."""
    if isinstance(value, _IMMUTABLE):
        return PickledValue(value, is_plain=True)
    stream, buffers = io.BytesIO(), []
    pickler = _Pickler(stream, buffers)
    pickler.dump(value)
    return PickledValue(stream.getvalue(), buffers, pickler.shared)


class ObjectRef(Shared):
    """A value that an actor computes, or that was put; the counterpart of `ray.ObjectRef`."""

    def __init__(self) -> None:
        self.done: concurrent.futures.Future[PickledValue | BaseException] = concurrent.futures.Future()
        """Ends with the value, or with the exception that `get` raises."""
        self.cancel: Callable[[], object] = lambda: None
        """Cancels the call that computes the value; does nothing where that is not possible."""
        self._id = f"{next(_numbers):032x}"

    def set_value(self, value: Any) -> None:
        """Stores the value, unless the reference has an outcome."""
        try:
            self._set_outcome(pickle_value(value))
        except Exception as error:
            self._set_outcome(error)

    def set_error(self, error: BaseException) -> None:
        """Stores the exception that `get` raises, unless the reference has an outcome."""
        self._set_outcome(error)

    def get(self, timeout_s: float | None = None) -> Any:
        """Waits for the value and returns a new copy. Raises TimeoutError if there is none yet."""
        outcome = self.done.result(timeout_s)
        if isinstance(outcome, RayTaskError):
            raise outcome.as_instanceof_cause()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome.load()

    def hex(self) -> str:
        """Returns the id."""
        return self._id

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.done.done():
            # Shielded: others may wait for the value, too.
            yield from asyncio.shield(asyncio.wrap_future(self.done)).__await__()
        return self.get()

    def _set_outcome(self, outcome: PickledValue | BaseException) -> None:
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            self.done.set_result(outcome)
