"""The environment `search_qa`: one tool, `search`; the final answer is compared with the golden ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from verl_agentic import (
    Action,
    ConfigError,
    DelegateTool,
    EnvRow,
    Message,
    Observation,
    Reward,
    StopReason,
    ToolEnv,
    Transcript,
)
from verl_agentic.data.proposer_env import SelfPlay
from verl_agentic.rewards.answers.short_answers import (
    exact_match,
    f1,
    golden_answers_of,
    has_research_form,
    research_reward,
)
from verl_agentic.tools.search.local_retriever import Kind, LocalRetriever, local_retriever
from verl_agentic.tools.search.retriever import Retriever
from verl_agentic.tools.search.search_tool import SearchTool

from .docstrings import DOCSTRINGS, docstrings_folder
from .judge import JudgeTool
from .proposer import SearchProposer
from .question import MAX_PASSAGE_CHARS, TOP_K
from .synthetic import SYNTHETIC, synthetic_retriever

Metric = Literal["em", "f1", "research"]
_HELPER = "Search, then answer with what was asked for and nothing else."
_SLACK_S = 5.0  # the HTTP client has the better error, so the tool's own deadline is later


class SearchQaEnv(ToolEnv):
    """A question, a corpus, and one or several right answers (`row.ground_truth`)."""

    def __init__(
        self,
        row: EnvRow,
        retriever: Retriever,
        *,
        tool: SearchTool,
        metric: Metric,
        tool_timeout_s: float,
        helper: DelegateTool | None = None,
        judge: JudgeTool | None = None,
    ) -> None:
        # A call past the environment's deadline is an error of the policy. A slow search is a failure of the retriever,
        # so the tool's deadline is shorter.
        tools = [tool, *(extra for extra in (helper, judge) if extra is not None)]
        super().__init__(row, tools, tool_timeout_s=tool_timeout_s)
        self._judge = judge
        self._retriever = retriever
        self._golden_answers = golden_answers_of(row.ground_truth)
        self._metric: Metric = metric

    async def start(self) -> tuple[Message, ...]:
        """Returns the prompt; the first episode of a process waits for the index.

        Raises:
            ConfigError: the row was made for another corpus.
        """
        await self._retriever.ready()
        expected = self.row.extra.get("corpus")
        if expected and isinstance(self._retriever, LocalRetriever):
            fingerprint = (await self._retriever.index()).fingerprint
            if fingerprint != expected:
                raise ConfigError(
                    f"the corpus must be the one that the row was made for, got {fingerprint!r} and {expected!r} for "
                    f"{self.row.extra.get('task_id')!r}; set env_config.corpus to that corpus, or make the rows anew"
                )
        return self.row.prompt

    async def step(self, action: Action) -> Observation:
        """Answers the calls of a turn; a result that the policy judges as bad leaves the context."""
        observation = await super().step(action)
        if self._judge is None:
            return observation
        return replace(observation, dropped_calls=self._judge.after_turn(action.tool_calls))

    async def score(self, transcript: Transcript) -> Reward:
        """Scores the final answer; without one the outcome is 0."""
        answer = transcript.final_answer
        if transcript.stop_reason is not StopReason.ANSWERED or not answer.strip():
            return Reward(0.0)
        if self._metric == "em":
            return Reward(exact_match(answer, self._golden_answers))
        if self._metric == "f1":
            return Reward(f1(answer, self._golden_answers))
        is_well_formed = has_research_form([action.text for action in transcript.actions])
        outcome = f1(answer, self._golden_answers) if is_well_formed else 0.0
        value = research_reward(answer, self._golden_answers, is_well_formed=is_well_formed)
        return Reward(outcome, {"form": value - outcome})


def make_env(
    row: EnvRow,
    *,
    corpus: str = SYNTHETIC,
    url: str = "",
    retriever: Kind = "bm25",
    embedding_model: str = "minilm",
    top_k: int = TOP_K,
    max_passage_chars: int = MAX_PASSAGE_CHARS,
    metric: Metric = "em",
    deadline_s: float = 60.0,
    helper_turns: int = 0,
    judge: bool = False,
    attempts: int = 5,
    solver_turns: int = 10,
    proposals: str = "",
) -> ToolEnv:
    """Returns the environment of one episode.

    Args:
        row: question and golden answers.
        corpus: `synthetic`, `docstrings` (Python's standard library), or a folder with `*.jsonl` files of passages; it
            is indexed in this process.
        url: a server with Search-R1's contract, instead of a corpus.
        retriever: `bm25` (equal words), `dense` (similar meaning) or `hybrid` (both), over `docstrings` or a folder.
        embedding_model: of `dense` and `hybrid`: a model that `verl-agentic model fetch` knows, or a folder.
        top_k: number of passages that a search shows.
        max_passage_chars: characters shown of a passage.
        metric: `em` (exact match), `f1`, or `research` (ReSearch's: F1, a broken form 0, an answer without a right word
            0.1).
        deadline_s: limit of a search, in seconds; after it the episode is void.
        helper_turns: if above 0, the policy also has the tool `delegate`: a helper with the tool `search` and this many
            turns. Needs a protocol that can call it, such as `chat`.
        judge: the policy also has the tool `judge`, for the protocol `reseek`: a search result that it judges as bad
            leaves the context.
        attempts: number of attempts of the solver at a proposed question.
        solver_turns: turns of the solver.
        proposals: file that questions of proposers are appended to in training; empty: they are not kept.

    Raises:
        ConfigError: an option is out of its range.
    """
    _check_options(metric, helper_turns)
    opened = _open_retriever(corpus, url, retriever, embedding_model=embedding_model, deadline_s=deadline_s)
    longest_s = deadline_s + _SLACK_S
    tool = SearchTool(opened, top_k=top_k, max_passage_chars=max_passage_chars, deadline_s=longest_s)
    if row.extra.get("role") == "propose":
        return SearchProposer(
            row, opened, tool=tool, settings=SelfPlay(attempts=attempts, proposals=proposals),
            solver_turns=solver_turns, max_passage_chars=max_passage_chars, tool_timeout_s=2 * longest_s,
        )  # fmt: skip
    return SearchQaEnv(
        row, opened, tool=tool, metric=metric, tool_timeout_s=2 * longest_s,
        helper=_build_helper(tool, max_turns=helper_turns, turn_s=2 * longest_s) if helper_turns else None,
        judge=JudgeTool() if judge else None,
    )  # fmt: skip


def _check_options(metric: str, helper_turns: int) -> None:
    if metric not in ("em", "f1", "research"):
        raise ConfigError(f"metric must be em, f1 or research, got {metric!r}")
    if helper_turns < 0:
        raise ConfigError(f"helper_turns must not be negative, got {helper_turns!r}")


def _build_helper(tool: SearchTool, *, max_turns: int, turn_s: float) -> DelegateTool:
    return DelegateTool([tool], max_turns=max_turns, instructions=_HELPER, timeout_s=turn_s * max_turns)


def _open_retriever(corpus: str, url: str, kind: Kind, *, embedding_model: str, deadline_s: float) -> Retriever:
    if kind != "bm25" and (url or corpus == SYNTHETIC):
        raise ConfigError(
            f"retriever {kind!r} needs the corpus docstrings or a folder, got {url or corpus!r}; a server has its own "
            "option, and the invented names of the synthetic corpus have no meaning to compare"
        )
    if not url:
        if corpus == SYNTHETIC:
            return synthetic_retriever()
        folder = docstrings_folder() if corpus == DOCSTRINGS else corpus
        return local_retriever(folder, kind=kind, embedding_model=embedding_model)
    if corpus != SYNTHETIC:
        raise ConfigError(f"give either corpus or url, got {corpus!r} and {url!r}")
    from verl_agentic.tools.search.http_retriever import HttpConfig
    from verl_agentic.tools.search.shared_client import http_retriever

    return http_retriever(HttpConfig(url=url, deadline_s=deadline_s))
