"""The environment `swe`: fix an issue in a repository; hidden tests decide, and cheating does not count."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from verl_agentic import (
    Action,
    ConfigError,
    DataError,
    DelegateTool,
    EnvRow,
    Message,
    Observation,
    Reward,
    StopReason,
    ToolEnv,
    Transcript,
)
from verl_agentic.base.types import ToolCall
from verl_agentic.graders.code.patch_paths import touched_paths
from verl_agentic.sandbox.interface import REPOSITORY_LIMITS, Limits
from verl_agentic.sandbox.pools.pool_owner import PoolOwner, pool_of
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig
from verl_agentic.swe.grading.accepted import changes
from verl_agentic.swe.grading.attempts import attempts
from verl_agentic.swe.grading.grade import GradeReport, grade
from verl_agentic.swe.grading.pytest_ids import require_pytest
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore
from verl_agentic.swe.grading.runners.registry import toolchain_env, toolchain_options
from verl_agentic.swe.grading.verdict_details import verdict_details
from verl_agentic.swe.task_split import store_at

from .editor import EditorTool
from .repo_box import RepoBox
from .repo_tools import CommandTool, SearchTool, SubmitTool
from .scaffold import Scaffold, load_scaffold
from .search_helper import search_helper

_SESSIONS = PoolConfig(size=256, warm=0)
_TOOLS: dict[str, Any] = {
    "command": CommandTool, "shell": CommandTool, "editor": EditorTool, "search": SearchTool, "submit": SubmitTool
}  # fmt: skip
_DISK_MB, _IMAGE_DISK_MB = 256, 1024
_NO_CALL = "Your turn has no tool call. Make a call, or submit your change."
_ONE_CALL = "not run: only the first {count} calls of a turn are run"
_MAX_HINTS = 5


class SweEnv(ToolEnv):
    """A repository, an issue, and the tools of a scaffold."""

    def __init__(
        self,
        row: EnvRow,
        *,
        task: RepoTask,
        store: TaskStore,
        scaffold: Scaffold,
        repo: RepoBox,
        pool: Any,
        grade_unfinished: bool,
        pay_suspicious: bool = False,
        helper: DelegateTool | None = None,
    ) -> None:
        self._task, self._store, self._scaffold, self._repo, self._pool = task, store, scaffold, repo, pool
        self._grade_unfinished, self._pay_suspicious = grade_unfinished, pay_suspicious
        self._parts = [_TOOLS[form.kind](form, scaffold=scaffold, repo=repo) for form in scaffold.tools]
        self._steps = self._without_call = 0
        self.report: GradeReport | None = None
        """The verdict, after `score`."""
        super().__init__(row, self._parts if helper is None else [*self._parts, helper], max_parallel_calls=1)

    async def start(self) -> tuple[Message, ...]:
        """Makes the repository and returns the prompt."""
        await self._repo.open()
        task = self._scaffold.task.format(root=self._repo.root, issue=self._task.problem_statement.strip())
        return Message("system", self._scaffold.system), Message("user", task)

    async def step(self, action: Action) -> Observation:
        """Runs the calls of a turn. Submission, the last step, and too many turns without a valid call end it."""
        self._steps += 1
        has_call = any(call.error is None for call in action.tool_calls)
        self._without_call = 0 if has_call else self._without_call + 1
        if self._without_call >= self._scaffold.max_turns_without_call:
            return Observation(stop=StopReason.NO_ACTION)
        if not action.tool_calls:
            observation = Observation(messages=(Message("user", _NO_CALL),))
        else:
            observation = await super().step(replace(action, tool_calls=self._limit_calls(action.tool_calls)))
        if self.is_submitted:
            return replace(observation, stop=StopReason.ENV_DONE)
        steps_left = self._scaffold.max_steps - self._steps
        if steps_left <= 0:
            return replace(observation, stop=StopReason.MAX_TURNS)
        return _with_steps_left(observation, steps_left) if self._scaffold.shows_steps_left else observation

    @property
    def is_submitted(self) -> bool:
        """True when the policy has submitted its change."""
        return any(getattr(tool, "is_submitted", False) for tool in self._parts)

    async def score(self, transcript: Transcript) -> Reward:
        """Returns outcome 1 if all tests to fix and all tests not to break pass in a fresh sandbox, else 0.

        A change that was not submitted counts 0, unless `grade_unfinished`, and so does a tree that cannot be read,
        because code has filled the sandbox. `info` has the counts of tests
        (`GradeReport.info`) and of attempts to cheat (`attempts`). `details` has the patch, its files and the tests.
        """
        try:
            tree = await self._repo.taken()
        except DataError as cause:  # code has filled the sandbox
            return Reward(0.0, info={"patch_applied": 0.0, "tree_unreadable": 1.0}, details={"reason": str(cause)})
        base = self._repo.begin
        changed = changes(base, tree.files)
        await self._repo.close()  # grading takes its place: else sandboxes of policies could fill the pool
        if not (self.is_submitted or self._grade_unfinished):
            details = verdict_details(None, base=base, changed=changed)
            return Reward(0.0, info={"patch_applied": 0.0}, details=details)
        of_image = base if self._repo.is_of_image else None
        self.report = await grade(
            self._task,
            self._store,
            changed,
            self._pool,
            skipped=tree.skipped,
            base=of_image,
            pays_suspicious=self._pay_suspicious,
        )
        commands = [line for tool in self._parts for line in getattr(tool, "commands", ())]
        info = {**self.report.info(), **attempts(self.report, commands)}
        details = verdict_details(self.report, base=base, changed=changed)
        return Reward(float(self.report.resolved), info=info, details=details)

    async def guidance(self, transcript: Transcript) -> str:
        """Returns a plan, failing tests and files to look at, for an attempt after a failure (Agent-RLVR).

        Paper: https://arxiv.org/abs/2506.11425 (section 3).
        """
        failed = [test for test, outcome in self.report.f2p.items() if outcome != "passed"] if self.report else []
        tests = (failed or list(self._task.fail_to_pass))[:_MAX_HINTS]
        files = sorted(touched_paths(self._task.patch))[:_MAX_HINTS]
        return (
            f"An earlier attempt did not fix the issue. Look at {', '.join(files)}. After a right fix, these tests "
            f"pass: {', '.join(tests)}. Plan: read the functions that the issue is about, write a script "
            "that shows the bug, change as little as possible, and run the script and the tests before you submit."
        )

    async def close(self) -> None:
        """Ends the sandbox."""
        await self._repo.close()

    def _limit_calls(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        count = self._scaffold.max_calls_per_turn or len(calls)
        rest = (replace(call, error=_ONE_CALL.format(count=count), error_kind="too_many") for call in calls[count:])
        return (*calls[:count], *rest)


def make_env(
    row: EnvRow,
    *,
    scaffold: str = "editor",
    max_steps: int | None = None,
    command_timeout_s: float | None = None,
    grade_unfinished: bool = False,
    pay_suspicious: bool = False,
    helper_turns: int = 0,
    memory_mb: int = 1024,
    disk_mb: int | None = None,
    sandbox: str = "auto",
    image: str | None = None,
    at_least: str | None = None,
    pool: PoolOwner = "process",
) -> SweEnv:
    """Returns the environment of one episode.

    Args:
        row: `extra["task"]` is the JSON of a `RepoTask`, `extra["store"]` the place of its `TaskStore`: a folder,
            `sample:NAME`, or empty for the bundled sample.
        scaffold: `bash`, `editor`, `r2e`, or the path of a YAML file with the keys of `scaffold.Scaffold`.
        max_steps: turns of an episode; None: the scaffold's.
        command_timeout_s: wall time of one command, in seconds; None: the scaffold's.
        grade_unfinished: also grade the files of an episode that ended without a submission.
        pay_suspicious: pay for changes whose tests pass while they inspect the tests (`GradeReport.suspicious`).
        helper_turns: if above 0, the policy also has the tool `delegate`: a sub-agent with the tools of `repo_search`
            and this many turns. Needs a protocol that can call it, such as `chat`.
        memory_mb: memory of one command, in MiB.
        disk_mb: space for changed and new files, in MiB; None: 256, or 1024 for a task with an image. A repository that
            is no image may have four times as much.
        sandbox: backend: `auto`, `namespaces`, `docker` or `landlock`; `local` for trusted models only.
        image: image of the backend `docker` for tasks without an image of their own, with Python, bash, tar and git;
            None: the backend's default, which lacks git.
        at_least: weakest isolation that is allowed; by default `landlock` with `auto`.
        pool: `process` for a pool per process, `node` for one pool per node.

    Raises:
        ConfigError: the row has no task, or an option is out of its range.
        DataError: pytest cannot run the tests of the task.
    """
    _check_options(row, helper_turns=helper_turns, disk_mb=disk_mb)
    form = _load_form(scaffold, max_steps=max_steps, command_timeout_s=command_timeout_s)
    task = RepoTask.from_json(row.extra["task"])
    require_pytest([task])
    store = store_at(row.extra["store"])
    limits = replace(REPOSITORY_LIMITS, wall_s=form.command_timeout_s, memory_mb=memory_mb)
    lend = functools.partial(pool_of, pool, at_least=at_least, config=_SESSIONS)
    boxes, repo = _make_repo(task, store, lend, limits=limits, disk_mb=disk_mb, sandbox=sandbox, image=image)
    return SweEnv(
        row,
        task=task,
        store=store,
        scaffold=form,
        repo=repo,
        pool=boxes,
        grade_unfinished=grade_unfinished,
        pay_suspicious=pay_suspicious,
        helper=search_helper(repo, max_turns=helper_turns) if helper_turns else None,
    )


def _load_form(scaffold: str, **settings: float | None) -> Scaffold:
    """Returns a scaffold with the settings that are not None."""
    return replace(load_scaffold(scaffold), **{name: value for name, value in settings.items() if value is not None})


def _check_options(row: EnvRow, *, helper_turns: int, disk_mb: int | None) -> None:
    if "task" not in row.extra or "store" not in row.extra:
        raise ConfigError(f"a row of swe has extra_info task and store, got {sorted(row.extra)}; use make_rows")
    if helper_turns < 0:
        raise ConfigError(f"helper_turns must not be negative, got {helper_turns!r}")
    if disk_mb is not None and disk_mb < 1:
        raise ConfigError(f"disk_mb must be at least 1, got {disk_mb!r}")


def _make_repo(
    task: RepoTask,
    store: TaskStore,
    lend: Callable[..., Any],
    *,
    limits: Limits,
    disk_mb: int | None,
    sandbox: str,
    image: str | None,
) -> tuple[Any, RepoBox]:
    """Returns the pool and the repository: that of the image of a task without tests, else that of the store."""
    if task.image and not task.tests:
        boxes = lend("docker", disk_mb=disk_mb or _IMAGE_DISK_MB, memory_mb=limits.memory_mb)
        return boxes, RepoBox(boxes, base=None, image=task.image, limits=limits)
    chosen = {} if image is None else {"image": image}
    options = {**toolchain_options(sandbox, [task.runner]), **({"docker": chosen} if sandbox == "auto" else chosen)}
    boxes = lend(sandbox, disk_mb=disk_mb or _DISK_MB, **options)
    env = toolchain_env(task.runner)
    return boxes, RepoBox(boxes, base=store.base(task), site=store.site(task), limits=limits, env=env)


def _with_steps_left(observation: Observation, steps_left: int) -> Observation:
    *before, last = observation.messages
    return replace(
        observation, messages=(*before, replace(last, content=f"{last.content}\nSteps Remaining: {steps_left}"))
    )


def ground_truth(task: RepoTask) -> str:
    """Returns the ground truth of a row, as the components `resolved` and `resolved_partial` read it."""
    return json.dumps({"FAIL_TO_PASS": list(task.fail_to_pass), "PASS_TO_PASS": list(task.pass_to_pass)})
