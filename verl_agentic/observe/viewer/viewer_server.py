"""The HTTP server of the page, by default for this machine only. Every request needs the secret of its address."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any

from verl_agentic.base.errors import DataError
from verl_agentic.log.run_files import name_runs
from verl_agentic.observe.viewer.page_files import FILES, index_html, read
from verl_agentic.observe.viewer.query import Query
from verl_agentic.observe.viewer.run_view import Key, RunView
from verl_agentic.web.listening.guarded_server import GuardedServer
from verl_agentic.web.listening.listening_socket import open_socket, url_of
from verl_agentic.web.listening.request_guard import RequestGuard, RequestRefusedError, read_headers

logger = logging.getLogger(__name__)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
_Params = Mapping[str, Sequence[str]]


class PageServer:
    """Serves runs until `shutdown`. Requests must have the secret of `url`; the first answer makes it a cookie."""

    def __init__(self, *views: RunView, host: str, port: int) -> None:
        """Binds.

        Args:
            views: of the runs; requests name one by its place, `run`, and get the first by default.
            host: address to listen at.
            port: to listen at; 0: a free one.

        Raises:
            ConfigError: the address is in use or does not belong to this machine.
        """
        self.secret = secrets.token_urlsafe(24)
        self._views = views
        self._socket = open_socket(host, port)
        self.server_address: tuple[str, int] = self._socket.getsockname()[:2]
        self.app = RequestGuard(self._answer_request, authorize=self._check_secret)
        """The ASGI application."""
        self._http = GuardedServer(self.app, has_signals=False)

    def __enter__(self) -> PageServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def serve_forever(self) -> None:
        """Answers requests until `shutdown`."""
        asyncio.run(self._http.serve([self._socket]))

    def shutdown(self) -> None:
        """Ends `serve_forever`, from any thread."""
        self._http.should_exit = True

    @property
    def cookie(self) -> str:
        """Name of the cookie with the secret. It contains the port, because all ports of a host share cookies."""
        return f"verl_agentic_view_{self.server_address[1]}"

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"{url_of(self._socket)}/?secret={self.secret}"

    async def _answer_request(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers a request for the page, one of its files, or data; an ASGI application."""
        params = _parse_params(scope)
        path, headers = scope["path"], dict(_HEADERS)
        if scope["method"] != "GET":
            status, kind, content = HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"the page is only read\n"
        elif path == "/":
            status, kind, content = HTTPStatus.OK, "text/html; charset=utf-8", index_html().encode()
            if params:
                headers["Set-Cookie"] = f"{self.cookie}={self.secret}; Path=/; HttpOnly; SameSite=Strict"
        elif path.startswith("/api/"):
            status, content = await asyncio.to_thread(_answer_data, self._views, path.removeprefix("/api/"), params)
            kind = "application/json"
        elif (name := path.removeprefix("/")) in FILES:
            status, kind, content = HTTPStatus.OK, _TYPES[name.rpartition(".")[2]], read(name).encode()
        else:
            status, kind, content = HTTPStatus.NOT_FOUND, "text/plain", b"no such page\n"
        headers |= {"Content-Type": kind, "Content-Length": str(len(content))}
        sent = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": sent})
        await send({"type": "http.response.body", "body": content})

    def _check_secret(self, scope: Any) -> None:
        shown_secrets = list(_parse_params(scope).get("secret", ()))
        for header in read_headers(scope)["cookie"]:
            try:
                cookie = SimpleCookie(header).get(self.cookie)
            except CookieError:
                continue
            shown_secrets += [cookie.value] if cookie else []
        if not any(hmac.compare_digest(value.encode(), self.secret.encode()) for value in shown_secrets):
            raise RequestRefusedError(403, "open the address that `verl-agentic view` has printed")


def _parse_params(scope: Any) -> _Params:
    return urllib.parse.parse_qs(scope["query_string"].decode("latin-1"))


def _answer_data(views: Sequence[RunView], name: str, params: _Params) -> tuple[HTTPStatus, bytes]:
    try:
        if name in _ANSWERS_OF_ALL:
            return HTTPStatus.OK, _to_json(_ANSWERS_OF_ALL[name]([view.run_dir for view in views]))
        if name in _ANSWERS:
            return HTTPStatus.OK, _to_json(_ANSWERS[name](_get_view(views, params), params))
        return HTTPStatus.NOT_FOUND, _to_json({"error": "no such data"})
    except DataError as error:
        return HTTPStatus.BAD_REQUEST, _to_json({"error": str(error)})
    except OSError as error:  # a log with a limit of size removes its oldest files
        message = f"the log's file cannot be read, got {error}; it may have been removed: refresh"
    except Exception as error:
        logger.exception("no answer to /api/%s", name)
        message = f"the viewer failed, got {type(error).__name__}: {error}; see its terminal"
    return HTTPStatus.INTERNAL_SERVER_ERROR, _to_json({"error": message})


def _to_json(value: Any) -> bytes:
    content = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return content.encode("utf-8", errors="replace")


def _get_view(views: Sequence[RunView], params: _Params) -> RunView:
    place = _read_whole_number(params, "run", 0)
    if place >= len(views):
        raise DataError(f"there are {len(views)} runs, got run {place}; fix the link")
    return views[place]


def _get_run(view: RunView, params: _Params) -> Any:
    if params.get("refresh"):
        view.refresh()
    return view.about()


def _get_groups(view: RunView, params: _Params) -> Any:
    around = params.get("around_uid") and (*_group_key(params, "around_"),)
    return view.list_groups(
        Query.from_params(params),
        offset=_read_whole_number(params, "offset", 0),
        limit=_read_whole_number(params, "limit", 200),
        around=around or (),
    )


def _get_group(view: RunView, params: _Params) -> Any:
    return view.group(*_group_key(params))


def _get_trajectory(view: RunView, params: _Params) -> Any:
    key: Key = (*_group_key(params), _read_whole_number(params, "session"), _read_whole_number(params, "index"))
    return view.trajectory(key)


def _get_comparison(run_dirs: Sequence[Path]) -> Any:
    from verl_agentic.observe.comparison.comparison_page import describe_comparison  # imports pandas

    return describe_comparison(run_dirs)


def _group_key(params: _Params, prefix: str = "") -> tuple[str, int, str]:
    split, uid = (params.get(f"{prefix}{name}", [""])[-1] for name in ("split", "uid"))
    return split, _read_whole_number(params, f"{prefix}step"), uid


def _read_whole_number(params: _Params, name: str, default: int | None = None) -> int:
    text = params.get(name, [""])[-1]
    if not text and default is not None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value < 2**31:
        raise DataError(f"{name} must be a whole number, got {text!r}; fix the link")
    return value


_ANSWERS: dict[str, Callable[[RunView, _Params], Any]] = {
    "run": _get_run,
    "news": lambda view, params: {"news": view.has_news()},
    "groups": _get_groups,
    "group": _get_group,
    "trajectory": _get_trajectory,
    "episodes": lambda view, params: view.newest_group(params.get("task", [""])[-1]),
    "metrics": lambda view, params: view.metrics(params.get("name", ())),
}
_ANSWERS_OF_ALL: dict[str, Callable[[Sequence[Path]], Any]] = {"runs": name_runs, "comparison": _get_comparison}
"""Of the folders of all runs."""
