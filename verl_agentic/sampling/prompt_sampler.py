"""The endless, resumable sequence of prompts of a curriculum."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verl_agentic.base.errors import DataError
from verl_agentic.base.metric import Metric
from verl_agentic.base.registry import load_address
from verl_agentic.sampling.curriculum import CurriculumSettings, CurriculumType, Pool, load_curriculum
from verl_agentic.sampling.prompts.group_sizes import group_sizes
from verl_agentic.sampling.prompts.pass_rates import Floats, PassRates
from verl_agentic.sampling.prompts.task_sets import Check, ProposalResult, TaskSet

_POPULATION = "verl_agentic.methods.instructions:InstructionPopulation"
_MAX_IN_FLIGHT = 100_000  # bounds groups that verl dropped without a report
METRICS = (
    Metric(name="curriculum/seen_share", unit="share", per="prompt", rows="all prompts", join="last"),
    Metric(name="curriculum/pass_rate", unit="outcome, 0 to 1", per="prompt", rows="seen prompts", join="last"),
    Metric(name="curriculum/*_solved_share", unit="share", per="prompt", rows="seen prompts", join="last"),
    Metric(name="curriculum/instruction_weight/*", unit="weight", per="step", rows="instructions in use", join="last"),
    Metric(name="curriculum/*", unit="tasks or instructions", per="step", rows="those of the curriculum", join="last"),
)


@dataclass(frozen=True, kw_only=True)
class PromptColumns:
    """Data columns of N prompts; missing ones are None."""

    count: int
    difficulty_N: Floats | None = None
    source_N: NDArray[np.str_] | None = None
    pass_rate_N: Floats | None = None
    rows_hash: str | None = None
    """Hash of the rows in their order."""


def spread_draws(
    weights_N: Floats, count: int, rng: np.random.Generator, *, strata_N: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Returns `count` prompts, drawn with the given weights and spread as evenly as possible.

    A prompt with expected count x is drawn floor(x) or ceil(x) times; the same holds for each stratum (systematic
    sampling over an order that is random within strata). So a batch has no accidental duplicates, and its shares of
    sources are exact up to one prompt.

    Args:
        weights_N: [N] finite, >= 0, not all 0.
        strata_N: [N] stratum of each prompt, such as its source.
    """
    order = rng.permutation(len(weights_N))
    if strata_N is not None:
        order = order[np.argsort(strata_N[order], kind="stable")]
    edges = np.cumsum(weights_N[order])
    points = (rng.random() + np.arange(count)) / count * edges[-1]
    drawn = order[np.searchsorted(edges, np.minimum(points, np.nextafter(edges[-1], 0.0)), side="right")]
    return rng.permutation(drawn)


