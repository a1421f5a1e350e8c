"""The package of a remote environment: its rows, solutions and descriptions come from the server too."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from verl_agentic.base.env import Env, EnvRow
from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import EnvError, EnvUnavailableError, boundary
from verl_agentic.base.types import Message
from verl_agentic.bridges.remote.addresses import token_of, urls_of
from verl_agentic.bridges.remote.wire import CALLS, dumps, error_of, to_messages, to_row
from verl_agentic.rewards.sample import Sample

if TYPE_CHECKING:
    import httpx

_TIMEOUT_S = 300.0


def make_env(
    row: EnvRow,
    *,
    url: str | Sequence[str] | None = None,
    token: str = "",
    config: Mapping[str, Any] | None = None,
    wait_s: float = 90.0,
    batch_wait_s: float = 0.002,
) -> Env:
    """Returns the environment of one episode.

    Args:
        row: of the episode.
        url: address of the server, or several of equal servers; default: those in `VERL_AGENTIC_ENV_URL`.
        token: of the servers; default: that in `VERL_AGENTIC_ENV_TOKEN`.
        config: keyword arguments of the environment's own `make_env`, added to those of the server.
        wait_s: time to get a session, in seconds, if all servers are full or cannot be reached.
        batch_wait_s: time that a call waits for calls of other episodes to share its request, in seconds.

    Raises:
        ConfigError: there is no address, or an argument is out of range.
    """
    from verl_agentic.bridges.remote.remote_env import EnvClientConfig, RemoteEnv

    client = EnvClientConfig(urls=urls_of(url), token=token_of(token), wait_s=wait_s, batch_wait_s=batch_wait_s)
    return RemoteEnv(row, config=client, env_config=config)


def make_rows(*, split: str, count: int, seed: int, **options: Any) -> list[EnvRow]:
    """Returns rows that the server makes, with the options of its environment."""
    rows = _call_server("rows", {"split": split, "count": count, "seed": seed, **options})
    with boundary(EnvError, "reading the rows of an environment server"):
        return [to_row(row) for row in rows]


def gold(row: EnvRow) -> Callable[[Sequence[Message]], Message]:
    """Returns the solution, which asks the server for every message."""

    def next_message(messages: Sequence[Message]) -> Message:
        message = _call_server("gold", {"row": row, "messages": list(messages)})
        with boundary(EnvError, "reading the solution of an environment server"):
            return to_messages([message])[0]

    return next_message


def describe(sample: Sample) -> str | None:
    """Returns the task that an episode has solved by where it ended, if the environment can tell."""
    return _call_server("describe", {"sample": sample.to_dict()})


@functools.cache
def _make_client(has_tls: bool) -> httpx.Client:
    import httpx

    return httpx.Client(timeout=_TIMEOUT_S, verify=has_tls)  # reading the certificates takes longer than many calls


def _call_server(op: str, data: Mapping[str, Any]) -> Any:
    """Returns the result of a call of the package, from the first server that can be reached."""
    with needs_extra("remote", what="a remote environment"):
        from httpx import TransportError
    token, body = token_of(""), dumps({"calls": [{"op": op, "session": "", "data": data}]})
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    failures = []
    for url in urls_of(None):
        try:
            response = _make_client(url.startswith("https")).post(url + CALLS, content=body, headers=headers)
        except TransportError as cause:
            failures.append(f"{url}: {type(cause).__name__}: {cause}")
            continue
        if response.status_code != 200:
            raise EnvError(f"{url} refused {op}, got HTTP {response.status_code}: {response.text[:300]}; see its log")
        with boundary(EnvError, "reading the answer of an environment server"):
            answer = json.loads(response.content)
        if "error" in answer:
            raise error_of(answer)
        return answer["result"]
    raise EnvUnavailableError(f"no environment server can be reached, got {'; '.join(failures)}; check that they run")
