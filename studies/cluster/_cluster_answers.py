"""Questions about a large cluster, answered by simulated runs with the constants of `cluster_constants.yaml`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from _cluster_model import Costs, Plan, Run, Workload
from _cluster_queues import Clock, Engine, EngineSpeed, Request

CONSTANTS = Path(__file__).parent / "cluster_constants.yaml"
EPISODES_PER_NODE = 100
POLICIES: Mapping[str, Mapping[str, Any]] = {
    "sync": {"mode": "sync"},
    "sync, 25 % more groups": {"mode": "sync", "oversample": 0.25},
    "one step off": {"mode": "one_step_off"},
    "partial rollout": {"mode": "partial"},
    "async": {"mode": "async"},
}
_PUBLISHED = {"2000_in_100_out": (2_000, 100, 3_195.30), "4000_in_200_out": (4_000, 200, 2_148.69)}
"""Tokens per second in total, of vLLM 0.11.0 with one H100: https://docs.gpustack.ai/latest/performance-lab/qwen3-32b/h100"""
_FULL, _WANTED = 0.9, ("engines", "trainer")
"""Share of time from which a station is a queue; GPUs should be busy."""


def load_constants(path: Path = CONSTANTS) -> dict[str, float]:
    """Returns the values.

    Raises:
        ValueError: an entry lacks its value, unit or source.
    """
    entries = yaml.safe_load(path.read_text())
    wrong = [name for name, entry in entries.items() if set(entry) != {"value", "unit", "source"}]
    if wrong or not all(entry["source"] for entry in entries.values()):
        raise ValueError(f"each constant needs value, unit and source, got others in {wrong}; add them to {path}")
    return {name: float(entry["value"]) for name, entry in entries.items()}


def gpu_speed(known: Mapping[str, float], *, gpus: int) -> EngineSpeed:
    """Returns the speed of an engine: decoding reads weights and contexts, prompts compute.

    Communication between the GPUs of an engine is not counted, so that several GPUs are too fast.
    """
    bandwidth = gpus * known["memory_bandwidth"] * known["bandwidth_efficiency"]
    token_s = 2 * known["parameters"] / (gpus * known["peak"] * known["prefill_efficiency"])
    return EngineSpeed(
        step_s=known["weight_bytes"] / bandwidth,
        sequence_s=token_s,
        cached_token_s=known["kv_bytes_per_token"] / bandwidth,
        prefill_token_s=token_s,
        max_sequences=int(known["max_sequences"]),
        cache_tokens=(gpus * known["memory"] * known["memory_share"] - known["weight_bytes"])
        / known["kv_bytes_per_token"],
    )


def published_check(known: Mapping[str, float]) -> dict[str, float]:
    """Returns the simulated over the published tokens per second of one GPU that serves many equal requests."""
    ratios = {}
    for name, (prompt, new, measured) in _PUBLISHED.items():
        clock, count, speed = Clock(), 200, gpu_speed(known, gpus=1)
        engine = Engine(clock, speed)
        for session in range(count):
            engine.use(Request(session, prompt, new), lambda: None)
        clock.run()
        ratios[name] = round(count * (prompt + new) / clock.now / measured, 3)
    return ratios


def gpu_costs(known: Mapping[str, float]) -> Costs:
    """Returns the costs of a run on GPUs."""
    worker_s = known["loop_turn_cpu"] + known["client_turn_cpu"] + known["generate_call_cpu"]
    return Costs(
        start_s=worker_s,
        turn_s=worker_s,
        balancer_s=known["balancer_turn_cpu"],
        reward_s=known["reward"],
        sandbox_start_s=known["sandbox_start"],
        put_s=known["put_cpu"],
        list_key_s=known["list_key"],
        read_key_s=known["read_key"],
        engine=gpu_speed(known, gpus=8),
        update_token_s=known["train_flops_per_parameter"] * known["parameters"] / known["train_speed"],
        sync_s=known["sync_fixed"] + known["weight_bytes"] / known["sync_speed"] + known["abort_wait"],
    )


def workload(known: Mapping[str, float]) -> Workload:
    """Returns the assumed task."""
    return Workload(
        turns=known["turns"],
        turns_sigma=known["turns_sigma"],
        max_turns=int(known["max_turns"]),
        prompt_tokens=int(known["prompt_tokens"]),
        turn_tokens=known["turn_tokens"],
        observation_tokens=known["observation_tokens"],
        tokens_sigma=known["tokens_sigma"],
        tool_s=known["tool"],
        tool_sigma=known["tool_sigma"],
    )


