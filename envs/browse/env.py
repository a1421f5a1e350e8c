"""The environment `browse`: tools `search`, `open` and `find`; the final answer is compared with the right one."""

from __future__ import annotations

from typing import Literal, get_args

from verl_agentic import UNSCORED, ConfigError, EnvRow, Message, Reward, StopReason, ToolEnv, ToolResult, Transcript
from verl_agentic.rewards.answers.short_answers import golden_answers_of

from .library import WORLD, Library, open_library
from .quasi_match import final_part, quasi_match

Metric = Literal["quasi_em", "rubric"]
_MAX_QUERY_CHARS = 1_000
_MAX_TITLE_CHARS = 300
_MAX_FOUND = 10
_SNIPPET_CHARS = 120
_CONTEXT_CHARS = 80


class BrowseEnv(ToolEnv):
    """A question, pages with links, and a short answer (`row.ground_truth`)."""

    def __init__(self, row: EnvRow, library: Library, *, metric: Metric, top_k: int, part_chars: int) -> None:
        # One call after the other: `find` needs the page that `open` has opened.
        super().__init__(row, [self.search, self.open, self.find], max_parallel_calls=1)
        self._library = library
        self._metric: Metric = metric
        self._top_k = top_k
        self._part_chars = part_chars
        self._title, self._page = "", ""

    async def start(self) -> tuple[Message, ...]:
        """Returns the prompt; the first episode of a process waits for the index.

        Raises:
            ConfigError: the row was made for other pages.
        """
        fingerprint, expected = await self._library.ready(), self.row.extra.get("corpus")
        if expected and fingerprint != expected:
            raise ConfigError(
                f"the pages must be those that the row was made for, got {fingerprint!r} and {expected!r} for "
                f"{self.row.extra.get('task_id')!r}; set env_config.corpus to them"
            )
        return self.row.prompt

    async def search(self, query: str) -> ToolResult:
        """Searches all pages; returns titles and beginnings of those that fit best.

        Args:
            query: words to search for.
        """
        if not query.strip() or len(query) > _MAX_QUERY_CHARS:
            return _build_refusal(f"a query has 1 to {_MAX_QUERY_CHARS} characters; write another one")
        passages = await self._library.search(query, count=self._top_k)
        lines = [f"{n}. {p.title or p.id}: {_shorten_text(p.text)}" for n, p in enumerate(passages, start=1)]
        return ToolResult("\n".join(lines) or "No page fits this query.")

    async def open(self, title: str, part: int = 1) -> ToolResult:
        """Opens a page; links to other pages are in double square brackets.

        Args:
            title: of the page, as a search or a link shows it.
            part: of a long page, from 1.
        """
        page = self._library.page(title.strip().removeprefix("[[").removesuffix("]]"))
        if page is None:
            return _build_refusal(f"there is no page of this title; search for it. Got {title[:_MAX_TITLE_CHARS]!r}")
        parts = max(1, -(-len(page) // self._part_chars))
        if not 1 <= part <= parts:
            return _build_refusal(f"part must be 1 to {parts}")
        self._title, self._page = title, page
        text = page[(part - 1) * self._part_chars : part * self._part_chars]
        return ToolResult(text if parts == 1 else f"(part {part} of {parts})\n{text}")

    async def find(self, text: str) -> ToolResult:
        """Finds a text on the page that was opened last, in any case.

        Args:
            text: what to find.
        """
        if not self._page:
            return _build_refusal("no page is open; open one first", kind=None)
        if not text.strip():
            return _build_refusal("the text is empty; write what to find")
        places = _find_places(self._page.lower(), text.lower())
        lines = [self._excerpt_around(place, len(text)) for place in places[:_MAX_FOUND]]
        more = f"\nand {len(places) - _MAX_FOUND} more" if len(places) > _MAX_FOUND else ""
        return ToolResult("\n".join(lines) + more if places else "Not on this page.")

    def state_key(self) -> str:
        """Returns the title of the open page."""
        return self._title

    async def score(self, transcript: Transcript) -> Reward:
        """Returns 1 if the final answer matches a right one, else 0; the metric `rubric` leaves it to a rubric."""
        if self._metric == "rubric":
            return UNSCORED
        if transcript.stop_reason is not StopReason.ANSWERED:
            return Reward(0.0)
        answer = final_part(transcript.final_answer)
        return Reward(float(any(quasi_match(answer, right) for right in golden_answers_of(self.row.ground_truth))))

    def _excerpt_around(self, place: int, length: int) -> str:
        start, end = max(0, place - _CONTEXT_CHARS), place + length + _CONTEXT_CHARS
        part = 1 + place // self._part_chars
        return f"(part {part}) ... {' '.join(self._page[start:end].split())} ..."


def make_env(
    row: EnvRow, *, corpus: str = WORLD, metric: Metric = "quasi_em", top_k: int = 5, part_chars: int = 4_000
) -> BrowseEnv:
    """Returns the environment of one episode.

    Args:
        row: question and right answers.
        corpus: `world`, the generated pages, or a folder with `*.jsonl` files of passages; passages with one title are
            one page.
        metric: `quasi_em` is GAIA's match with `ground_truth`; `rubric` leaves the outcome to the rubric of the run,
            such as a judge.
        top_k: results of a search.
        part_chars: characters of a page that `open` shows at once.

    Raises:
        ConfigError: an option is invalid, or the row has criteria instead of an answer and the metric is `quasi_em`.
        DataError: the row has no answer.
    """
    if metric not in get_args(Metric):
        raise ConfigError(f"metric must be one of {get_args(Metric)}, got {metric!r}")
    if min(top_k, part_chars) < 1:
        raise ConfigError(f"top_k and part_chars must be at least 1, got {top_k} and {part_chars}")
    if metric == "quasi_em":
        if row.extra.get("is_open"):
            raise ConfigError(
                f"{row.extra.get('task_id')!r} has criteria, and no short answer; set env_config.metric to rubric, and "
                "a judge as the reward"
            )
        golden_answers_of(row.ground_truth)
    return BrowseEnv(row, open_library(corpus), metric=metric, top_k=top_k, part_chars=part_chars)


def _find_places(page: str, text: str) -> list[int]:
    places, place = [], page.find(text)
    while place >= 0:
        places.append(place)
        place = page.find(text, place + len(text))
    return places


def _shorten_text(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SNIPPET_CHARS else line[:_SNIPPET_CHARS].rstrip() + " ..."


def _build_refusal(reason: str, *, kind: str | None = "wrong_arguments") -> ToolResult:
    return ToolResult(f"Error: {reason}", is_error=True, error_kind=kind)
