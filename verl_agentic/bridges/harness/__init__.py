"""Any agent that uses an OpenAI or Anthropic endpoint; by default one with a calculator that answers `python_math`.

The package starts the agent and a gateway, which answers the agent's requests with turns of the policy. See
`docs/gateway.md`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from verl_agentic.base.env import EnvRow
from verl_agentic.base.env_card import EnvCard
from verl_agentic.base.errors import ConfigError
from verl_agentic.base.registry import load_address
from verl_agentic.bridges.harness.dialects.wire import Server, SessionOptions
from verl_agentic.episode.env_package import load_env_package

if TYPE_CHECKING:
    from verl_agentic.bridges.harness.env import HarnessEnv, OnFailure

CARD = EnvCard(kind="your agents", size="your rows", licence="yours", extra="serve")
__all__ = ["CARD", "demonstrator", "gold", "make_env", "make_rows"]
_EXAMPLE = "verl_agentic.bridges.harness.example_agent"


def make_env(
    row: EnvRow,
    *,
    agent: str | Sequence[str] | Mapping[str, Any] | Callable[..., Any] | None = None,
    score: str | Callable[..., Any] | None = None,
    ignore: Sequence[str] = (),
    extra_keys: Sequence[str] = (),
    agent_variables: Sequence[str] = (),
    on_failure: OnFailure = "score_0",
    agent_timeout_s: float = 300.0,
    grace_s: float = 5.0,
    max_sides: int = 32,
    own_pattern: str = "",
    server: Server = "vllm",
    host: str = "",
    port: int = 0,
    public_url: str = "",
) -> HarnessEnv:
    """Returns the environment of one episode.

    Args:
        row: the task; the agent gets its prompt, and the keys of its `extra_info` that `extra_keys` names.
        agent: `module:function` or `path.py:function`, a command, the http address of a server that runs agents, or a
            section with the `image` of a container. None: the example.
        score: `module:function` or `path.py:function`; `score(row, result, transcript)` returns a number or a `Reward`.
            None: a rubric scores the episode.
        ignore: fields of requests that have no effect instead of being refused, such as `temperature`.
        extra_keys: keys of `extra_info` that the agent gets. Name none that holds a solution.
        agent_variables: names of environment variables that a command gets, beside PATH, HOME and LANG.
        on_failure: `score_0` scores an agent 0 that crashes or hangs after a turn of the policy. `void` takes its
            episode out of training.
        agent_timeout_s: time from an answer to the agent's next request or its end, in seconds.
        grace_s: time that an agent has to end after a budget ended its episode, in seconds.
        max_sides: maximum number of side conversations of an episode.
        own_pattern: regular expression of a message of the system, or of the task, of the agent's own conversation.
            Empty: the conversation is chosen by its messages.
        server: `vllm` or `sglang`: texts of several parts are joined as this server does.
        host: address that the gateway listens at. Empty: 127.0.0.1; with a container, this machine's in its network.
        port: port that the gateway listens at; 0: a free one.
        public_url: address of the gateway for other machines, such as `http://10.0.0.5:{port}`. Empty: host and port.

    Raises:
        ConfigError: an option has a wrong value.
        MissingDependencyError: the extra `serve` is not installed.
    """
    from verl_agentic.bridges.harness.agents import load_agent
    from verl_agentic.bridges.harness.env import HarnessEnv
    from verl_agentic.bridges.harness.gateway import Place

    if on_failure not in ("score_0", "void"):
        raise ConfigError(f"on_failure must be score_0 or void, got {on_failure!r}")
    if server not in get_args(Server):
        raise ConfigError(f"server must be one of {get_args(Server)}, got {server!r}")
    if agent is None:
        agent, score = f"{_EXAMPLE}:run", score or f"{_EXAMPLE}:score"
    return HarnessEnv(
        row,
        agent=load_agent(agent, variables=agent_variables),
        score=load_address(score, what="score") if isinstance(score, str) else score,
        place=Place(host=host, port=port, public_url=public_url),
        options=SessionOptions(ignore=frozenset(ignore), server=server),
        extra_keys=tuple(extra_keys),
        on_failure=on_failure,
        agent_timeout_s=agent_timeout_s,
        grace_s=grace_s,
        max_sides=max_sides,
        own_pattern=own_pattern,
    )


def make_rows(*, split: str, count: int, seed: int) -> list[EnvRow]:
    """Returns rows of the example: those of `python_math`."""
    return _load_example().make_rows(split=split, count=count, seed=seed)


def gold(row: EnvRow) -> Any:
    """Returns the solution of a row of the example."""
    return _load_example().gold(row)


def demonstrator(row: EnvRow, *, rng: random.Random) -> Any:
    """Returns a demonstration of a row of the example, of mixed quality."""
    return _load_example().demonstrator(row, rng=rng)


def _load_example() -> Any:
    return load_env_package("python_math")