class Cluster:
    """Runs plans with one set of constants."""

    def __init__(self, known: Mapping[str, float], *, progress: Callable[[str], None]) -> None:
        self.known, self.costs, self.load, self._progress = known, gpu_costs(known), workload(known), progress

    def plan(self, nodes: int, **others: Any) -> Plan:
        """Returns a plan with verl's numbers and a worker per node, unless others are given."""
        known = self.known
        values: dict[str, Any] = {
            "nodes": nodes,
            "concurrent": EPISODES_PER_NODE * nodes,
            "workers": nodes,
            "reward_workers": int(known["reward_workers"]),
            "sandbox_slots": int(known["sandbox_slots"]),
            "sticky_sessions": int(known["sticky_sessions"]),
            "poll_s": known["poll"],
        }
        return Plan(**{**values, **others})

    def balanced(self, plan: Plan, load: Workload | None = None) -> Plan:
        """Returns the plan with the share of nodes that train at which neither side waits for the other."""
        if not plan.is_split:
            return plan
        run = self._run("shares", replace(plan, steps=2, lost_node_at_s=None), load=load)
        total = run.steady()
        play = total.time_s * len(run.engines) * plan.engine_gpus
        return replace(plan, train_share=round(total.train_gpu_s / (total.train_gpu_s + play), 2))

    def first_queue(self, nodes: int, levels: Sequence[int]) -> dict[str, Any]:
        """Returns the share of time in which each station is busy, by number of concurrent episodes, in mode `async`.

        First with verl's number of workers, then at the highest level with a worker per node, and then with a balancer
        that is ten times as fast.
        """
        share = self.balanced(self.plan(min(nodes, 10), mode="async")).train_share
        base = self.plan(nodes, mode="async", train_share=share, steps=2)
        found: dict[str, Any] = {"levels": {}}
        for level in levels:
            plan = replace(base, concurrent=level, workers=int(self.known["workers"]))
            found["levels"][level] = self._state(self._run(f"{level} episodes", plan))
            self._progress(f"busy: {found['levels'][level]['busy']}")
        top = levels[-1]
        for name, workers, faster in (("worker per node", nodes, 1), ("and a balancer 10 x as fast", nodes, 10)):
            costs = replace(self.costs, balancer_s=self.costs.balancer_s / faster)
            plan = replace(base, concurrent=top, workers=workers)
            found[name] = self._state(self._run(f"{top} episodes, {name}", plan, costs))
        return found

    def tails(self, nodes: int, sigmas: Sequence[float]) -> dict[str, dict[float, dict[str, float]]]:
        """Returns idle share and trained tokens of each way to train, by the tail of the number of turns."""
        found: dict[str, dict[float, dict[str, float]]] = {name: {} for name in POLICIES}
        for sigma in sigmas:
            load = replace(self.load, turns_sigma=sigma)
            for name, options in POLICIES.items():
                plan = self.balanced(self.plan(nodes, **options, steps=4), load)
                run = self._run(f"sigma {sigma}, {name}", plan, load=load)
                total = run.steady()
                gpu_s = total.time_s * nodes * plan.gpus_per_node
                found[name][sigma] = {
                    "idle": round(run.idle_share(), 3),
                    "tokens_per_gpu_s": round(total.trained_tokens / gpu_s, 1),
                    "dropped": round(total.dropped / (total.dropped + total.trained), 3),
                    "step_s": round(total.time_s / 3, 1),
                    "train_share": plan.train_share if plan.is_split else 1.0,
                }
        return found

    def lost_node(self, nodes: int) -> dict[str, Any]:
        """Returns what a lost node that plays costs in mode `async`, noticed by the balancer or not."""
        steps, found = 4, {}
        base = self.balanced(self.plan(nodes, mode="async", steps=steps))
        plain = self._run("no loss", base)
        at = (plain.marks[0].time_s + plain.marks[1].time_s) / 2
        for name, is_noticed in (("noticed", True), ("unnoticed", False)):
            run = self._run(f"a loss, {name}", replace(base, lost_node_at_s=at, is_loss_noticed=is_noticed))
            later, before = run.marks[-1].since(run.marks[1]), plain.marks[-1].since(plain.marks[1])
            found[name] = {
                "replayed": run.totals.replayed,
                "void_share": round(later.void / later.trained, 3),
                "step_s": round(later.time_s / (steps - 2), 1),
                "step_s.no_loss": round(before.time_s / (steps - 2), 1),
            }
        return found

    def lost_shares(self, nodes: Sequence[int], checkpoint_s: float) -> dict[int, float]:
        """Returns the share of time that losses of nodes that train cost: a restart and half a checkpoint interval."""
        each = self.known["restart"] + checkpoint_s / 2
        between = 86_400 * self.known["node_days_between_losses"]
        return {count: each / (between / count + each) for count in nodes}

    def _run(self, name: str, plan: Plan, costs: Costs | None = None, *, load: Workload | None = None) -> Run:
        run = Run(plan, costs or self.costs, load or self.load).play()
        self._progress(f"{name}: {run.totals.turns} turns in {run.clock.now:.0f} s of simulated time")
        return run

    def _state(self, run: Run) -> dict[str, Any]:
        """Returns the steady state of a run: who is busy, and calls and bytes per second."""
        total, plan, known = run.steady(), run.plan, self.known
        seconds, router = total.time_s, run.router
        reused = sum(engine.reused for engine in run.engines)
        busy = run.utilisation()
        busy["engines"] = total.engine_gpu_s / (len(run.engines) * plan.engine_gpus * seconds)
        busy["trainer"] = total.train_gpu_s / (plan.train_nodes * plan.gpus_per_node * seconds)
        tokens_per_s = total.trained_tokens / seconds
        return {
            "busy": {name: round(share, 3) for name, share in busy.items()},
            "queues": [name for name, share in busy.items() if share >= _FULL and name not in _WANTED],
            "turns_per_s": round(total.turns / seconds, 1),
            "episodes_per_s": round(total.trained / seconds, 2),
            "sticky_hits": round(router.hits / (router.hits + router.misses), 3),
            "prefix_reused": round(reused / (reused + sum(engine.prefilled for engine in run.engines)), 3),
            "balancer_calls_per_s": round(known["balancer_calls"] * total.turns / seconds),
            "queue_calls_per_s": round(known["queue_calls"] * total.trained / seconds, 1),
            "log_mb_per_s": round(known["log_bytes_per_token"] * tokens_per_s / 1e6, 2),
            "queue_mb_per_s": round(known["queue_bytes_per_token"] * tokens_per_s / 1e6, 2),
        }
