"""The page over HTTP: who may ask, and what is answered."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from stored_runs import stored_run

from verl_agentic.base.errors import ConfigError
from verl_agentic.observe.viewer.page_files import FILES
from verl_agentic.observe.viewer.run_view import RunView
from verl_agentic.observe.viewer.viewer_server import PageServer
from verl_agentic.web.listening.request_guard import is_loopback


def ask(url: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Asks as a browser that has opened the address `url`, with its secret if it has one."""
    place = urlsplit(url)
    if place.query:
        headers.setdefault("Cookie", f"verl_agentic_view_{place.port}={place.query.removeprefix('secret=')}")
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=10)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def data(url: str, name: str, /, **params: Any) -> Any:
    status, _, content = ask(url, f"/api/{name}?{urlencode(params, doseq=True)}")
    return status, json.loads(content)


@pytest.mark.parametrize("path", ["/", *(f"/{name}" for name in FILES), "/api/run", "/nothing", "/api/nothing"])
def test_every_answer_forbids_foreign_scripts_frames_and_guessed_types(url: str, path: str) -> None:
    status, headers, content = ask(url, path)
    assert status == (404 if "nothing" in path else 200) and content
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self';" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy and "require-trusted-types-for 'script'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert not any("access-control" in name for name in headers)


@pytest.mark.parametrize("path", ["/../server.py", "/..%2fserver.py", "/page/main.js", "//etc/passwd", "/index.html"])
def test_only_the_files_of_the_page_are_served(url: str, path: str) -> None:
    assert ask(url, path)[0] == 404


def test_everybody_needs_the_secret_of_the_address(view: RunView, serve: Any) -> None:
    with serve(view) as server:
        place, secret = server.url.split("/?")
        port = server.server_address[1]
        assert secret.startswith("secret=") and len(secret) > 30
        assert ask(place, "/api/run")[0] == 403
        assert ask(place, "/?secret=guess")[0] == 403
        assert ask(place, "/api/run", Cookie=f"verl_agentic_view_{port}=guess")[0] == 403
        status, headers, _ = ask(place, f"/?{secret}")
        cookie = headers["set-cookie"]
        assert status == 200 and "HttpOnly" in cookie and "SameSite=Strict" in cookie
        assert ask(place, "/api/run", Cookie=cookie.split(";")[0])[0] == 200
        with serve(view) as other:  # a browser sends the cookies of all ports
            _, headers, _ = ask(other.url.split("/?")[0], f"/?{urlsplit(other.url).query}")
            names = [one.partition("=")[0] for one in (cookie, headers["set-cookie"])]
            assert names[0] != names[1]


def test_it_listens_where_it_was_told_and_nowhere_else(view: RunView, serve: Any) -> None:
    with serve(view) as server:
        host, port = server.server_address
        assert host == "127.0.0.1"
        with pytest.raises(ConfigError, match=str(port)):
            PageServer(view, host="127.0.0.1", port=port)
        other = _other_address()
        if other is not None:
            with pytest.raises(OSError, match=r"refused|unreachable|timed out"):
                socket.create_connection((other, port), timeout=3)
    assert is_loopback("::1") and is_loopback("[::1]") and is_loopback("localhost") and not is_loopback("0.0.0.0")


def _other_address() -> str | None:
    """Returns an address of this machine that is not its loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return probe.getsockname()[0]


def test_data_of_a_link_come_back_for_that_link(url: str) -> None:
    key = {"split": "train", "step": 3, "uid": "g0003-01"}
    status, siblings = data(url, "group", **key)
    assert status == 200 and [row["session"] for row in siblings] == [0, 1, 2, 3]
    status, shown = data(url, "trajectory", **key, session=2, index=0)
    assert status == 200 and {name: shown["meta"][name] for name in key} == key and shown["meta"]["session"] == 2
    status, listed = data(url, "groups", sort="reward", step_min=3, step_max=3, limit=2, around_uid="g0003-01",
                          around_split="train", around_step=3)  # fmt: skip
    assert status == 200 and listed["total"] == 4 and len(listed["groups"]) == 2 and listed["place"] in range(4)


@pytest.mark.parametrize(
    ("name", "params", "said"),
    [
        ("trajectory", {"split": "train", "step": "x", "uid": "a"}, "step must be a whole number"),
        ("trajectory", {"split": "train", "step": 3, "uid": "g0003-01"}, "session must be a whole number"),
        ("group", {"split": "train", "step": 3, "uid": "nobody"}, "no such trajectory"),
        ("groups", {"reward_min": "high"}, "reward_min must be a number"),
        ("groups", {"limit": -1}, "limit must be a whole number"),
    ],
)
def test_a_link_that_leads_nowhere_is_answered_with_the_reason(url: str, name: str, params: Any, said: str) -> None:
    status, answer = data(url, name, **params)
    assert status == 400 and said in answer["error"]


def test_a_trajectory_whose_file_was_rotated_away_is_answered_with_the_reason(tmp_path: Path, serve: Any) -> None:
    view = RunView(stored_run(tmp_path, None, steps=3))
    key = {"split": "train", "step": 3, "uid": "g0003-01", "session": 2, "index": 0}
    for path in tmp_path.rglob("*.arrows"):
        path.unlink()
    with serve(view) as server:
        status, answer = data(server.url, "trajectory", **key)
        assert status == 500 and "removed: refresh" in answer["error"]
        assert data(server.url, "run")[0] == 200


def test_a_fault_of_the_viewer_is_answered_and_told(
    view: RunView, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def about(self) -> Any:
            return {"number": float("nan")}

    with serve(Broken()) as server:
        status, answer = data(server.url, "run")
    assert status == 500 and "ValueError" in answer["error"]
    assert "/api/run" in caplog.text


def test_a_browser_that_goes_before_its_answer_is_not_told_of(serve: Any, capfd: pytest.CaptureFixture[str]) -> None:
    begun, gone = threading.Event(), threading.Event()

    class Slow:
        def about(self) -> Any:
            begun.set()
            assert gone.wait(20)
            return {"text": "x" * 10_000_000}

    with serve(Slow()) as server:  # its end waits for the answer
        with socket.create_connection(server.server_address, timeout=5) as browser:
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            browser.sendall(f"GET /api/run?secret={server.secret} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert begun.wait(20)
        gone.set()
    assert capfd.readouterr().err == ""
