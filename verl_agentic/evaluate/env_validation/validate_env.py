"""Validation of an environment: the solution must score 1, everything else 0, and nothing may fail or leak."""

from __future__ import annotations

import copy
import itertools
import json
import operator
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from verl_agentic.base.env import EnvRow
from verl_agentic.base.errors import ConfigError, EnvUnavailableError
from verl_agentic.base.finding import Finding
from verl_agentic.base.paths import envs_dir
from verl_agentic.base.places.error_places import describe_cause
from verl_agentic.base.text.grouped_lines import group_lines
from verl_agentic.base.types import Message
from verl_agentic.data.prepare import make_rows
from verl_agentic.data.row_checks import answers_of, appears_in, is_json, making_problems
from verl_agentic.episode.codec.codec import Codec, Schema
from verl_agentic.episode.env_package import EnvPackage
from verl_agentic.episode.records.episode import Episode
from verl_agentic.evaluate.env_validation.adversaries import ECHO, NULL, Adversary, malformed
from verl_agentic.evaluate.env_validation.answer_checks import AnswerFindings, check_solved_rows, spread_indices
from verl_agentic.evaluate.env_validation.env_harness import BURST, EnvHarness
from verl_agentic.evaluate.env_validation.leaks import find_leftovers
from verl_agentic.evaluate.env_validation.replays import NUM_PLAYS, replay_problem
from verl_agentic.evaluate.env_validation.scripted_rewards import measure, run_scripts, script_problems
from verl_agentic.log.files.rows import read_rows
from verl_agentic.observe.live.loop_watch import LoopWatch, watched_loop

_MIN_EXAMPLES = 4
_SHOWN_PROBLEMS = 5
_BLOCKED_S = 2.0
"""Time after which the display names code that blocks the event loop."""
_MAX_BLOCKED_S = 10.0
"""Time for which code may block the event loop. On a busy machine, an import or a computation takes seconds."""
MAX_SCRIPTED_ROWS = 8
"""Number of rows that the scripted policies run."""

Report = Callable[[str, str], None]
"""Takes what runs, and the place in the user's code that blocks the event loop; empty if nothing does."""


