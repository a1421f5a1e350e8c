"""Actors that are threads of this process behave as Ray's actors do, from `ray.init` to `ray.shutdown`."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import ray
import torch
from omegaconf import OmegaConf
from ray.exceptions import ActorDiedError, GetTimeoutError, RayTaskError, TaskCancelledError
from verl.single_controller.ray import base

from verl_agentic.sandbox.interface import Command, Limits
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig
from verl_agentic.verl.extensions.cpu.cpu_features import THREADS, choose_threads
from verl_agentic.verl.extensions.cpu.threads import one_process
from verl_agentic.verl.extensions.node_pool import NodePool

_variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


class Keeper:
    """A synchronous actor."""

    def __init__(self, value: Any = None) -> None:
        if value == "refuse":
            raise KeyError("a bad value")
        self.kept, self.threads = value, set()

    def keep(self, value: Any, pause_s: float = 0.0) -> Any:
        self.threads.add(threading.get_ident())
        time.sleep(pause_s)
        self.kept, before = value, self.kept
        return before

    def read(self) -> Any:
        return self.kept

    def names(self) -> tuple[Any, Any, str]:
        context = ray.get_runtime_context()
        return context.get_actor_id(), context.get_actor_name(), _variable.get()

    def count_threads(self) -> int:
        return len(self.threads)

    def fail(self) -> None:
        raise LookupError("nothing there")

    def meet(self, barrier_of: int) -> int:
        """Returns when as many calls are here at once."""
        return BARRIERS[barrier_of].wait(5)


class Server:
    """An asynchronous actor."""

    def __init__(self) -> None:
        self.running, self.most = 0, 0
        self.open = asyncio.Event()

    async def wait(self) -> int:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.open.wait()
        finally:
            self.running -= 1
        return self.most

    async def let_go(self) -> None:
        self.open.set()

    def count(self) -> int:
        return self.running

    async def ask(self, other: Any) -> Any:
        return await other.read.remote()


BARRIERS = {3: threading.Barrier(3)}
KEEPER, SERVER = ray.remote(Keeper), ray.remote(Server)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Ray's functions, on threads."""
    before = set(threading.enumerate())
    ray.init(address=THREADS, num_cpus=4, num_gpus=1)
    yield
    ray.shutdown()
    left = [one for one in threading.enumerate() if one not in before and one.name.startswith("ray::")]
    assert not left
    assert not ray.is_initialized()


def test_calls_of_an_actor_run_in_order_in_one_thread() -> None:
    actor = KEEPER.remote(0)
    calls = [actor.keep.remote(number, pause_s=0.002 * (number % 3)) for number in range(1, 9)]
    assert ray.get(calls) == list(range(8))
    assert ray.get(actor.count_threads.remote()) == 1


def test_an_actor_of_three_threads_runs_three_calls_at_once() -> None:
    actor = KEEPER.options(max_concurrency=3).remote()
    assert sorted(ray.get([actor.meet.remote(3) for _ in range(3)])) == [0, 1, 2]


@pytest.mark.parametrize(
    ("make", "key"), [(lambda: [1, {"a": 2}], 0), (lambda: torch.ones(3), 0), (lambda: {"x": torch.ones(2)}, "x")]
)
def test_arguments_and_results_are_copies(make: Any, key: Any) -> None:
    value = make()
    actor = KEEPER.remote(value)
    stored = ray.put(value)
    for _ in range(2):
        value[key] = 9
        got = ray.get(actor.read.remote())
        assert str(got) == str(make()) == str(ray.get(stored))
        got[key] = 7


def test_stored_arrays_are_read_only_views_without_a_copy_per_reader() -> None:
    stored = ray.put({"weights": np.arange(6.0)})
    first, second = ray.get([stored, stored])
    assert np.shares_memory(first["weights"], second["weights"]) and not first["weights"].flags.writeable


