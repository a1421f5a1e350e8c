"""The environment `bfcl`: turns of a user, APIs with state, and the checks of BFCL after each turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from verl_agentic.base.deadlines import in_thread
from verl_agentic.base.env import EnvRow, Transcript
from verl_agentic.base.tools.tool_env import ToolEnv
from verl_agentic.base.types import Action, Message, Observation, Reward, StopReason, ToolResult

from .data import Apis, functions, needs_bfcl, read_call, task_of
from .rows import single_turn

_NEW_FUNCTIONS = "I have updated some more functions you can choose from. What about now?"  # as BFCL says it
_MAX_STEPS = 20  # of a user's turn, as in BFCL


class _ApiTool:
    """A function of an API. Calls take microseconds, so they run in the event loop."""

    def __init__(self, function: Mapping[str, Any], env: BfclEnv) -> None:
        self.name: str = function["name"]
        self.schema = {"type": "function", "function": function}
        self._env = env

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        result = self._env.apis.call(self.name, arguments)
        self._env.results.append(result)
        return ToolResult(result, is_error=result.startswith(("Error during execution", '{"error"')))


class BfclEnv(ToolEnv):
    """A task of several turns. A turn of the policy without a call ends the user's turn."""

    def __init__(self, row: EnvRow) -> None:
        super().__init__(row, [], max_parallel_calls=1)
        self._turn = self._num_steps = self._num_calls_before = self._num_passed = 0
        self.results: list[str] = []
        """Results of all calls so far."""

    async def start(self) -> tuple[Message, ...]:
        """Loads the APIs. Raises DataError if the installed package does not have the task."""
        await in_thread(self._load_task)
        self._offer_tools()
        return self.row.prompt

    async def step(self, action: Action) -> Observation:
        """Answers the calls of a turn, or goes on with the user's next turn."""
        if action.tool_calls:
            self._num_steps += 1
            observation = await super().step(action)
            return Observation(stop=StopReason.ENV_DONE) if self._num_steps > _MAX_STEPS else observation
        self._num_passed += self._turn_passes()
        self._turn, self._num_steps, self._num_calls_before = self._turn + 1, 0, len(self.results)
        if self._turn == len(self._solution):
            return Observation(stop=StopReason.ENV_DONE)
        if str(self._turn) in self._withheld:
            self._offer_tools()
            return Observation((Message("user", _NEW_FUNCTIONS),))
        return Observation(tuple(Message(m["role"], m["content"]) for m in self._task["question"][self._turn]))

    async def score(self, transcript: Transcript) -> Reward:
        """Returns outcome 1 if every turn passed; `info` has the share of turns that did."""
        share = self._num_passed / len(self._solution)
        return Reward(float(share == 1), info={"turns_passed": share})

    def _load_task(self) -> None:
        self._task = task_of(self.row.extra["task_id"])
        self._solution = [[read_call(call, self._task) for call in turn] for turn in json.loads(self.row.ground_truth)]
        self._withheld: dict[str, list[str]] = self._task.get("missed_function", {})
        self.apis, self._solved = Apis(self._task), Apis(self._task)  # the policy's, and the solution's

    def _turn_passes(self) -> bool:
        """Returns whether the APIs are in the state of the solution and gave its results, in this turn or before."""
        with needs_bfcl():
            from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import response_checker, state_checker

        solution = [self._solved.call(*call) for call in self._solution[self._turn]]
        if not solution:
            return True  # a function or a value is missing; the next turn shows what the policy did
        if len(self.results) == self._num_calls_before:
            return False
        has_state = state_checker(self.apis.objects, self._solved.objects)["valid"]
        return has_state and response_checker(self.results, solution, self._turn)["valid"]

    def _offer_tools(self) -> None:
        """Offers all functions but those that come in a later turn."""
        withheld = {name for turn, names in self._withheld.items() if int(turn) > self._turn for name in names}
        docs = [doc for name in self._task["involved_classes"] for doc in functions(name).values()]
        self.use_tools([_ApiTool(doc, self) for doc in docs if doc["name"] not in withheld])


def make_env(row: EnvRow) -> ToolEnv:
    """Returns the environment of a row: `function_calling` for single-turn rows."""
    return cast("ToolEnv", single_turn().make_env(row)) if "case" in row.extra else BfclEnv(row)
