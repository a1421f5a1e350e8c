"""A training run of verl on many nodes, in simulated time.

Episodes pass through the event loop of their worker, the balancer, an engine and a sandbox, turn by turn, then through
a reward worker and TransferQueue. The trainer polls for whole groups, updates, and sends weights. Four ways to train:

- `sync`: all GPUs play a batch, then all GPUs train on it.
- `partial`: the same GPUs, but a step takes the first groups that are finished; the others go on after the update.
- `one_step_off`: some GPUs train on a batch while the others play the next one.
- `async`: some GPUs train on whatever is finished; the others play without end.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from _cluster_queues import Clock, Engine, EngineSpeed, Process, Request, Router, Station

Mode = Literal["sync", "partial", "one_step_off", "async"]
_RETRY_WAIT_S = 0.5
"""Default of the episode loop."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Distribution of episodes. Numbers of turns, tokens and seconds are log-normal."""

    turns: float
    """Mean."""
    turns_sigma: float
    """Standard deviation of the logarithm: the tail."""
    max_turns: int
    prompt_tokens: int
    turn_tokens: float
    """Mean."""
    observation_tokens: float
    """Mean."""
    tokens_sigma: float
    tool_s: float
    """Median seconds of a tool call."""
    tool_sigma: float


@dataclass(frozen=True)
class Episode:
    """Work of one episode, turn by turn."""

    turn_tokens: Any
    observation_tokens: Any
    tool_s: Any


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds that one piece of work takes of a processor, and speeds of the hardware."""

    start_s: float = 0.0
    """Event loop, per episode: its prompt, its environment, its row."""
    turn_s: float
    """Event loop, per turn."""
    balancer_s: float = 0.0
    """Balancer, per turn."""
    reward_s: float = 0.0
    sandbox_start_s: float = 0.0
    put_s: float = 0.0
    """Controller of TransferQueue, per row and per prompt."""
    list_key_s: float = 0.0
    """Controller of TransferQueue, per key of a listing."""
    read_key_s: float = 0.0
    """Trainer, per key of a listing."""
    engine: EngineSpeed
    update_token_s: float = 0.0
    """Seconds of one GPU that a trained token takes."""
    sync_s: float = 0.0
    """Sending weights."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Size of a run. Defaults are verl's."""

    nodes: int
    concurrent: int
    """Episodes at a time."""
    mode: Mode = "sync"
    gpus_per_node: int = 8
    engine_gpus: int = 8
    train_share: float = 0.5
    """Share of the nodes that train, where playing and training are apart."""
    workers: int = 8
    reward_workers: int = 8
    sandbox_slots: int = 224
    """Tool calls at a time on a node."""
    sticky_sessions: int = 10_000
    group_size: int = 8
    oversample: float = 0.0
    """`sync`: share of groups that are played beyond a batch; the last ones are dropped."""
    ahead: float = 1.0
    """`partial` and `async`: batches that are played beside the one that a step waits for."""
    poll_s: float = 2.0
    steps: int = 3
    lost_node_at_s: float | None = None
    """A node with an engine and sandboxes dies then."""
    is_loss_noticed: bool = True
    """Whether the balancer leaves the dead engine out. verl's does not."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode must be one of {get_args(Mode)}, got {self.mode!r}")
        if self.batch_groups < 1 or self.engines < 1:
            raise ValueError(
                f"a batch needs a group and the cluster an engine, got {self.concurrent} episodes in groups of "
                f"{self.group_size} and {self.nodes} nodes; raise them"
            )

    @property
    def is_split(self) -> bool:
        """True if some GPUs generate and others train."""
        return self.mode in ("one_step_off", "async")

    @property
    def train_nodes(self) -> int:
        """Nodes that train; all where playing and training take turns."""
        return round(self.nodes * self.train_share) if self.is_split else self.nodes

    @property
    def engines(self) -> int:
        """Engines that play."""
        nodes = self.nodes - self.train_nodes if self.is_split else self.nodes
        return nodes * self.gpus_per_node // self.engine_gpus

    @property
    def batch_groups(self) -> int:
        """Groups of a batch, so that `concurrent` episodes are played at a time."""
        groups = self.concurrent / self.group_size
        return int(groups / (1 + {"sync": self.oversample, "one_step_off": 0.0}.get(self.mode, self.ahead)))


@dataclass
class Totals:
    """Counts and seconds since the start of a run."""

    time_s: float = 0.0
    turns: int = 0
    trained: int = 0
    """Episodes."""
    trained_tokens: int = 0
    dropped: int = 0
    """Episodes that were played in part and given up."""
    replayed: int = 0
    void: int = 0
    train_gpu_s: float = 0.0
    engine_gpu_s: float = 0.0
    busy_s: dict[str, float] = field(default_factory=dict)
    """By station, of all its servers."""

    def since(self, before: Totals) -> Totals:
        """Returns the difference."""
        names = [name for name in vars(self) if name != "busy_s"]
        numbers = {name: getattr(self, name) - getattr(before, name) for name in names}
        return Totals(**numbers, busy_s={name: busy - before.busy_s[name] for name, busy in self.busy_s.items()})


class Run:
    """One run; `play` simulates its steps."""

    def __init__(self, plan: Plan, costs: Costs, workload: Workload) -> None:
        self.plan, self.costs, self.workload = plan, costs, workload
        self.clock = clock = Clock()
        self.stations = {
            "event loops": [Station(clock) for _ in range(plan.workers)],
            "balancer": [Station(clock)],
            "sandboxes": [Station(clock, plan.sandbox_slots) for _ in range(plan.nodes)],
            "reward workers": [Station(clock) for _ in range(plan.reward_workers)],
            "TransferQueue controller": [Station(clock)],
        }
        self.engines = [Engine(clock, costs.engine) for _ in range(plan.engines)]
        self.router = Router(plan.engines, sessions=plan.sticky_sessions, seed=plan.seed)
        self.totals = Totals()
        self.marks: list[Totals] = []
        """Totals at the end of each step."""
        self.started: list[int] = []
        """Episodes in the order of their first start."""
        self.ends_s: list[float] = []
        """When each episode was finished."""
        self._random = random.Random(plan.seed)
        self._live: dict[int, tuple[Process, int]] = {}
        """Process and attempt of each episode that is played."""
        self._tokens: dict[int, int] = {}
        """Tokens of finished episodes that are not trained yet."""
        self._left: Counter[int] = Counter()
        """Episodes to finish, by group."""
        self._finished: list[int] = []
        """Groups."""
        self._groups = 0
        self._attempts: defaultdict[int, int] = defaultdict(int)

    def play(self) -> Run:
        """Simulates all steps."""
        self.clock.start(self._train())
        if self.plan.lost_node_at_s is not None:
            self.clock.at(self.plan.lost_node_at_s, self._lose_node)
        self.clock.run(until=lambda: len(self.marks) >= self.plan.steps)
        return self

    def draw(self, number: int) -> Episode:
        """Returns episode number `number`: the same for the same seed, whatever happened before."""
        load, rng = self.workload, np.random.default_rng([self.plan.seed, number])
        mu = math.log(load.turns) - load.turns_sigma**2 / 2
        turns = int(np.clip(round(math.exp(mu + load.turns_sigma * rng.standard_normal())), 1, load.max_turns))
        factors = np.exp(load.tokens_sigma * rng.standard_normal((2, turns)) - load.tokens_sigma**2 / 2)
        tool_s = load.tool_s * np.exp(load.tool_sigma * rng.standard_normal(turns))
        tokens = np.maximum(1, factors * [[load.turn_tokens], [load.observation_tokens]]).astype(int)
        return Episode(tokens[0], tokens[1], tool_s)

    @property
    def live(self) -> int:
        """Episodes that are played now."""
        return len(self._live)

    # Episodes.

    def _submit(self, groups: int) -> None:
        self.stations["TransferQueue controller"][0].use(groups * self.costs.put_s, _nothing)
        for group in range(self._groups, self._groups + groups):
            self._left[group] = self.plan.group_size
            for number in range(group * self.plan.group_size, (group + 1) * self.plan.group_size):
                self._start(number)
        self._groups += groups

    def _start(self, number: int) -> None:
        self._attempts[number] += 1
        if self._attempts[number] == 1:
            self.started.append(number)
        process = self._episode(number, self.draw(number))
        self._live[number] = (process, self._attempts[number])
        self.clock.start(process)

    def _episode(self, number: int, episode: Episode) -> Process:
        costs, stations = self.costs, self.stations
        loop = stations["event loops"][number % self.plan.workers]
        sandboxes = stations["sandboxes"][number % self.plan.nodes]
        balancer = stations["balancer"][0]
        yield loop, costs.start_s
        yield sandboxes, costs.sandbox_start_s
        context = self.workload.prompt_tokens
        for turn in range(len(episode.tool_s)):
            yield loop, costs.turn_s
            yield balancer, costs.balancer_s
            place = self.router.acquire(number)
            engine, tokens = self.engines[place], int(episode.turn_tokens[turn])
            try:
                yield engine, Request(number, context, tokens)
            finally:  # also when the process is closed
                self.router.release(place)
            if engine.is_dead:
                self._fail(number)
                return
            self.totals.turns += 1
            context += tokens + int(episode.observation_tokens[turn])
            yield sandboxes, float(episode.tool_s[turn])
        yield self._random.choice(stations["reward workers"]), costs.reward_s
        yield stations["TransferQueue controller"][0], costs.put_s
        self._finish(number, context)

    def _finish(self, number: int, tokens: int) -> None:
        del self._live[number]
        self.ends_s.append(self.clock.now)
        self._tokens[number] = tokens
        group = number // self.plan.group_size
        self._left[group] -= 1
        if not self._left[group]:
            del self._left[group]
            self._finished.append(group)

    def _fail(self, number: int) -> None:
        """Tries an episode once more, as the loop does; then its row is void."""
        if self._attempts[number] < 2:
            failed = self._live[number]
            again = lambda: self._start(number) if self._live.get(number) is failed else None  # noqa: E731
            self.clock.at(self.clock.now + _RETRY_WAIT_S, again)
        else:
            self.totals.void += 1
            self._finish(number, 0)

    def _lose_node(self) -> None:
        """Kills the last engine that plays, and the sandboxes of a node; their episodes begin again."""
        engine = self.engines[-1]
        engine.drop()
        engine.is_dead = True
        place, node = len(self.engines) - 1, self.plan.nodes - 1
        if self.plan.is_loss_noticed:
            self.router.remove(place)
        for number in list(self._live):
            if self.router.place_of(number) == place or number % self.plan.nodes == node:
                self._live[number][0].close()
                self.totals.replayed += 1
                self._start(number)

    # The trainer.

    def _train(self) -> Process:
        plan, batch = self.plan, self.plan.batch_groups
        ahead = plan.ahead if plan.mode in ("partial", "async") else plan.oversample if plan.mode == "sync" else 0.0
        self._submit(int(batch * (1 + ahead)))
        while True:
            yield from self._wait_for(batch)
            tokens = self._take(batch)
            if plan.mode == "sync":
                self._drop_all()
            elif plan.mode != "partial":
                self._submit(batch)
            update_s = tokens * self.costs.update_token_s / (plan.train_nodes * plan.gpus_per_node)
            if not plan.is_split:
                self._pause()
            self.totals.train_gpu_s += update_s * plan.train_nodes * plan.gpus_per_node
            yield self.clock, update_s
            self._pause()
            yield self.clock, self.costs.sync_s
            for engine in self.engines:
                engine.resume()
            self._mark()
            if not plan.is_split:
                self._submit(int(batch * (1 + plan.oversample)) if plan.mode == "sync" else batch)

    def _wait_for(self, groups: int) -> Iterator[tuple[Any, Any]]:
        """Polls until as many groups are finished."""
        controller = self.stations["TransferQueue controller"][0]
        while True:
            keys = len(self._left) + len(self._finished) + len(self._tokens)  # prompts and rows
            yield controller, keys * self.costs.list_key_s
            yield self.clock, keys * self.costs.read_key_s
            if len(self._finished) >= groups:
                return
            yield self.clock, self.plan.poll_s

    def _take(self, groups: int) -> int:
        """Takes the groups that finished first; returns their tokens."""
        taken, self._finished = self._finished[:groups], self._finished[groups:]
        size = self.plan.group_size
        tokens = sum(self._tokens.pop(number) for group in taken for number in range(group * size, (group + 1) * size))
        self.totals.trained += groups * size
        self.totals.trained_tokens += tokens
        return tokens

    def _drop_all(self) -> None:
        """Gives up what is left of a step."""
        self.totals.dropped += len(self._live) + len(self._tokens)
        for process, _ in self._live.values():
            process.close()
        self._live.clear()
        self._tokens.clear()
        self._left.clear()
        self._finished.clear()
        for engine in self.engines:
            engine.drop()
        self.router.clear()

    def _pause(self) -> None:
        for engine in self.engines:
            engine.pause()

    def _mark(self) -> None:
        totals, plan = self.totals, self.plan
        totals.time_s = self.clock.now
        totals.engine_gpu_s = sum(engine.busy_s for engine in self.engines) * plan.engine_gpus
        totals.busy_s = {name: sum(one.busy_s for one in all_) for name, all_ in self.stations.items()}
        self.marks.append(Totals(**{**vars(totals), "busy_s": dict(totals.busy_s)}))

    # Results.

    def steady(self, *, skip: int = 1) -> Totals:
        """Returns what happened after the first `skip` steps."""
        return self.marks[-1].since(self.marks[skip - 1] if skip else Totals(busy_s=dict.fromkeys(self.stations, 0.0)))

    def idle_share(self, *, skip: int = 1) -> float:
        """Returns the share of all GPU time in which a GPU had neither a request nor an update."""
        total = self.steady(skip=skip)
        all_s = total.time_s * self.plan.nodes * self.plan.gpus_per_node
        return 1.0 - (total.train_gpu_s + total.engine_gpu_s) / all_s

    def utilisation(self, *, skip: int = 1) -> dict[str, float]:
        """Returns the share of time in which the servers of each station are busy."""
        total = self.steady(skip=skip)
        servers = {name: sum(one.servers for one in all_) for name, all_ in self.stations.items()}
        return {name: busy / (servers[name] * total.time_s) for name, busy in total.busy_s.items()}


def _nothing() -> None:
    pass
