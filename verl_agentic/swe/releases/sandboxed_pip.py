"""Runs pip in a session of a sandbox that has no network. Sent there as source; imported nowhere.

`begin` starts pip in a thread, with `--report report` among its arguments. Whenever pip asks for a page or a file, the
call of the session ends, and its last line is `{"url": URL}`. The process outside writes the answer to the file
`answer`, or nothing, and calls `resume`. At the end the last line is `{"code": EXIT_CODE, "report": URLS}`.

pip starts no program here, so it builds nothing.
"""

import io
import json
import os
import queue
import sys
import threading
import traceback

_PROGRAMS = {"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"}
_to_parent: queue.Queue = queue.Queue()
_to_pip: queue.Queue = queue.Queue()


def begin(arguments: list, *, packages: str) -> None:
    """Starts pip with arguments, and prints its first request."""
    sys.addaudithook(_refuse_programs)
    sys.path.insert(0, os.path.abspath(packages))
    threading.Thread(target=_run_pip, args=(arguments,), daemon=True).start()
    print("\n" + json.dumps(_to_parent.get()))


def resume(is_answered: bool) -> None:
    """Gives pip the answer to its request, and prints the next one."""
    _to_pip.put(is_answered)
    print("\n" + json.dumps(_to_parent.get()))


def _refuse_programs(event: str, arguments: tuple) -> None:
    if event in _PROGRAMS:
        raise PermissionError("pip starts no program here")


def _run_pip(arguments: list) -> None:
    try:
        from pip._internal.cli.main import main
        from pip._internal.network import session
        from pip._vendor.requests.adapters import HTTPAdapter

        HTTPAdapter.send = _send_request  # pyright: ignore[reportAttributeAccessIssue]
        session.user_agent = lambda: "pip"  # which reads files that a sandbox may refuse
        code = main(arguments)
        report = None
        if code == 0:
            with open("report", encoding="utf-8") as file:
                report = [entry["download_info"]["url"] for entry in json.load(file)["install"]]
        _to_parent.put({"code": int(code), "report": report})
    except BaseException:
        traceback.print_exc()
        _to_parent.put({"code": 1, "report": None})


def _send_request(self, request, **options):
    """Takes the place of `HTTPAdapter.send`."""
    from pip._vendor.urllib3.response import HTTPResponse

    is_answered = False
    if request.method == "GET":
        _to_parent.put({"url": request.url})
        is_answered = _to_pip.get()
    body = b""
    if is_answered:
        with open("answer", "rb") as file:
            body = file.read()
    raw = HTTPResponse(
        body=io.BytesIO(body),
        headers={"Content-Type": "text/html", "Content-Length": str(len(body))},
        status=200 if is_answered else 404,
        preload_content=False,
    )
    return self.build_response(request, raw)