def test_references_are_resolved_as_arguments_and_stay_inside_of_them() -> None:
    first, second = KEEPER.remote("first"), KEEPER.remote()
    ray.get(second.keep.remote(first.read.remote()))
    assert ray.get(second.read.remote()) == "first"
    ray.get(second.keep.remote([first.read.remote(), first]))
    reference, handle = ray.get(second.read.remote())
    assert ray.get(reference) == "first" == ray.get(handle.read.remote())


def test_an_error_keeps_its_type_and_leaves_the_actor_alive() -> None:
    actor = KEEPER.remote(3)
    for _ in range(2):
        with pytest.raises(LookupError, match="nothing there") as caught:
            ray.get(actor.fail.remote())
        assert isinstance(caught.value, RayTaskError) and "Keeper.fail" in str(caught.value)
    # A call whose argument has failed fails with the cause.
    with pytest.raises(LookupError):
        ray.get(actor.keep.remote(actor.fail.remote()))
    assert ray.get(actor.read.remote()) == 3


def test_an_actor_whose_class_raises_is_dead() -> None:
    for remote in (
        KEEPER.remote("refuse"),
        ray.remote(type("Bad", (Server,), {"__init__": lambda self: 1 / 0})).remote(),
    ):
        method = remote.read if hasattr(remote, "read") else remote.count
        with pytest.raises(ActorDiedError, match=r"bad value|division by zero"):
            ray.get(method.remote())


def test_what_cannot_be_pickled_fails_where_it_is_passed() -> None:
    actor = KEEPER.remote()
    with pytest.raises(TypeError, match="pickle"):
        actor.keep.remote(threading.Lock())
    with pytest.raises(TypeError, match="pickle"):
        ray.get(ray.put(threading.Lock()))


async def test_an_asynchronous_actor_runs_calls_at_once_and_cancels_them() -> None:
    actor = SERVER.remote()
    calls = [actor.wait.remote() for _ in range(5)]
    while ray.get(actor.count.remote()) < 5:
        await asyncio.sleep(0.001)
    ready, waiting = ray.wait(calls, num_returns=2, timeout=0.01)
    assert (ready, waiting) == ([], calls)
    with pytest.raises(GetTimeoutError):
        ray.get(calls, timeout=0.01)
    ray.cancel(calls[0])
    with pytest.raises(TaskCancelledError):
        await calls[0]
    await actor.let_go.remote()
    assert await asyncio.gather(*calls[1:]) == [5] * 4
    assert ray.wait(calls, num_returns=2)[0] == calls[:2]


async def test_max_concurrency_limits_an_asynchronous_actor() -> None:
    actor = SERVER.options(max_concurrency=2).remote()
    calls = [actor.wait.remote() for _ in range(4)]
    await asyncio.sleep(0.05)
    assert not ray.wait(calls, timeout=0)[0]
    # Two calls fill the actor, so a third one would wait for ever.
    ray.kill(actor)
    for call in calls:
        with pytest.raises(ActorDiedError):
            await call


async def test_a_cancelled_wait_leaves_the_call_running() -> None:
    actor = SERVER.remote()
    call = actor.wait.remote()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(call, 0.02)
    await actor.let_go.remote()
    assert await call == 1


async def test_the_pool_of_a_node_is_an_actor() -> None:
    pool = NodePool("local", at_least="none", config=PoolConfig(size=1, warm=0))
    result = await pool.run(Command(argv=("echo", "here")), limits=Limits())
    assert result.stdout == "here\n"


def test_actors_call_each_other() -> None:
    assert ray.get(SERVER.remote().ask.remote(KEEPER.remote("there"))) == "there"


