"""The HTTP server of the page, by default for this machine only."""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import socket
import socketserver
import sys
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any

from verl_agentic.diagnostics.viewer.page_files import FILES, index_html, read
from verl_agentic.diagnostics.viewer.query import Query
from verl_agentic.diagnostics.viewer.run_view import Key, RunView
from verl_agentic.errors import ConfigError, DataError

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


class PageServer(ThreadingHTTPServer):
    """Serves one run until `shutdown`.

    At loopback, a request must name this machine as its host, which stops DNS rebinding by other web pages. At another
    address, the first request must have the secret of `url`.
    """

    daemon_threads = True

    def __init__(self, view: RunView, *, host: str, port: int) -> None:
        """Binds.

        Raises:
            ConfigError: the address is in use or does not belong to this machine.
        """
        self.view = view
        self.secret = "" if is_loopback(host) else secrets.token_urlsafe(24)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Request)
        except OSError as cause:
            raise ConfigError(f"cannot listen at {host}:{port}, got {cause}; choose another --port") from cause

    def server_bind(self) -> None:
        """Binds without a name server lookup of this machine's name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs the error, unless the browser closed the connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @property
    def cookie(self) -> str:
        """Name of the cookie with the secret. It contains the port, because all ports of a host share cookies."""
        return f"verl_agentic_view_{self.server_port}"

    @property
    def url(self) -> str:
        """Address of the page."""
        host = f"[{self.server_name}]" if ":" in self.server_name else self.server_name
        return f"http://{host}:{self.server_port}/" + (f"?secret={self.secret}" if self.secret else "")


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach an address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class _Request(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "verl-agentic", ""
    timeout = 60

    def do_GET(self) -> None:
        """Answers a request for the page, one of its files, or data."""
        url = urllib.parse.urlsplit(self.path)
        params = urllib.parse.parse_qs(url.query)
        if not self._is_welcome(params):
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"open the address that `verl-agentic view` has printed\n")
        elif url.path == "/":
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", index_html().encode(), cookie=bool(params))
        elif url.path.startswith("/api/"):
            self._answer(url.path.removeprefix("/api/"), params)
        elif (name := url.path.removeprefix("/")) in FILES:
            self._send(HTTPStatus.OK, _TYPES[name.rpartition(".")[2]], read(name).encode())
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"no such page\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Logs no requests to the user's terminal."""

    def _answer(self, name: str, params: _Params) -> None:
        answer = _ANSWERS.get(name)
        if answer is None:
            return self._send(HTTPStatus.NOT_FOUND, "application/json", _json({"error": "no such data"}))
        try:
            status, content = HTTPStatus.OK, _json(answer(self.server.view, params))
        except DataError as error:
            status, content = HTTPStatus.BAD_REQUEST, _json({"error": str(error)})
        except OSError as error:  # a log with a limit of size removes its oldest files
            told = f"the log's file cannot be read, got {error}; it may have been removed: refresh"
            status, content = HTTPStatus.INTERNAL_SERVER_ERROR, _json({"error": told})
        except Exception as error:
            logger.exception("no answer to %s", self.path)
            told = f"the viewer failed, got {type(error).__name__}: {error}; see its terminal"
            status, content = HTTPStatus.INTERNAL_SERVER_ERROR, _json({"error": told})
        self._send(status, "application/json", content)

    def _is_welcome(self, params: _Params) -> bool:
        if not self.server.secret:
            return is_loopback(_host_name(self.headers.get("Host", "")))
        try:
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            cookie = None
        shown = [*params.get("secret", ()), *([cookie.value] if cookie else ())]
        return any(hmac.compare_digest(value.encode(), self.server.secret.encode()) for value in shown)

    def _send(self, status: HTTPStatus, kind: str, content: bytes, *, cookie: bool = False) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": kind, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        if cookie and self.server.secret:
            said = f"{self.server.cookie}={self.server.secret}; Path=/; HttpOnly; SameSite=Strict"
            self.send_header("Set-Cookie", said)
        self.end_headers()
        self.wfile.write(content)


def _json(value: Any) -> bytes:
    content = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return content.encode("utf-8", errors="replace")


def _host_name(host: str) -> str:
    try:
        return urllib.parse.urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _run(view: RunView, params: _Params) -> Any:
    if params.get("refresh"):
        view.refresh()
    return view.about()


def _groups(view: RunView, params: _Params) -> Any:
    around = params.get("around_uid") and (*_group_key(params, "around_"),)
    return view.list_groups(
        Query.from_params(params),
        offset=_whole(params, "offset", 0),
        limit=_whole(params, "limit", 200),
        around=around or (),
    )


def _group(view: RunView, params: _Params) -> Any:
    return view.group(*_group_key(params))


def _trajectory(view: RunView, params: _Params) -> Any:
    key: Key = (*_group_key(params), _whole(params, "session"), _whole(params, "index"))
    return view.trajectory(key)


def _group_key(params: _Params, prefix: str = "") -> tuple[str, int, str]:
    split, uid = (params.get(f"{prefix}{name}", [""])[-1] for name in ("split", "uid"))
    return split, _whole(params, f"{prefix}step"), uid


def _whole(params: _Params, name: str, default: int | None = None) -> int:
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
    "run": _run,
    "news": lambda view, params: {"news": view.has_news()},
    "groups": _groups,
    "group": _group,
    "trajectory": _trajectory,
    "metrics": lambda view, params: view.metrics(params.get("name", ())),
}
