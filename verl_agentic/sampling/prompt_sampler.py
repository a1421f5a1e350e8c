"""The endless sequence of prompts that a curriculum asks for, resumable at any place."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verl_agentic.errors import DataError
from verl_agentic.sampling.curriculum import CurriculumSettings, CurriculumType, Pool, load_curriculum
from verl_agentic.sampling.prompts.group_sizes import group_sizes
from verl_agentic.sampling.prompts.pass_rates import Floats, PassRates
from verl_agentic.sampling.prompts.task_sets import Check, ProposalResult, TaskSet

_MAX_IN_FLIGHT = 100_000  # groups that nobody reported, because verl forgot them, must not pile up


@dataclass(frozen=True, kw_only=True)
class PromptColumns:
    """What the data say of N prompts; columns that they lack are None."""

    count: int
    difficulty_N: Floats | None = None
    source_N: NDArray[np.str_] | None = None
    pass_rate_N: Floats | None = None


def spread_draws(
    weights_N: Floats, count: int, rng: np.random.Generator, *, strata_N: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Returns `count` prompts: each draw has the given probabilities, and together they are spread as evenly as can be.

    A prompt that is due x times comes floor(x) or ceil(x) times, and so do those of a stratum together (systematic
    sampling over an order that is random within strata): a batch has no prompt twice by mere chance, and its shares of
    sources hold up to one prompt.

    Args:
        weights_N: [N] finite, >= 0, not all 0.
        count: how many.
        rng: where chance comes from.
        strata_N: [N] which prompts belong together, such as those of one source.
    """
    order = rng.permutation(len(weights_N))
    if strata_N is not None:
        order = order[np.argsort(strata_N[order], kind="stable")]
    edges = np.cumsum(weights_N[order])
    points = (rng.random() + np.arange(count)) / count * edges[-1]
    drawn = order[np.searchsorted(edges, np.minimum(points, np.nextafter(edges[-1], 0.0)), side="right")]
    return rng.permutation(drawn)