@pytest.mark.parametrize("namespace", [None, "other"])
def test_a_name_finds_an_actor_until_it_is_killed(namespace: str | None) -> None:
    options = {"name": "keeper", **({"namespace": namespace} if namespace else {})}
    actor = KEEPER.options(**options).remote("named")
    assert ray.get(ray.get_actor("keeper", namespace=namespace).read.remote()) == "named"
    assert KEEPER.options(**options, get_if_exists=True).remote("again") == actor
    with pytest.raises(ValueError, match="keeper"):
        KEEPER.options(**options).remote()
    with pytest.raises(ValueError, match="keeper"):
        ray.get_actor("keeper", namespace="a third")
    ray.kill(actor)
    with pytest.raises(ActorDiedError):
        ray.get(actor.read.remote())
    with pytest.raises(ValueError, match="keeper"):
        ray.get_actor("keeper", namespace=namespace)


def test_an_actor_knows_itself_and_not_the_variables_of_its_caller() -> None:
    _variable.set("of the caller")
    actor = KEEPER.options(name="one").remote()
    assert ray.get(actor.names.remote()) == (actor._actor_id.hex(), "one", "unset")
    assert ray.get_runtime_context().get_actor_id() is None


def test_a_function_runs_with_copies() -> None:
    def grow(values: list[int], number: int) -> list[int]:
        values.append(number)
        return values

    before = [1]
    remote = ray.remote(grow)
    assert ray.get(remote.options(num_cpus=0).remote(before, ray.put(2))) == [1, 2]
    assert before == [1]
    with pytest.raises(AttributeError, match="append"):
        ray.get(remote.remote(None, 1))


def test_verl_finds_its_placement_groups_and_resources() -> None:
    pool = base.RayResourcePool(process_on_nodes=[1], use_gpu=True, max_colocate_count=3)
    (group,) = pool.get_placement_groups(device_name="cpu")
    assert group.bundle_count == 1
    base.ResourcePoolManager({"pool": [1]}, {0: "pool"}).create_resource_pool()
    assert isinstance(ray.put(1), ray.ObjectRef)
    (node,) = ray.nodes()
    assert node["Alive"] and node["Resources"] == {"CPU": 4.0, "GPU": 1.0}
    assert ray.get_runtime_context().get_node_id() == node["NodeID"]


@pytest.mark.parametrize(
    ("change", "is_one"),
    [
        ({}, True),
        ({"trainer.n_gpus_per_node": 2}, False),
        ({"trainer.nnodes": 2}, False),
        ({"actor_rollout_ref.rollout.name": "vllm"}, False),
        ({"reward.reward_model.enable": True}, False),
        ({"distillation.enabled": True}, False),
        ({"ray_kwargs.timeline_json_file": "timeline.json"}, False),
        ({"ray_kwargs.ray_init.address": "local"}, False),
        ({"RAY_ADDRESS": "127.0.0.1:6379"}, False),
        ({"RAY_ADDRESS": "local"}, True),
        ({"VERL_PLATFORM": "nvidia"}, False),
        ({"VERL_PLATFORM": "nvidia", "trainer.device": "cuda"}, True),
        ({"VERL_PLATFORM": "", "trainer.device": "cuda"}, True),
        ({"VERL_PLATFORM": "", "trainer.device": "cuda", "actor_rollout_ref.rollout.nnodes": 1}, False),
        ({"VERL_PLATFORM": "", "trainer.device": "cuda", "trainer.n_gpus_per_node": 8}, False),
    ],
)
def test_one_rank_without_other_servers_is_one_process(
    change: dict[str, Any], is_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    config = OmegaConf.create(
        {
            "trainer": {"nnodes": 1, "n_gpus_per_node": 1},
            "actor_rollout_ref": {"rollout": {"name": "agentic"}},
            "ray_kwargs": {"ray_init": {"address": None}},
        }
    )
    for name, value in change.items():
        if name.isupper():
            monkeypatch.setenv(name, value)
        else:
            OmegaConf.update(config, name, value)
    chosen = [value for _, value, _ in choose_threads(config)]
    assert chosen == ([THREADS] if is_one else [])


def test_a_function_of_ray_that_one_process_lacks_says_what_to_do() -> None:
    with pytest.raises(AttributeError, match="address=local"):
        ray.timeline()
    assert one_process._cluster is not None
