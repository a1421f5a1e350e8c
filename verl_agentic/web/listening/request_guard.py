"""Checks that every HTTP server of this package makes before its application sees a request, as ASGI middleware.

A web page can make the browser of a user send requests to servers on the user's machine. So `Host`, `Origin` and
`Sec-Fetch-Site` must be those of a program or of the server's own page. Then the caller must be allowed, and only then
is a body read. A body is JSON, announced as JSON, and limited in size and depth.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import json
import socket
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Authorize = Callable[[Scope], None]
"""Raises RequestRefusedError unless a request is allowed."""
WriteRefusal = Callable[[Scope, int, str], Mapping[str, Any]]
"""Returns the JSON of a refusal: status and message."""
MAX_DEPTH = 100
"""Maximum depth of lists and objects in a body. Python's parsers and templates fail at about 1000."""
_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
_OWN_SITES = frozenset({"same-origin", "none"})


class RequestRefusedError(Exception):
    """A request is refused. Never leaves a server."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RequestGuard:
    """The checks around an ASGI application. The parsed body is in `scope["state"]["json"]` (`request.state.json`)."""

    def __init__(
        self,
        app: Any,
        *,
        authorize: Authorize,
        max_body_bytes: int = 64 * 2**20,
        host_names: Collection[str] = (),
        write_refusal: WriteRefusal = lambda scope, status, message: {"detail": message},
    ) -> None:
        """Makes the middleware.

        Args:
            app: the application.
            authorize: see `require_token`.
            max_body_bytes: maximum size of a body.
            host_names: names by which connections to loopback may call the server, beside `localhost` and the name of
                this machine.
            write_refusal: writes refusals in the form of the API.
        """
        self._app = app
        self._authorize = authorize
        self._max_body_bytes = max_body_bytes
        self._host_names = frozenset(map(str.lower, (*host_names, socket.gethostname())))
        self._write_refusal = write_refusal

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Passes an allowed request on, and answers another one."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":  # no server here has WebSockets
            return await send({"type": "websocket.close"})
        try:
            headers = read_headers(scope)
            check_site(scope, headers, host_names=self._host_names)
            self._authorize(scope)
            if scope["method"] not in _WITHOUT_BODY:
                body = await self._read_body(headers, receive)
                if body is None:  # the client has gone
                    return None
                scope.setdefault("state", {})["json"] = parse_json(body)
                receive = _replay_body(body, receive)
        except RequestRefusedError as refusal:
            return await self._send_refusal(scope, send, refusal)
        return await self._app(scope, receive, send)

    async def _read_body(self, headers: Mapping[str, Sequence[str]], receive: Any) -> bytes | None:
        """Returns the body; None if the client disconnects."""
        kinds = [value.partition(";")[0].strip().lower() for value in headers["content-type"]]
        if not kinds or set(kinds) != {"application/json"}:
            raise RequestRefusedError(
                415, f"a body must be application/json, got {kinds or 'no Content-Type'}; name it so"
            )
        body, is_complete = bytearray(), False
        declared = max(map(int, filter(str.isdecimal, headers["content-length"])), default=0)
        while not is_complete:
            if max(declared, len(body)) > self._max_body_bytes:
                raise RequestRefusedError(
                    413, f"a request has at most {self._max_body_bytes} bytes, got more; send less"
                )
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            is_complete = not message.get("more_body") and len(body) <= self._max_body_bytes
        return bytes(body)

    async def _send_refusal(self, scope: Scope, send: Any, refusal: RequestRefusedError) -> None:
        content = json.dumps(self._write_refusal(scope, refusal.status, str(refusal))).encode()
        headers = {
            "content-type": "application/json",
            "content-length": str(len(content)),
            "x-content-type-options": "nosniff",
            **({"www-authenticate": "Bearer"} if refusal.status == 401 else {}),
        }
        await send(
            {
                "type": "http.response.start",
                "status": refusal.status,
                "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
            }
        )
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else content})


def read_headers(scope: Scope) -> Mapping[str, Sequence[str]]:
    """Returns the values of each header, by its name in lower case."""
    headers: dict[str, list[str]] = defaultdict(list)
    for name, value in scope["headers"]:
        headers[name.decode("latin-1").lower()].append(value.decode("latin-1").strip())
    return headers


def check_site(scope: Scope, headers: Mapping[str, Sequence[str]], *, host_names: Collection[str] = ()) -> None:
    """Checks that no foreign web page sent a request.

    A page whose name was made to point to this machine (DNS rebinding) sends its own name as `Host`. Beyond loopback,
    the server may have any name, and the token is the protection.

    Raises:
        RequestRefusedError: a page of another site may have sent it.
    """
    host = (headers["host"] or [""])[0]
    name, local = host_name(host), scope.get("server")
    if (local is None or is_loopback(local[0])) and not is_loopback(name) and name not in host_names:
        raise RequestRefusedError(
            403, f"a page of another site may have sent this, got Host {host!r}; call it localhost"
        )
    if any(_place_of(origin) != host.lower() for origin in headers["origin"]):
        raise RequestRefusedError(403, f"web pages of other sites must not ask, got Origin {headers['origin'][0]!r}")
    if not _OWN_SITES.issuperset(headers["sec-fetch-site"]):
        raise RequestRefusedError(403, f"web pages of other sites must not ask, got {headers['sec-fetch-site'][0]!r}")


def require_token(token: str, *, public_paths: Collection[str] = ("/health",)) -> Authorize:
    """Returns the check of a token: bearer token, `x-api-key`, or password of a URL. Empty: no token is needed."""

    def authorize(scope: Scope) -> None:
        if token and scope["path"] not in public_paths and not is_shown(token, read_headers(scope)):
            raise RequestRefusedError(401, "a token is needed, got none or a wrong one; send it as bearer token")

    return authorize


def is_shown(token: str, headers: Mapping[str, Sequence[str]]) -> bool:
    """Returns whether headers have a token."""
    candidates = [value.encode("latin-1") for value in headers["x-api-key"]]
    for header in headers["authorization"]:
        scheme, _, value = header.partition(" ")
        if scheme.lower() == "bearer":
            candidates.append(value.strip().encode("latin-1"))
        elif scheme.lower() == "basic":
            try:
                candidates.append(base64.b64decode(value.strip(), validate=True).partition(b":")[2])
            except (binascii.Error, ValueError):
                continue
    return any(hmac.compare_digest(candidate, token.encode()) for candidate in candidates)


def parse_json(body: bytes) -> Any:
    """Returns the value of a body. Raises RequestRefusedError if it is not JSON, or too deep."""
    try:
        value = json.loads(body)
        if _is_deeper(value, MAX_DEPTH):
            raise RecursionError(f"more than {MAX_DEPTH} levels")
    except (ValueError, RecursionError) as cause:
        raise RequestRefusedError(
            400, f"the body must be JSON, got {type(cause).__name__}: {cause}; send an object"
        ) from cause
    return value


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach an address."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host.lower() == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def host_name(host: str) -> str:
    """Returns the name in a `Host` header, without its port; empty if it is malformed."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _place_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _is_deeper(value: Any, limit: int) -> bool:
    layer = [value] if isinstance(value, (dict, list)) else []
    for _ in range(limit):
        layer = [
            part
            for node in layer
            for part in (node.values() if isinstance(node, dict) else node)
            if isinstance(part, (dict, list))
        ]
    return bool(layer)


def _replay_body(body: bytes, receive: Any) -> Callable[[], Awaitable[Any]]:
    """Returns a `receive` that gives the body once more."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Any:
        return messages.pop() if messages else await receive()

    return replay
