"""The environment `swe_edit`: fix an issue in one turn with search/replace edits; hidden tests or similarity decide."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from verl_agentic import Action, ConfigError, EnvRow, Observation, Reward, StopReason, ToolEnv, Transcript, in_thread
from verl_agentic.graders.code.patches import FormatError, TooLargeError, patch_similarity
from verl_agentic.sandbox.pools.pool_owner import PoolOwner, pool_of
from verl_agentic.sandbox.pools.sandbox_pool import PoolConfig
from verl_agentic.swe.grading.attempts import attempts
from verl_agentic.swe.grading.grade import grade
from verl_agentic.swe.grading.pytest_ids import require_pytest
from verl_agentic.swe.grading.repo_task import RepoTask, TaskStore, read_tree
from verl_agentic.swe.grading.runners.registry import toolchain_options
from verl_agentic.swe.grading.verdict_details import verdict_details
from verl_agentic.swe.task_split import store_at

from .edits import changed_by_answer
from .votes import choose

RewardKind = Literal["tests", "similarity"]
_DISK_MB = 256
_BAD_FORM = Reward(0.0, info={"format_ok": 0.0})


class SweEditEnv(ToolEnv):
    """An issue and parts of a repository; the first turn is the answer."""

    def __init__(self, row: EnvRow, *, task: RepoTask, store: TaskStore, pool: Any, reward: RewardKind) -> None:
        super().__init__(row, [])
        self._task, self._store, self._pool, self._reward = task, store, pool, reward

    async def step(self, action: Action) -> Observation:
        """Ends the episode; a call gets an error."""
        observation = await super().step(action)
        return replace(observation, stop=observation.stop or StopReason.MAX_TURNS)

    async def score(self, transcript: Transcript) -> Reward:
        """Grades the edits of the answer.

        With `tests`, the outcome is 1 if all tests of the task pass in a fresh copy of the repository, else 0. `info`
        has the counts of tests (`GradeReport.info`) and of attempts to cheat, `details` the patch and the tests. With
        `similarity`, the outcome is SWE-RL's similarity of the patch to the reference, from 0 to 1. An answer without
        edits, or with edits that do not fit, has outcome 0 and `format_ok` 0.
        """
        if transcript.stop_reason is not StopReason.ANSWERED:
            return _BAD_FORM
        base = await in_thread(lambda: read_tree(self._store.base(self._task)))
        try:
            changed = await in_thread(lambda: changed_by_answer(base, transcript.final_answer))
        except FormatError:
            return _BAD_FORM
        if self._reward == "similarity":
            return Reward(await in_thread(lambda: self._compute_similarity(base, changed)), info={"format_ok": 1.0})
        report = await grade(self._task, self._store, changed, self._pool)
        details = verdict_details(report, base=base, changed=changed)
        info = {"format_ok": 1.0, **report.info(), **attempts(report)}
        return Reward(float(report.resolved), info=info, details=details)

    async def select(self, answers: Sequence[str]) -> int | None:
        """Returns the index of the answer that Agentless chooses among several; see `votes.choose`."""
        return await choose(answers, task=self._task, store=self._store, pool=self._pool)

    def _compute_similarity(self, base: Mapping[str, bytes], changed: Mapping[str, bytes]) -> float:
        truth = json.loads(self.row.ground_truth)
        old = {path: base[path].decode() for path in changed if path in base} | truth["code_context"]
        new = {path: content.decode() for path, content in changed.items()}
        try:
            return patch_similarity(old, truth["oracle_new_content"], new)[0]
        except TooLargeError:
            return 0.0


def make_env(
    row: EnvRow,
    *,
    reward: RewardKind = "tests",
    sandbox: str = "auto",
    at_least: str | None = None,
    pool: PoolOwner = "process",
) -> SweEditEnv:
    """Returns the environment of one episode.

    Args:
        row: `extra["task"]` is the JSON of a `RepoTask`, `extra["store"]` the folder of its `TaskStore`; empty for the
            bundled sample.
        reward: `tests`: the hidden tests of the task. `similarity`: to the reference patch; nothing is run.
        sandbox: backend: `auto`, `namespaces`, `docker` or `landlock`; `local` for trusted models only.
        at_least: weakest isolation that is allowed; by default `landlock` with `auto`.
        pool: `process` for a pool per process, `node` for one pool per node.

    Raises:
        ConfigError: the row has no task, or an option is out of its range.
        DataError: the tests are to decide, and pytest cannot run them.
    """
    if reward not in ("tests", "similarity"):
        raise ConfigError(f"reward must be tests or similarity, got {reward!r}")
    if "task" not in row.extra or "store" not in row.extra:
        raise ConfigError(f"a row of swe_edit has extra_info task and store, got {sorted(row.extra)}; use make_rows")
    task = RepoTask.from_json(row.extra["task"])
    options = toolchain_options(sandbox, [task.runner])
    boxes = pool_of(pool, sandbox, at_least=at_least, config=PoolConfig(size=256, warm=0), disk_mb=_DISK_MB, **options)
    if reward == "tests":
        require_pytest([task])
    return SweEditEnv(row, task=task, store=store_at(row.extra["store"]), pool=boxes, reward=reward)
