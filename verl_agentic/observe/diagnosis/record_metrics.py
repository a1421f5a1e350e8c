"""Metrics of a run that were not logged, computed from its trajectories or from other metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from verl_agentic.observe.diagnosis.history import REWARD
from verl_agentic.observe.diagnosis.row_keys import calls_of
from verl_agentic.sampling.prompts.pass_rates import PassRates

if TYPE_CHECKING:
    from verl_agentic.observe.diagnosis.run_records import RunRecords

Values = Iterator[tuple[int, str, float]]
"""Step, metric and value."""
_CUT = ("max_tokens", "context_full")
_SUCCESS = 1.0 - 1e-9
_NO_SPREAD = 1e-9
_MIN_PROMPTS = 4
_MIN_REWARD = 0.01
"""Minimum absolute reward of a step whose parts are compared."""
_LAST_TURN = 4
_PART = "episode/weighted/"


def fill_metrics(run: RunRecords) -> list[dict[str, Any]]:
    """Returns the metrics of every step: the logged ones, and those that can be computed and were not logged."""
    logged = {name for row in run.metrics for name in row}
    rows = {row["step"]: dict(row) for row in run.metrics}
    # Trajectories come last, because they are exact.
    for step, name, value in chain(
        _iter_verl_values(run),
        _iter_part_values(run),
        _iter_episode_values(run),
        _iter_prompt_values(run),
        _iter_sample_values(run),
    ):
        # Rows with different metrics of success would mix their scales.
        if name not in logged and not (name in REWARD and logged & set(REWARD)):
            rows.setdefault(step, {"step": step})[name] = value
    return [rows[step] for step in sorted(rows)]


def _iter_verl_values(run: RunRecords) -> Values:
    budget = run.setting("data.max_response_length")
    # With other modes, verl's means are not over tokens.
    is_per_token = run.setting("actor_rollout_ref.actor.loss_agg_mode") in (None, "token-mean")
    same = {
        "actor/entropy": "batch/entropy",
        "actor/reward_kl_penalty": "batch/ref_kl",
        "actor/kl_loss": "batch/ref_kl",
    }
    for row in run.metrics:
        for name in same if is_per_token else ():
            if name in row:
                yield row["step"], same[name], row[name]
        if budget and {"response_length/max", "response_length/clip_ratio"} <= set(row):
            # verl counts responses as long as the longest one of the batch.
            is_full = row["response_length/max"] >= budget
            yield row["step"], "episode/stop/max_tokens", row["response_length/clip_ratio"] if is_full else 0.0
        if {"critic/advantages/max", "critic/advantages/min"} <= set(row):
            is_flat = row["critic/advantages/max"] == row["critic/advantages/min"] == 0
            yield row["step"], "batch/zero_signal_group_frac", float(is_flat)


def _iter_part_values(run: RunRecords) -> Values:
    """Yields the shares of the absolute reward where those of its variance were not logged."""
    parts = sorted({name for row in run.metrics for name in row if name.startswith(_PART)})
    outcomes = {name for name in parts if _is_outcome(run, name)}
    for row in run.metrics if len(parts) > 1 else ():
        sizes = {name: abs(row[name]) for name in parts if name in row}
        total = sum(sizes.values())
        if total >= _MIN_REWARD:
            yield row["step"], "batch/outcome_share", sum(sizes.get(name, 0.0) for name in outcomes) / total
            for name in sizes.keys() - outcomes:
                yield row["step"], f"batch/shaping_share/{name.removeprefix(_PART)}", sizes[name] / total


def _is_outcome(run: RunRecords, name: str) -> bool:
    """Returns whether a part is an outcome: the rubric declares it, or it is proportional to `acc`."""
    components = run.setting("reward.rubric.components")
    for component in components if isinstance(components, list) else ():
        if name.removeprefix(_PART) in (component.get("name"), component.get("use")) and component.get("kind"):
            return component["kind"] == "outcome"
    pairs = [(row[name], row["episode/acc"]) for row in run.metrics if name in row and "episode/acc" in row]
    if not pairs:
        return False
    values, accs = np.asarray(pairs).T
    factor = values @ accs / (accs @ accs) if accs.any() else 0.0
    return bool(np.allclose(values, factor * accs, atol=0.02 * max(1e-9, abs(values).max()))) and factor > 0


def _iter_episode_values(run: RunRecords) -> Values:
    budget = run.setting("data.max_response_length")
    for step, rows in run.episodes.groupby("step"):
        yield step, "episode/void", float(rows["is_void"].mean())
        valid = rows[~rows["is_void"].astype(bool)]
        for name, column in (("acc", "acc"), ("score", "reward")):
            if valid[column].notna().any():
                yield step, f"episode/{name}", float(valid[column].mean())
        has_reasons = bool((valid["stop_reason"] != "").any())
        for reason in {*_CUT, *valid["stop_reason"]} if has_reasons else ():
            yield step, f"episode/stop/{reason}", float((valid["stop_reason"] == reason).mean())
        if has_reasons:
            yield step, "episode/tool_calls", float(valid["num_calls"].mean())
        elif budget and len(valid):
            yield step, "episode/stop/max_tokens", float((valid["num_response_tokens"] >= budget).mean())
        if len(valid):
            yield step, "episode/hacking/any", float((valid["hacking"].map(len) > 0).mean())
        for kind in {kind for kinds in valid["hacking"] for kind in kinds}:
            yield step, f"episode/hacking/{kind}", float(valid["hacking"].map(lambda kinds, k=kind: k in kinds).mean())
        for name, share in _group_shares(valid[valid["reward"].notna()]).items():
            yield step, f"credit/{name}_group_frac", share


def _group_shares(scored: Any) -> dict[str, float]:
    """Returns the shares of a step's groups without a signal; empty without groups of two."""
    result = scored["acc"].where(scored["acc"].notna(), scored["reward"])
    groups = result.groupby(scored["uid"]).agg(["min", "max", "count"])
    groups["std"] = scored["reward"].groupby(scored["uid"]).std(ddof=0)
    groups = groups[groups["count"] > 1]
    if not len(groups):
        return {}
    is_equal = groups["min"] == groups["max"]
    is_0, is_1 = is_equal & (groups["max"] == 0), is_equal & (groups["min"] >= _SUCCESS)
    is_flat = is_equal | (groups["std"] < _NO_SPREAD)  # estimators compare rewards, whatever the outcomes are
    kinds = {"zero_signal": is_flat, "all_0": is_0, "all_1": is_1, "other_constant": is_flat & ~is_0 & ~is_1}
    return {kind: float(has.mean()) for kind, has in kinds.items()}