@dataclass(frozen=True, kw_only=True)
class Validation:
    """The results for an environment."""

    env_id: str
    num_rows: int
    checks: tuple[Finding, ...]
    """One per check. The evidence has all `problems`, and a `detail`."""
    figures: Mapping[str, float]
    """Times in seconds, and the maximum number of child processes during 16 parallel episodes."""

    @property
    def ok(self) -> bool:
        """Returns whether every check passed."""
        return all(check.status == "ok" for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Returns it as plain JSON values."""
        checks = [{"name": check.check, "ok": check.status == "ok", **check.evidence} for check in self.checks]
        return {
            "env": self.env_id,
            "ok": self.ok,
            "rows": self.num_rows,
            "checks": checks,
            "figures": dict(self.figures),
        }


def rows_to_validate(package: EnvPackage, *, count: int) -> list[EnvRow]:
    """Returns the examples of an environment, and `count` test rows if it can make rows.

    Raises:
        ConfigError: it has no rows.
    """
    examples = package.folder / "example.jsonl"
    rows = read_rows(examples) if examples.is_file() else []
    if package.make_rows is not None:
        rows += make_rows(package, split="test", count=count, seed=0)
    if not rows:
        raise ConfigError(
            f"environment {package.env_id!r} has no rows, got neither example.jsonl nor make_rows; add one of them, or "
            "name a file with --rows"
        )
    return rows


async def validate(
    package: EnvPackage,
    rows: Sequence[EnvRow],
    *,
    codec: Codec,
    tokenizer: Any,
    config: Mapping[str, Any] | None = None,
    on_check: Callable[[Finding], None] = lambda check: None,
    on_progress: Report = lambda text, place: None,
) -> Validation:
    """Validates an environment.

    Args:
        rows: to run.
        codec: the protocol.
        tokenizer: of the codec.
        config: keyword arguments of `make_env`.
        on_check: called after every check.
        on_progress: called with what runs; from another thread while the environment blocks the event loop.

    Raises:
        ConfigError: the environment cannot run with these settings, such as a protocol without its tools.
        EnvUnavailableError: its server cannot be reached.
    """
    progress = _Progress(report=on_progress)
    harness = EnvHarness(
        package=package,
        rows=list(rows),
        codec=codec,
        tokenizer=tokenizer,
        config=dict(config or {}),
        on_episode=progress.count_episode,
    )
    examination = _Examination(harness=harness, before=copy.deepcopy(harness.rows))
    checks: list[Finding] = []
    with watched_loop(blocked_s=_BLOCKED_S, on_blocked=progress.report_block) as watch:
        for name, look in examination.looks(watch).items():
            progress.begin(name)
            try:
                problems, detail = await look()
            except (ConfigError, EnvUnavailableError):
                raise
            except Exception as error:  # foreign code: whatever it raises is the finding
                problems, detail = [_describe_failure("", describe_cause(error), error)], ""
            checks.append(_make_finding(name, problems, detail))
            on_check(checks[-1])
    return Validation(
        env_id=package.env_id, num_rows=len(harness.rows), checks=tuple(checks), figures=harness.stopwatch.figures()
    )


@dataclass(kw_only=True)
class _Progress:
    """Counts the episodes of the running check, and reports them."""

    report: Report
    name: str = ""
    num_episodes: int = 0

    def begin(self, name: str) -> None:
        """Begins a check."""
        self.name, self.num_episodes = name, 0
        self.report(name, "")

    def count_episode(self, episode: Episode) -> None:
        """Counts a finished episode."""
        self.num_episodes += 1
        self.report(f"{self.name}: {self.num_episodes} episodes", "")

    def report_block(self, place: str, lag_s: float) -> None:
        """Reports that the event loop is blocked."""
        if place:
            self.report(f"{self.name}: {place} blocks the event loop, for {lag_s:.0f} s now", place)


class _Problem(NamedTuple):
    """A problem of one row and policy, or of the whole environment."""

    place: str
    """The row and the policy; empty for a problem of the whole environment."""
    text: str
    traceback: str = ""


_Findings = tuple[list[_Problem], str]
"""Problems, and a detail."""


def _make_finding(name: str, problems: list[_Problem], detail: str) -> Finding:
    lines = [": ".join(filter(None, (problem.place, problem.text))) for problem in problems]
    tracebacks = list(dict.fromkeys(problem.traceback for problem in problems if problem.traceback))
    evidence = {"detail": detail, "problems": lines, **({"tracebacks": tracebacks} if tracebacks else {})}
    if not problems:
        return Finding(check=name, status="ok", found=detail, evidence=evidence)
    shown_lines = group_lines((problem.place, problem.text) for problem in problems)
    hidden = len(shown_lines) - _SHOWN_PROBLEMS
    shown_lines[_SHOWN_PROBLEMS:] = [f"and {hidden} more"] if hidden > 0 else []
    return Finding(check=name, status="fail", found="\n".join(shown_lines), evidence=evidence)


def _describe_failure(place: str, text: str, error: Exception) -> _Problem:
    return _Problem(place, text, "".join(traceback.format_exception(error.__cause__ or error)))


def _unplaced(texts: Iterable[str]) -> list[_Problem]:
    return [_Problem("", text) for text in texts]


@dataclass(kw_only=True)
class _Examination:
    """A running validation."""

    harness: EnvHarness
    before: list[EnvRow]
    """Copies of the rows."""
    prompts: dict[int, tuple[Message, ...]] = field(default_factory=dict)
    """Row -> result of `start`."""
    schemas: dict[int, list[Schema]] = field(default_factory=dict)
    firsts: dict[str, list[Episode]] = field(default_factory=dict)
    """Script -> the first episode of each row, for comparison with the replays."""
    answers: AnswerFindings = field(default_factory=AnswerFindings)
    unearned_texts: list[tuple[int, str, str]] = field(default_factory=list)
    """Row, probe and text of observations that probes got without a valid tool call."""

    def looks(self, watch: LoopWatch) -> dict[str, Callable[[], Awaitable[_Findings]]]:
        """Returns name -> check, in order; later checks use earlier results."""
        return {
            "rows": self._look_at_rows,
            "reset is deterministic": self._look_at_reset,
            "gold scores 1": self._look_at_solution,
            "null scores 0": lambda: self._look_at_probe(NULL),
            "echo scores 0": lambda: self._look_at_probe(ECHO),
            "malformed scores 0": self._look_at_malformed,
            "scripts are not paid": self._look_at_scripts,
            "replays agree": self._look_at_replays,
            "guesses are not paid": self._look_at_guesses,
            "spelling is free": self._look_at_spellings,
            "answer is hidden": self._look_for_answer,
            "tokens and masks": self._look_at_tokens,
            "nothing is left": self._look_for_leftovers,
            "rows are unchanged": self._look_for_changes,
            "event loop is free": lambda: _look_for_blocks(watch),
        }

    async def _look_at_rows(self) -> _Findings:
        problems: list[_Problem] = []
        for index, row in enumerate(self.harness.rows):
            if not row.prompt:
                problems.append(_Problem(self._name_row(index), "the prompt is empty"))
            if not is_json(row.extra) or not is_json(row.ground_truth):
                problems.append(_Problem(self._name_row(index), "extra and ground_truth must be plain JSON values"))
        package = self.harness.package
        examples = package.folder / "example.jsonl"
        is_bundled = package.folder.is_relative_to(envs_dir())
        if is_bundled and (not examples.is_file() or len(read_rows(examples)) < _MIN_EXAMPLES):
            problems.append(_Problem("", f"example.jsonl must have at least {_MIN_EXAMPLES} rows"))
        if package.make_rows is None:
            return problems, "the package makes none"
        problems += _unplaced(making_problems(package.make_rows, len(self.harness.rows)))
        return problems, "the same rows when made again; train and test share none"

    async def _look_at_reset(self) -> _Findings:
        problems: list[_Problem] = []
        for index, row in enumerate(self.harness.rows):
            try:
                first, second = [await self.harness.start(row) for _ in range(2)]
            except EnvUnavailableError:
                raise  # each episode would wait for the server
            except Exception as error:  # foreign code: whatever it raises is the finding
                text = f"start failed, got {describe_cause(error)}"
                problems.append(_describe_failure(self._name_row(index), text, error))
                continue
            self.prompts[index], self.schemas[index] = first
            if first != second:
                difference = "prompts" if first[0] != second[0] else "tools"
                problems.append(_Problem(self._name_row(index), f"two starts gave different {difference}"))
        return problems, "two starts of every row gave the same"

    async def _look_at_solution(self) -> _Findings:
        if self.harness.package.gold is None:
            return _unplaced(["the package has no gold(row); add the solution of its tasks"]), ""
        solved = self.firsts["the solution"] = await self.harness.run_solution()
        problems = [
            _Problem(self._name_row(index), _end_of(episode) + _last_failed_call(episode), episode.traceback)
            for index, episode in enumerate(solved)
            if episode.is_void or abs(episode.reward.outcome - 1.0) > 1e-9
        ]
        turns = sum(len(episode.actions) for episode in solved) / len(solved)
        return problems, f"{turns:.1f} turns"

    async def _look_at_probe(self, adversary: Adversary) -> _Findings:
        return await self._run_adversary(adversary, range(len(self.harness.rows))), ""

    async def _look_at_malformed(self) -> _Findings:
        special_tokens = list(self.harness.tokenizer.all_special_tokens)
        problems: list[_Problem] = []
        names: set[str] = set()
        skipped: dict[str, None] = {}
        for index in range(len(self.harness.rows)):
            probes, unwritable = malformed(self.harness.codec, self.schemas.get(index, []), special_tokens)
            names.update(adversary.name.rpartition(": ")[2] for adversary in probes)
            skipped.update(dict.fromkeys(unwritable))
            for adversary in probes:
                problems += await self._run_adversary(adversary, [index])
        detail = f"{len(names)} kinds of turns"
        return problems, f"{detail}; not writable in this protocol: {', '.join(skipped)}" if skipped else detail

    async def _look_at_scripts(self) -> _Findings:
        harness = self.harness
        indices = self._list_scripted_indices()
        results = await run_scripts(harness, self.schemas, indices)
        solution = None
        if harness.package.gold is not None:
            solved = [self.firsts["the solution"][index] for index in indices]
            rows = [harness.rows[index] for index in indices]
            solution = await measure("the solution", solved, rows, indices, scorer=None)
        card = harness.package.card
        bound = card.max_scripted if card is not None else 0.0
        best = max(results, key=lambda result: result.outcome)
        detail = f"{len(results)} policies on {len(indices)} rows"
        if best.outcome:
            detail += f"; {best.name}: mean outcome {best.outcome:.3g} of at most {bound:g}"
        return _unplaced(script_problems(results, max_outcome=bound, solution=solution)), detail

    async def _look_at_guesses(self) -> _Findings:
        solved = self.firsts.get("the solution", [])
        self.answers, num_rows = await check_solved_rows(self.harness, solved, max_rows=MAX_SCRIPTED_ROWS)
        if not num_rows:
            return [], "without a solution"
        name, outcome = self.answers.best_action
        detail = f"{self.answers.num_policies} policies on {num_rows} rows"
        return _unplaced(self.answers.paid), f"{detail}; {name}: mean outcome {outcome:.3g}" if outcome else detail

    async def _look_at_spellings(self) -> _Findings:
        return _unplaced(self.answers.refused), ""

    def _list_scripted_indices(self) -> range:
        return spread_indices(len(self.harness.rows), MAX_SCRIPTED_ROWS)

    async def _run_adversary(self, adversary: Adversary, indices: Sequence[int]) -> list[_Problem]:
        """Returns the rows in which an adversary broke the environment or scored above 0."""
        episodes = await self.harness.run(adversary.begin, [self.harness.rows[index] for index in indices])
        self.firsts[adversary.name] = episodes
        problems = []
        for index, episode in zip(indices, episodes, strict=True):
            if episode.is_void or episode.reward.outcome > 0:
                place = f"{self._name_row(index)}, {adversary.name}"
                problems.append(_Problem(place, _end_of(episode), episode.traceback))
            if not adversary.is_answered:
                after_prompt = episode.messages[len(self.prompts.get(index, ())) :]
                self.unearned_texts += [
                    (index, adversary.name, m.content) for m in after_prompt if m.role != "assistant"
                ]
        return problems

    async def _look_at_replays(self) -> _Findings:
        harness, firsts = self.harness, self.firsts
        replayed = {
            "null": (firsts["null"], await harness.replay(NULL.begin)),
            "echo": (firsts["echo"], await harness.replay(ECHO.begin)),
        }
        if harness.package.gold is not None:
            replayed["the solution"] = (firsts["the solution"], await harness.replay_solution())
            replayed["the solution's first turn"] = (await harness.run_beginning(), await harness.replay_beginning())
        problems = [
            _Problem(f"{self._name_row(index)}, {name}", problem)
            for name, (first, rest) in replayed.items()
            for index in range(len(harness.rows))
            if (problem := replay_problem([first[index], *rest[index]]))
        ]
        return problems, f"{', '.join(replayed)}: {NUM_PLAYS} runs of each row gave the same"

    async def _look_for_answer(self) -> _Findings:
        problems: list[_Problem] = []
        skipped: dict[str, int] = {}
        for index, row in enumerate(self.harness.rows):
            answers, reason = answers_of(row.ground_truth)
            if not answers:
                skipped[reason] = skipped.get(reason, 0) + 1
            texts = [("the prompt", message.content) for message in self.prompts.get(index, row.prompt)]
            texts += [("the schemas of the tools", json.dumps(self.schemas.get(index, ()), default=str))]
            texts += [
                (f"the observations of {adversary!r}", text) for i, adversary, text in self.unearned_texts if i == index
            ]
            places = {place for place, text in texts for answer in answers if appears_in(answer, text)}
            problems += [_Problem(self._name_row(index), f"the ground truth is in {place}") for place in sorted(places)]
        looked_at = len(self.harness.rows) - sum(skipped.values())
        return problems, "; ".join([f"{looked_at} rows", *(f"{n} skipped: {why}" for why, n in skipped.items())])

    async def _look_at_tokens(self) -> _Findings:
        problems = {problem for episode in self.harness.episodes for problem in _find_token_problems(episode)}
        return _unplaced(sorted(problems)), f"{len(self.harness.episodes)} episodes"

    async def _look_for_leftovers(self) -> _Findings:
        leftovers = await find_leftovers(self.harness.burst, episodes=BURST)
        problems = [
            f"{kind}: {first} more after {3 * BURST} environments, {second} more after {3 * BURST} others"
            for kind, (first, second) in leftovers.items()
        ]
        return _unplaced(problems), "after episodes that were finished, only started, and cancelled"

    async def _look_for_changes(self) -> _Findings:
        pairs = enumerate(zip(self.before, self.harness.rows, strict=True))
        changed = [index for index, (before, row) in pairs if before != row]
        return [_Problem(self._name_row(i), "an episode changed its row, which siblings share") for i in changed], ""

    def _name_row(self, index: int) -> str:
        task_id = self.harness.rows[index].extra.get("task_id")
        return f"row {index}" + (f" ({task_id})" if task_id else "")


async def _look_for_blocks(watch: LoopWatch) -> _Findings:
    """Returns the user's code that has blocked the event loop, and with it all other episodes."""
    problems = [
        _Problem(place, f"blocked the event loop for {longest_s:.1f} s; await the work, or run it in a thread")
        for place, longest_s in watch.longest_s.items()
        if place and longest_s >= _MAX_BLOCKED_S
    ]
    return problems, f"no code of the environment blocked it for {_MAX_BLOCKED_S:g} s"


def _end_of(episode: Episode) -> str:
    if episode.is_void:
        return f"void ({episode.stop_reason.value}), got {episode.error}"
    return f"scored {episode.reward.outcome:g}, stopped by {episode.stop_reason.value}"


def _last_failed_call(episode: Episode) -> str:
    """Returns the last failed tool call of an episode, with the place of its exception; empty without one."""
    failed_calls = [message for message in episode.messages if message.role == "tool" and message.is_error]
    if not failed_calls:
        return ""
    place = f" ({failed_calls[-1].error_place})" if failed_calls[-1].error_place else ""
    return f"; its last failed call, of {failed_calls[-1].name!r}: {failed_calls[-1].content}{place}"


def _find_token_problems(episode: Episode) -> list[str]:
    """Returns the rules of a training row that an episode breaks."""
    problems = []
    for trajectory in () if episode.is_void else episode.trajectories:
        try:
            trajectory.check()
        except AssertionError as broken:
            problems.append(str(broken))
        if not trajectory.response_mask or trajectory.response_mask[-1] != 1:
            problems.append("a row does not end on a token that the policy wrote")
        # Not a generator: there are millions of tokens.
        if any(itertools.compress(trajectory.log_probs, map(operator.not_, trajectory.response_mask))):
            problems.append("a token that the policy did not write has a log-prob")
    rewards = sum(sum(row) for row in episode.token_rewards())
    total = 0.0 if episode.is_void else episode.reward.total + sum(episode.turn_rewards.values())
    if abs(rewards - total) > 1e-6:
        problems.append("the rewards of the tokens do not sum to the reward of the episode")
    return problems