class PromptSampler:
    """Draws the next prompt, ties groups to the prompts they came from, and learns from their outcomes.

    Where a curriculum gives weights, prompts are drawn in blocks of one batch (`spread_draws`), and what is left of a
    block is drawn anew as soon as an outcome has changed a weight. Where it gives an order, every prompt comes once an
    epoch, in the order of the epoch's beginning.
    """

    def __init__(
        self, settings: CurriculumSettings, columns: PromptColumns, *, block: int, seed: int | None = None
    ) -> None:
        """Builds a sampler at its beginning.

        Args:
            settings: which curriculum, and how.
            columns: what the data say of the prompts.
            block: prompts of a training step.
            seed: None takes another one every time.
        """
        self.settings = settings
        self.step = 1
        """Training step that prompts are drawn for."""
        self.rates = PassRates(columns.count, memory=settings.memory, prior_trials=settings.prior_trials)
        if columns.pass_rate_N is not None:
            self.rates.start_from(columns.pass_rate_N, trials=max(1.0, settings.prior_trials))
        tasks = settings.task_set
        self.tasks = tasks and TaskSet(patience=tasks.patience, value_bounds=tasks.value_bounds)
        self._base = columns.count
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
        self._weights_N()  # what the data lack is told now, not in the first step

    def __len__(self) -> int:
        """Returns the prompts of an epoch, by which verl counts epochs."""
        return self._base

    def __iter__(self) -> Iterator[int]:
        # An iterator of its own would be saved a second time.
        while True:
            yield self.draw()

    def draw(self) -> int:
        """Returns the next prompt: one that has just joined, or else what the curriculum asks for."""
        if not self._fresh:
            self._fill()
        prompt = (self._fresh or self._queue).popleft()
        self._place = (self._place + 1) % self._block
        self._drawn_for.append(prompt)
        return prompt

    def tie(self, uids: Sequence[str]) -> list[int]:
        """Ties groups to the prompts that were drawn last, in their order; returns the prompts."""
        assert len(self._drawn_for) >= len(uids), "verl has fetched fewer prompts than it uses"
        prompts = self._drawn_for[len(self._drawn_for) - len(uids) :]
        self._drawn_for.clear()
        self._in_flight.update(zip(uids, prompts, strict=True))
        for uid in list(self._in_flight)[: max(0, len(self._in_flight) - _MAX_IN_FLIGHT)]:
            del self._in_flight[uid]
        return prompts

    def report(self, outcomes: Mapping[str, Sequence[float]]) -> None:
        """Takes the outcomes of finished groups, whether they are trained on or not; unknown ones are ignored.

        Args:
            outcomes: uid of the group -> outcomes of its attempts, without the void ones.
        """
        for uid, values in outcomes.items():
            prompt = self._in_flight.pop(uid, None)
            if prompt is not None:
                self.rates.record(prompt, values)
        if self.tasks is not None:
            self.tasks.retire(self.rates)

    def group_sizes(self, prompts: Sequence[int], *, group_size: int) -> NDArray[np.int64] | None:
        """Returns how many attempts each prompt gets, `group_size` on average; None when all get that many."""
        bounds = self.settings.group_size
        if bounds is None:
            return None
        scores = self.rates.std_N[np.asarray(prompts)]
        return group_sizes(scores, budget=group_size * len(prompts), least=bounds.least, most=bounds.most)

    def propose(
        self, row: Mapping[str, Any], *, check: Check, difficulty: float = 0.0, source: str = "proposed"
    ) -> ProposalResult:
        """Lets a task join the prompts when it passes the check; it is drawn next, and then like all others."""
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
        """Returns the numbers of a step."""
        found = self.rates.metrics()
        if self.tasks is not None:
            found |= {"proposed_tasks": float(len(self.tasks)), "living_tasks": float(self.tasks.is_alive_N.sum())}
        return {f"curriculum/{name}": number for name, number in found.items()}

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that decides what comes next."""
        return {
            "curriculum": self.settings.name,
            "rates": self.rates.state_dict(),
            "random": self._rng.bit_generator.state,
            "queue": list(self._queue),
            "fresh": list(self._fresh),
            "place": self._place,
            "step": self.step,
            "seen_step": None if self._seen is None or self._seen[1] != self.rates.version else self._seen[0],
            "in_flight": dict(self._in_flight),
            "tasks": None if self.tasks is None else self.tasks.state_dict(),
            "difficulty": None if self._difficulty_N is None else self._difficulty_N[self._base :].copy(),
            "source": None if self._source_N is None else self._source_N[self._base :].tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where the state was taken; the curriculum may be another one, which then begins anew.

        Raises:
            DataError: the state is of other prompts.
        """
        if (state["tasks"] is None) != (self.tasks is None):
            raise DataError(
                "the checkpoint and the config differ in data.curriculum.task_set; resume with the same one"
            )
        grown = 0 if self.tasks is None else len(state["tasks"]["rows"])
        if self.tasks is not None:
            self.tasks.load_state_dict(state["tasks"])
            if self._difficulty_N is not None:
                self._difficulty_N = np.concatenate([self._difficulty_N[: self._base], state["difficulty"]])
            if self._source_N is not None:
                self._source_N = np.concatenate([self._source_N[: self._base], np.array(state["source"], dtype=str)])
        self.rates.grow(max(0, self._base + grown - len(self.rates)))
        self.rates.load_state_dict(state["rates"])
        self._in_flight, self._drawn_for = dict(state["in_flight"]), []
        self._fresh, self._queue, self._place, self._seen = deque(state["fresh"]), deque(), 0, None
        self._rng.bit_generator.state, self.step = state["random"], state["step"]
        if state["curriculum"] == self.settings.name:
            self._queue, self._place = deque(state["queue"]), state["place"]
            self._seen = None if state["seen_step"] is None else (state["seen_step"], self.rates.version)

    def _fill(self) -> None:
        """Makes sure that the queue has a prompt, of the newest weights where those are what counts."""
        if self._curriculum.returns == "order":
            alive = self._is_alive_N()
            while self._queue and not alive[self._queue[0]]:
                self._queue.popleft()
            if not self._queue:
                order = self._curriculum(self._pool(), **self.settings.options)
                self._queue = deque(order[alive[order]].tolist())
            return
        now = (self.step, self.rates.version)
        if not self._queue or self._seen != now:
            self._queue = deque(self._spread(self._block - self._place))
            self._seen = now

    def _spread(self, count: int) -> list[int]:
        strata = None if self._source_N is None else np.unique(self._source_N, return_inverse=True)[1]
        return spread_draws(self._weights_N(), count, self._rng, strata_N=strata).tolist()

    def _weights_N(self) -> Floats:
        """Returns the probability of every prompt."""
        given = self._curriculum(self._pool(), **self.settings.options)
        alive = self._is_alive_N().astype(np.float64)
        if self._curriculum.returns == "order":
            return alive / alive.sum()
        weights = given * alive
        even = alive / alive.sum()
        if not weights.any():
            return even
        weights = weights / weights.sum()
        floor = self.settings.floor if self._curriculum.revisits else 0.0
        return (1.0 - floor) * weights + floor * even

    def _pool(self) -> Pool:
        return Pool(rates=self.rates, step=self.step, difficulty_N=self._difficulty_N, source_N=self._source_N)

    def _is_alive_N(self) -> NDArray[np.bool_]:
        alive = np.ones(len(self.rates), dtype=bool)
        if self.tasks is not None:
            alive[self._base :] = self.tasks.is_alive_N
        return alive