class PromptSampler:
    """Draws prompts, links groups to their prompts, and updates pass rates with their outcomes.

    If the curriculum gives weights, prompts are drawn in blocks of one batch (`spread_draws`); the rest of a block is
    redrawn when an outcome changes a weight. If it gives an order, every prompt comes once per epoch, in the order at
    the start of the epoch.
    """

    def __init__(
        self, settings: CurriculumSettings, columns: PromptColumns, *, block: int, seed: int | None = None
    ) -> None:
        """Makes a sampler at its start.

        Args:
            settings: curriculum and its options.
            columns: data columns of the prompts.
            block: prompts per training step.
            seed: None: a new one each time.
        """
        self.settings = settings
        self.step = 1
        """Training step that prompts are drawn for."""
        self.rates = PassRates(columns.count, memory=settings.memory, prior_trials=settings.prior_trials)
        if columns.pass_rate_N is not None:
            self.rates.start_from(columns.pass_rate_N, trials=max(1.0, settings.prior_trials))
        tasks = settings.task_set
        self.tasks = tasks and TaskSet(patience=tasks.patience, value_bounds=tasks.value_bounds)
        self.instructions: Any = settings.instructions and load_address(_POPULATION, what="population of instructions")(
            settings=settings.instructions, rng=np.random.default_rng(seed)
        )
        self._base, self._rows_hash = columns.count, columns.rows_hash
        self._curriculum: CurriculumType = load_curriculum(settings.name)
        self._difficulty_N, self._source_N = columns.difficulty_N, columns.source_N
        self._block = block
        self._rng = np.random.default_rng(seed)
        self._queue: deque[int] = deque()
        self._fresh: deque[int] = deque()
        self._drawn_for: list[int] = []
        self._place = 0
        self._seen: tuple[int, int] | None = None
        self._in_flight: dict[str, int] = {}
        self._weights_N()  # raises now, not in the first step, if the data lack a column

    def __len__(self) -> int:
        """Returns the number of prompts of an epoch, by which verl counts epochs."""
        return self._base

    def __iter__(self) -> Iterator[int]:
        # A separate iterator would be saved a second time.
        while True:
            yield self.draw()

    def draw(self) -> int:
        """Returns the next prompt: a newly proposed one, else that of the curriculum."""
        if not self._fresh:
            self._fill_queue()
        prompt = (self._fresh or self._queue).popleft()
        self._place = (self._place + 1) % self._block
        self._drawn_for.append(prompt)
        return prompt

    def tie(self, uids: Sequence[str]) -> list[int]:
        """Links groups to the last drawn prompts, in order; returns the prompts."""
        assert len(self._drawn_for) >= len(uids), "verl has fetched fewer prompts than it uses"
        prompts = self._drawn_for[len(self._drawn_for) - len(uids) :]
        self._drawn_for.clear()
        self._in_flight.update(zip(uids, prompts, strict=True))
        for uid in list(self._in_flight)[: max(0, len(self._in_flight) - _MAX_IN_FLIGHT)]:
            del self._in_flight[uid]
        return prompts

    def report(self, outcomes: Mapping[str, Sequence[float]]) -> None:
        """Records outcomes of the valid attempts of finished groups, by uid; ignores unknown groups."""
        for uid, values in outcomes.items():
            prompt = self._in_flight.pop(uid, None)
            if prompt is not None:
                self.rates.record(prompt, values)
        if self.tasks is not None:
            self.tasks.retire(self.rates)
        if self.instructions is not None:
            self.instructions.report(outcomes)

    def group_sizes(self, prompts: Sequence[int], *, group_size: int) -> NDArray[np.int64] | None:
        """Returns the number of attempts per prompt, `group_size` on average; None if all get that many."""
        bounds = self.settings.group_size
        if bounds is None:
            return None
        scores = self.rates.std_N[np.asarray(prompts)]
        return group_sizes(scores, budget=group_size * len(prompts), least=bounds.least, most=bounds.most)

    def propose(
        self, row: Mapping[str, Any], *, check: Check, difficulty: float = 0.0, source: str = "proposed"
    ) -> ProposalResult:
        """Adds a task that passes the check; it is drawn next, and then like all others."""
        assert self.tasks is not None, "data.curriculum.task_set is not set"
        verdict = self.tasks.propose(row, check=check)
        if verdict.place is not None:
            self.rates.grow(1)
            if self._difficulty_N is not None:
                self._difficulty_N = np.append(self._difficulty_N, difficulty)
            if self._source_N is not None:
                self._source_N = np.append(self._source_N, source)
            self._fresh.append(self._base + verdict.place)
        return verdict

    def metrics(self) -> dict[str, float]:
        """Returns the metrics of a step."""
        numbers = self.rates.metrics()
        if self.tasks is not None:
            numbers |= {"proposed_tasks": float(len(self.tasks)), "living_tasks": float(self.tasks.is_alive_N.sum())}
        if self.instructions is not None:
            numbers |= self.instructions.metrics()
        return {f"curriculum/{name}": number for name, number in numbers.items()}

    def state_dict(self) -> dict[str, Any]:
        return {
            "curriculum": self.settings.name,
            "rows_hash": self._rows_hash,
            "rates": self.rates.state_dict(),
            "random": self._rng.bit_generator.state,
            "queue": list(self._queue),
            "fresh": list(self._fresh),
            "place": self._place,
            "step": self.step,
            "seen_step": None if self._seen is None or self._seen[1] != self.rates.version else self._seen[0],
            "in_flight": dict(self._in_flight),
            "tasks": None if self.tasks is None else self.tasks.state_dict(),
            "instructions": None if self.instructions is None else self.instructions.state_dict(),
            "difficulty": None if self._difficulty_N is None else self._difficulty_N[self._base :].copy(),
            "source": None if self._source_N is None else self._source_N[self._base :].tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state; another curriculum starts at its beginning. Raises DataError for other prompts."""
        if None not in (self._rows_hash, state.get("rows_hash")) and state["rows_hash"] != self._rows_hash:
            raise DataError(
                "the pass rates of the checkpoint belong to other rows than those of data.train_files, got rows whose "
                "contents or order differ; resume with the same files, data.seed and data.train_max_samples, or start "
                "the run anew (trainer.resume_mode=disable)"
            )
        if (state["tasks"] is None) != (self.tasks is None):
            raise DataError("the checkpoint and the config differ in data.curriculum.task_set; resume with the same")
        grown = 0 if self.tasks is None else len(state["tasks"]["rows"])
        if self.tasks is not None:
            self.tasks.load_state_dict(state["tasks"])
            if self._difficulty_N is not None:
                self._difficulty_N = np.concatenate([self._difficulty_N[: self._base], state["difficulty"]])
            if self._source_N is not None:
                self._source_N = np.concatenate([self._source_N[: self._base], np.array(state["source"], dtype=str)])
        if self.instructions is not None and state.get("instructions") is not None:
            self.instructions.load_state_dict(state["instructions"])
        self.rates.grow(max(0, self._base + grown - len(self.rates)))
        self.rates.load_state_dict(state["rates"])
        self._in_flight, self._drawn_for = dict(state["in_flight"]), []
        self._fresh, self._queue, self._place, self._seen = deque(state["fresh"]), deque(), 0, None
        self._rng.bit_generator.state, self.step = state["random"], state["step"]
        if state["curriculum"] == self.settings.name:
            self._queue, self._place = deque(state["queue"]), state["place"]
            self._seen = None if state["seen_step"] is None else (state["seen_step"], self.rates.version)

    def _fill_queue(self) -> None:
        """Fills the queue if it is empty or its weights are outdated."""
        if self._curriculum.returns == "order":
            alive = self._is_alive_N()
            while self._queue and not alive[self._queue[0]]:
                self._queue.popleft()
            if not self._queue:
                order = self._curriculum(self._make_pool(), **self.settings.options)
                self._queue = deque(order[alive[order]].tolist())
            return
        now = (self.step, self.rates.version)
        if not self._queue or self._seen != now:
            self._queue = deque(self._draw_places(self._block - self._place))
            self._seen = now

    def _draw_places(self, count: int) -> list[int]:
        strata = None if self._source_N is None else np.unique(self._source_N, return_inverse=True)[1]
        return spread_draws(self._weights_N(), count, self._rng, strata_N=strata).tolist()

    def _weights_N(self) -> Floats:
        """Returns the probability of every prompt."""
        scores_N = self._curriculum(self._make_pool(), **self.settings.options)
        alive = self._is_alive_N().astype(np.float64)
        if self._curriculum.returns == "order":
            return alive / alive.sum()
        weights = scores_N * alive
        even = alive / alive.sum()
        if not weights.any():
            return even
        weights = weights / weights.sum()
        floor = self.settings.floor if self._curriculum.revisits else 0.0
        return (1.0 - floor) * weights + floor * even

    def _make_pool(self) -> Pool:
        return Pool(rates=self.rates, step=self.step, difficulty_N=self._difficulty_N, source_N=self._source_N)

    def _is_alive_N(self) -> NDArray[np.bool_]:
        alive = np.ones(len(self.rates), dtype=bool)
        if self.tasks is not None:
            alive[self._base :] = self.tasks.is_alive_N
        return alive
