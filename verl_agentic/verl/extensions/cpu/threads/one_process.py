"""Patches verl: `placement_group`, `sort_placement_group_by_node_ip` and `_check_resource_available`; and `ray.init`.

A run on one CPU rank is one process, in which Ray's actors are threads. A run has nine actors. As processes, each has
an interpreter with torch and verl, and a turn of an episode passes through three of them. That costs more time and
memory than the training of a small model.

Ray has a seam for another implementation of its functions: the client mode. `ray.init(address="threads")` puts
`ThreadCluster` there. `ray_kwargs.ray_init.address=local` makes a run start Ray's processes.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import itertools
import os
import time
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import psutil
import ray
import ray.util.client
import transfer_queue.client
import transfer_queue.storage.simple_storage
from ray._private import client_mode_hook
from ray.exceptions import GetTimeoutError, RayTaskError
from verl.single_controller.ray import base

from verl_agentic.verl.extensions.cpu.cpu_features import THREADS
from verl_agentic.verl.extensions.cpu.threads.thread_actors import (
    ADDRESS,
    ActorHandle,
    ThreadActor,
    current_actor,
    resolve,
    task_error,
)
from verl_agentic.verl.extensions.cpu.threads.thread_objects import ObjectRef, pickle_value
from verl_agentic.verl.patching import wrap

_NODE_ID = "0" * 56
_JOIN_S = 5.0
"""Maximum time in which the threads of all actors end."""


class ThreadCluster:
    """The functions of `ray` that verl calls. One of its own for each `ray.init`."""

    def __init__(self, resources: Mapping[str, float]) -> None:
        """Takes logical resources, which nothing counts."""
        self._resources = dict(resources)
        self._actors: list[ThreadActor] = []
        self._named: dict[tuple[str, str], ThreadActor] = {}

    def __getattr__(self, name: str) -> Any:
        # Ray calls this method even for attributes that exist.
        try:
            return object.__getattribute__(self, name)
        except AttributeError:
            raise AttributeError(
                f"a run in one process has no ray.{name}; add ray_kwargs.ray_init.address=local to start Ray"
            ) from None

    def is_initialized(self) -> bool:
        return True

    def get(self, refs: Any, *, timeout: float | None = None) -> Any:
        """Returns the value of a reference, or a list of values. Raises GetTimeoutError after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            if isinstance(refs, ObjectRef):
                return refs.get(timeout)
            return [ref.get(None if deadline is None else max(0.0, deadline - time.monotonic())) for ref in refs]
        except concurrent.futures.TimeoutError as error:
            if isinstance(error, RayTaskError):  # the call itself raised it
                raise
            raise GetTimeoutError(f"no value after {timeout} s") from None

    def put(self, value: Any, **_: Any) -> ObjectRef:
        reference = ObjectRef()
        reference.set_value(value)
        return reference

    def wait(
        self, refs: Sequence[ObjectRef], *, num_returns: int = 1, timeout: float | None = None, **_: Any
    ) -> tuple[list[ObjectRef], list[ObjectRef]]:
        """Returns up to `num_returns` references that have a value after at most `timeout` seconds, and the others."""
        deadline = None if timeout is None else time.monotonic() + timeout
        waiting = {ref.done for ref in refs}
        ended_futures: set[Any] = {future for future in waiting if future.done()}
        while len(ended_futures) < min(num_returns, len(waiting)):
            remaining_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            first = concurrent.futures.FIRST_COMPLETED
            ended = concurrent.futures.wait(waiting - ended_futures, remaining_s, return_when=first).done
            if not ended:
                break
            ended_futures |= ended
        ready = [ref for ref in refs if ref.done in ended_futures][:num_returns]
        return ready, [ref for ref in refs if ref not in ready]

    def kill(self, actor: ActorHandle, *, no_restart: bool = True) -> None:
        actor._actor.kill()
        self._named = {
            name: named_actor for name, named_actor in self._named.items() if named_actor is not actor._actor
        }

    def cancel(self, ref: ObjectRef, **_: Any) -> None:
        ref.cancel()

    def get_actor(self, name: str, namespace: str | None = None) -> ActorHandle:
        """Returns the actor of a name. Raises ValueError if there is none."""
        if (namespace or "", name) not in self._named:
            raise ValueError(f"no actor has the name {name!r} in the namespace {namespace or ''!r}")
        return ActorHandle(self._named[namespace or "", name])

    def list_named_actors(self, all_namespaces: bool = False) -> list[Any]:
        if all_namespaces:
            return [{"name": name, "namespace": namespace} for namespace, name in self._named]
        return [name for namespace, name in self._named if not namespace]

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": _NODE_ID, "Alive": True, "Resources": dict(self._resources), "NodeManagerAddress": ADDRESS}]

    def cluster_resources(self) -> dict[str, float]:
        return dict(self._resources)

    available_resources = cluster_resources

    def get_gpu_ids(self) -> list[int]:
        return []

    def get_runtime_context(self) -> RuntimeContext:
        return RuntimeContext(self)

    def create_actor(self, cls: type, args: Sequence[Any], kwargs: Mapping[str, Any], **options: Any) -> ActorHandle:
        """Starts an actor. Raises ValueError if its name is taken."""
        os.environ.update((options.get("runtime_env") or {}).get("env_vars") or {})
        key = (options.get("namespace") or "", options.get("name") or "")
        if key in self._named:
            raise ValueError(f"an actor has the name {key[1]!r} in the namespace {key[0]!r} already")
        arguments = pickle_value((list(args), dict(kwargs)))
        concurrency = options.get("max_concurrency")
        actor = ThreadActor(cls, arguments, name=key[1], max_concurrency=concurrency)
        self._actors.append(actor)
        if key[1]:
            self._named[key] = actor
        return ActorHandle(actor)

    def run_task(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ObjectRef:
        """Runs a remote function here and now."""
        reference = ObjectRef()
        try:
            args, kwargs = resolve(pickle_value((list(args), dict(kwargs))))
            reference.set_value(function(*args, **kwargs))
        except Exception as error:
            reference.set_error(task_error(error, getattr(function, "__name__", "function")))
        return reference

    def close(self) -> None:
        """Ends all actors."""
        for actor in self._actors:
            actor.kill()
        deadline = time.monotonic() + _JOIN_S
        for thread in itertools.chain.from_iterable(actor.threads for actor in self._actors):
            thread.join(max(0.0, deadline - time.monotonic()))

    # What Ray's client mode calls for `ActorClass.remote` and `RemoteFunction.remote`.

    def _converted_key_exists(self, key: Any) -> bool:
        return False

    def _convert_actor(self, actor_class: Any) -> Any:
        cls = actor_class.__ray_metadata__.modified_class
        return SimpleNamespace(_remote=lambda args, kwargs, **options: self.create_actor(cls, args, kwargs, **options))

    def _convert_function(self, remote_function: Any) -> Any:
        function = remote_function._function
        return SimpleNamespace(_remote=lambda args, kwargs, **_: self.run_task(function, args, kwargs))

    def _get_converted(self, key: Any) -> Any:
        return key


class RuntimeContext:
    """Names the node, the job and the actor of the current call, as Ray's class of that name does."""

    namespace = ""

    def __init__(self, cluster: ThreadCluster) -> None:
        self._cluster, self._actor = cluster, current_actor()

    def get_node_id(self) -> str:
        return _NODE_ID

    def get_job_id(self) -> str:
        return THREADS

    def get_actor_id(self) -> str | None:
        return self._actor.id.hex() if self._actor else None

    def get_actor_name(self) -> str | None:
        return self._actor.name if self._actor else None

    def get_task_id(self) -> str | None:
        return None

    def get_assigned_resources(self) -> dict[str, float]:
        return {"CPU": float(os.cpu_count() or 1)}

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        return {"GPU": ["0"]}

    @property
    def current_actor(self) -> ActorHandle:
        if self._actor is None:
            raise RuntimeError("the driver is no actor")
        return ActorHandle(self._actor)


class PlacementGroup:
    """Holds a bundle for each rank, as Ray's class of that name does."""

    id = _NODE_ID

    def __init__(self, bundles: Sequence[Mapping[str, float]], **_: Any) -> None:
        self.bundle_specs = list(bundles)
        self.bundle_count = len(self.bundle_specs)

    def ready(self) -> ObjectRef:
        reference = ObjectRef()
        reference.set_value(True)
        return reference


_cluster: ThreadCluster | None = None
_ORIGINALS = ray.util.client._default_context, ray.ObjectRef


@wrap(ray, "init")
def start_threads(init: Any, *args: Any, **kwargs: Any) -> Any:
    """Puts a `ThreadCluster` behind Ray's functions if the address is `threads`."""
    global _cluster
    if kwargs.get("address") != THREADS:
        return init(*args, **kwargs)
    os.environ.update((kwargs.get("runtime_env") or {}).get("env_vars") or {})
    counts = {"CPU": kwargs.get("num_cpus"), "GPU": kwargs.get("num_gpus")}
    module: Any
    for module in (transfer_queue.client, transfer_queue.storage.simple_storage):
        # All threads share torch's setting. The default of 8 is cut to the cores anyway, with a warning at every call.
        module.TQ_NUM_THREADS = psutil.cpu_count(logical=False) or 1
    _cluster = ThreadCluster({name: float(count or 1) for name, count in counts.items()})
    _put_behind_ray(_cluster, ObjectRef)
    client_mode_hook._explicitly_enable_client_mode()
    return None


@wrap(ray, "shutdown")
def stop_threads(shutdown: Any, *args: Any, **kwargs: Any) -> None:
    """Ends the threads of a `ThreadCluster`; Ray itself otherwise."""
    global _cluster
    if _cluster is None:
        return shutdown(*args, **kwargs)
    client_mode_hook._explicitly_disable_client_mode()
    _cluster.close()
    _cluster = None
    _put_behind_ray(*_ORIGINALS)
    return None


def _put_behind_ray(context: Any, reference: type) -> None:
    ray.ObjectRef = reference  # verl asks for the type of results
    # Threads that have not used Ray yet take the default; this one may have another.
    ray.util.client._default_context = context
    ray.util.client.ray.set_context(context)


@wrap(base, "placement_group")
def make_placement_group(placement_group: Any, bundles: Any, *args: Any, **kwargs: Any) -> Any:
    """Returns a group of nothing if actors are threads."""
    return placement_group(bundles, *args, **kwargs) if _cluster is None else PlacementGroup(bundles)


@wrap(base, "sort_placement_group_by_node_ip")
def keep_placement_groups(sort: Any, pgs: Any) -> Any:
    """Returns the groups as they are if actors are threads: there is one node."""
    return sort(pgs) if _cluster is None else pgs


@wrap(base.ResourcePoolManager, "_check_resource_available")
def check_resources(check: Any, self: Any) -> None:
    """Checks nothing if actors are threads."""
    if _cluster is None:
        check(self)


atexit.register(lambda: ray.shutdown() if _cluster is not None else None)
