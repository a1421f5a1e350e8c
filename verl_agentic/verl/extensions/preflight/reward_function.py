"""The reward function of a run, loaded and called as verl's reward managers do."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from omegaconf import DictConfig
from verl.tools.function_tool import FUNCTION_TOOL_REGISTRY
from verl.trainer.ppo.reward import get_custom_reward_fn, resolve_reward_manager_cls
from verl.utils.reward_score import default_compute_score

from verl_agentic.base.errors import describe_error, is_infrastructure
from verl_agentic.checks.preflight.planned_run import FunctionTrial, GoldTrial
from verl_agentic.graders.answers.gold_answers import gold_of
from verl_agentic.log.files.parquet import decoded_columns

_DEADLINE_S = 20.0
_WAYS = ("#### {}", "\\boxed{{{}}}", "<answer>{}</answer>", "Answer: {}", "The answer is \\boxed{{{}}}.\n#### {}", "{}")
"""Formats in which verl's bundled scorers expect an answer."""


class _NoScore(Exception):
    """A call that gives no score; the message says why."""


def try_function(config: DictConfig, row: Mapping[str, Any] | None, *, solution: str = "") -> FunctionTrial | None:
    """Returns the scores of the user's reward function for an empty answer and right ones; None if there is none.

    Args:
        config: verl's.
        row: the first row, as the dataset returns it; None if it is unknown, then the function is only loaded.
        solution: the response of the environment's solution, if there is one.
    """
    named = config.reward.custom_reward_function
    if named.path is None:
        return None
    row = row and decoded_columns(row)
    name = f"{named.name} of {named.path}"
    try:
        with _without_tools():
            resolve_reward_manager_cls(config)
            function = get_custom_reward_fn(config)
    except BaseException as cause:  # code of the user, at import
        if isinstance(cause, KeyboardInterrupt):
            raise
        return FunctionTrial(name=name, fault=f"it cannot be loaded, got {describe_error(cause.__cause__ or cause)}")
    if row is None:
        return FunctionTrial(name=name, untested="there is no row to call it with")
    if config.reward.reward_model.enable:
        return FunctionTrial(name=name, untested="it gets the address of a reward model, which does not run here")
    scores: dict[str, float] = {}
    metrics: frozenset[str] = frozenset()
    try:
        for text in ("", *([solution] if solution else _right_answers(row))):
            result = _score_text(function, config, row, text)
            scores[text], metrics = _read_score(result), _metrics_of(result)
    except _NoScore as cause:
        return FunctionTrial(name=name, scores=scores, fault=str(cause))
    except Exception as cause:
        message = describe_error(cause)
        if isinstance(cause, TimeoutError) or is_infrastructure(cause):
            return FunctionTrial(name=name, scores=scores, untested=message)
        return FunctionTrial(name=name, scores=scores, fault=f"it raises {message}")
    return FunctionTrial(name=name, scores=scores, metrics=metrics)


@contextlib.contextmanager
def _without_tools() -> Iterator[None]:
    """Empties verl's registry of tools: the run loads rewards in another process, perhaps from the tools' file."""
    before = dict(FUNCTION_TOOL_REGISTRY)
    FUNCTION_TOOL_REGISTRY.clear()
    try:
        yield
    finally:
        FUNCTION_TOOL_REGISTRY.clear()
        FUNCTION_TOOL_REGISTRY.update(before)


def try_verls(config: DictConfig, row: Mapping[str, Any]) -> tuple[Sequence[GoldTrial], frozenset[str] | None]:
    """Returns the score of the first row's right answer by the score functions that verl brings, and its numbers.

    A reward manager of another kind, or one that needs a server, is not called.
    """
    reward, row = config.reward, decoded_columns(row)
    is_plain = reward.reward_manager.name in ("naive", "dapo") and not reward.reward_model.enable
    if not is_plain or reward.custom_reward_function.path is not None or reward.sandbox_fusion.url:
        return [], None
    results, failure = [], None
    for text in _right_answers(row):
        try:
            results.append(_score_text(default_compute_score, config, row, text))
        except NotImplementedError:
            why = f"verl has no score function for data_source={row.get('data_source')!r}; set "
            why += "reward.custom_reward_function.path, or the data_source of one that it has"
            return [GoldTrial(row=0, outcome=None, why=why, is_fault=True)], None
        except Exception as cause:  # a scorer may refuse one format and take the next
            failure = cause
    if not results and failure is None:
        return [], None
    best = max((_read_score(result) for result in results), default=None)
    why = f"verl's score function, {len(results)} ways to write {gold_of(_read_truth(row))[0]!r}"
    if not best:
        why = f"none of {why} scored" if failure is None else describe_error(failure)
    is_fault = not results and not isinstance(failure, TimeoutError | ImportError)
    trial = GoldTrial(row=0, outcome=best or None, why=why, is_fault=is_fault)
    return [trial], _metrics_of(results[0]) if results else None


def _right_answers(row: Mapping[str, Any]) -> list[str]:
    answers = gold_of(_read_truth(row))
    return [way.format(*[answers[0]] * way.count("{}")) for way in _WAYS] if answers else []


def _read_truth(row: Mapping[str, Any]) -> Any:
    return (row.get("reward_model") or {}).get("ground_truth")


def _metrics_of(result: Any) -> frozenset[str]:
    return frozenset(map(str, result)) if isinstance(result, dict) else frozenset({"acc"})


def _check_columns(row: Mapping[str, Any]) -> None:
    for column in ("data_source", "reward_model"):
        if column not in row:
            raise _NoScore(f"verl passes it the column {column}, which the rows do not have; got {sorted(row)}")
    if "ground_truth" not in (row["reward_model"] or {}):
        raise _NoScore(f"verl passes it reward_model.ground_truth, got {row['reward_model']}")


def _score_text(function: Any, config: DictConfig, row: Mapping[str, Any], text: str) -> Any:
    """Calls a function with the arguments of verl's `naive` and `dapo` reward managers."""
    _check_columns(row)
    extra_info = deepcopy(dict(row.get("extra_info") or {}))
    extra_info |= {"num_turns": 2, "rollout_reward_scores": {}, "experiment_name": config.trainer.experiment_name}
    arguments = {
        "data_source": row["data_source"],
        "solution_str": text,
        "ground_truth": deepcopy(_read_truth(row)),
        "extra_info": extra_info,
    }
    return _call_in_thread(function, arguments)


def _call_in_thread(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Calls it in a thread that may be left behind: it does not keep the process from its end.

    Raises:
        TimeoutError: it takes too long.
        Exception: what it raises.
    """
    outcome: dict[str, Any] = {}

    def call() -> None:
        try:
            is_async = inspect.iscoroutinefunction(function)
            outcome["result"] = asyncio.run(function(**arguments)) if is_async else function(**arguments)
        except BaseException as cause:  # also an exit
            outcome["error"] = cause

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(_DEADLINE_S)
    if thread.is_alive():
        raise TimeoutError(f"no score within {_DEADLINE_S:g} s")
    if "error" in outcome:
        error = outcome["error"]
        raise error if isinstance(error, Exception) else _NoScore(f"it ends the process, got {describe_error(error)}")
    return outcome["result"]


def _read_score(result: Any) -> float:
    value = result
    if isinstance(result, dict):
        if "score" not in result:
            raise _NoScore(f"it must return a number, or a dict with score, got the keys {sorted(map(str, result))}")
        value = result["score"]
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise _NoScore(f"it must return a number, or a dict with score, got {value!r}") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise _NoScore(f"it must return a finite number, got {number}")
    return number