def pass_rates(run: RunRecords) -> Iterator[tuple[int, PassRates, list[str]]]:
    """Yields (step, success rate of every prompt so far, prompts) after every step; the table is always the same.

    The `task_id` identifies a prompt; a row without one is a prompt of its own (`uid`).
    """
    episodes = run.episodes[~run.episodes["is_void"].astype(bool)]
    outcome = episodes["acc"].where(episodes["acc"].notna(), episodes["reward"])
    episodes = episodes.assign(outcome=outcome)[outcome.notna()]
    prompt = episodes["task_id"].where(episodes["task_id"] != "", episodes["uid"])
    names: list[str] = prompt.drop_duplicates().tolist()
    if not names:
        return
    number = {name: place for place, name in enumerate(names)}
    rates = PassRates(len(names), prior_trials=0.0)
    for step, rows in episodes.groupby("step"):
        for name, group in rows["outcome"].groupby(prompt[rows.index]):
            rates.record(number[name], group.tolist())
        yield step, rates, names


def _iter_prompt_values(run: RunRecords) -> Values:
    for step, rates, _ in pass_rates(run):
        if rates.is_seen_N.sum() >= _MIN_PROMPTS:
            for name, value in rates.metrics().items():
                yield step, f"curriculum/{name}", value


def _iter_sample_values(run: RunRecords) -> Values:
    by_step: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for record in run.sample:
        by_step[record["step"]].append(record)
    for step, records in by_step.items():
        if run.offered_tools:
            yield step, "episode/tools_offered", float(len(run.offered_tools))
        calls = [call for _, call in calls_of(records)]
        num_episodes = sum(record["place"] == "last" for record in records)
        for kind in {"unknown_tool", *(call["error_kind"] for call in calls)} if calls and num_episodes else ():
            count = sum(call["error_kind"] == kind for call in calls)
            yield step, f"episode/call_error/{kind}", count / num_episodes
        distances, turns = (np.concatenate(arrays) for arrays in zip(*map(token_distances, records), strict=True))
        if len(distances):
            yield step, "batch/log_prob_diff/mean", float(distances.mean())
        for turn in np.unique(turns):
            name = f"turn_{turn}_plus" if turn == _LAST_TURN else f"turn_{turn}"
            yield step, f"batch/log_prob_diff/{name}", float(distances[turns == turn].mean())


def token_distances(record: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Returns |log pi_train - log pi_rollout| of the trained tokens of a record, and their turns, 4 for later ones."""
    columns = [record.get(name) for name in ("rollout_log_probs", "old_log_probs", "response_mask")]
    length = len(record["response_ids"])
    if any(column is None or len(column) != length for column in columns):
        return np.zeros(0), np.zeros(0, dtype=int)
    rollout, trainer, mask = (np.asarray(column, dtype=np.float64) for column in columns)
    turns = np.asarray(record["turn_ids"] if len(record["turn_ids"]) == length else np.zeros(length), dtype=int)
    usable = (mask > 0) & np.isfinite(rollout) & np.isfinite(trainer)
    return abs(rollout - trainer)[usable], np.minimum(turns[usable], _LAST_TURN)
