"""The HTTP APIs of E2B, Daytona and Kubernetes' agent-sandbox on loopback, over fake machines."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from fake_machine import FakeMachine
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

GONE = "The sandbox was not found"


@dataclass
class Fault:
    """The next answers to requests whose method and path match a pattern."""

    pattern: str
    status: int
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)
    is_late: bool = False
    """True if the request is carried out, and only its answer is lost."""


class FakeCloud:
    """The state that the three APIs share."""

    def __init__(self) -> None:
        self.machines: dict[str, FakeMachine] = {}
        self.orders: list[dict[str, Any]] = []
        """Bodies of requests for machines."""
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        """Method and path of each request."""
        self.start_delay_s = 0.0
        self.prefix: list[str] = []
        """Arguments in front of each program."""
        self._numbers = itertools.count(1)

    def order(self, body: dict[str, Any], name: str | None = None) -> str:
        """Makes a machine and returns its name."""
        self.orders.append(body)
        name = name or f"machine-{next(self._numbers)}"
        self.machines[name] = FakeMachine(self.prefix)
        return name

    def remove(self, name: str) -> bool:
        """Ends a machine, as a client or the end of a lease does; False if it is not there."""
        machine = self.machines.pop(name, None)
        if machine is not None:
            machine.end()
        return machine is not None

    def end_all_leases(self) -> None:
        for name in list(self.machines):
            self.remove(name)

    def fault(self, what: str) -> Fault | None:
        """Notes a request and returns its fault."""
        self.requests.append(what)
        fault = next((f for f in self.faults if f.times > 0 and re.search(f.pattern, what)), None)
        if fault is not None:
            fault.times -= 1
        return fault

    def app(self) -> Any:
        """Returns the server of all APIs."""
        routes = [*_e2b(self), *_daytona(self), *_kubernetes(self)]
        app = Starlette(routes=routes)

        async def with_faults(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                what = f"{scope['method']} {scope['path']}"
                fault = self.fault(what)
                if fault is not None:
                    if fault.is_late:
                        await app(scope, receive, _drop)
                    body = {"message": "injected", "code": fault.status}
                    await JSONResponse(body, fault.status, headers=fault.headers)(scope, receive, send)
                    return
            await app(scope, receive, send)

        return with_faults


async def _drop(message: Any) -> None: ...


def _e2b(cloud: FakeCloud) -> list[Route]:
    async def create(request: Request) -> Response:
        body = await request.json()
        await asyncio.sleep(cloud.start_delay_s)
        name = cloud.order(body)
        answer = {"templateID": body["templateID"], "sandboxID": name, "clientID": "x", "envdVersion": "0.4.0"}
        return JSONResponse(answer, 201)

    async def remove(request: Request) -> Response:
        return Response(status_code=204 if cloud.remove(request.path_params["name"]) else 404)

    async def start(request: Request) -> Response:
        machine = cloud.machines.get(request.headers["e2b-sandbox-id"])
        if machine is None:
            return JSONResponse({"message": GONE}, 502)
        assert _user(request) == "root"
        process = json.loads((await request.body())[5:])["process"]

        async def events() -> AsyncIterator[bytes]:
            yield _envelope({"event": {"start": {"pid": 1}}})
            code, stdout, stderr = await machine.run([process["cmd"], *process["args"]])
            for name, data in (("stdout", stdout), ("stderr", stderr)):
                yield _envelope({"event": {"data": {name: base64.b64encode(data).decode()}}})
            yield _envelope({"event": {"end": {"exitCode": code, "exited": True, "status": f"exit status {code}"}}})
            yield _envelope({}, flags=2)

        return StreamingResponse(events(), media_type="application/connect+json")

    async def upload(request: Request) -> Response:
        machine = cloud.machines.get(request.headers["e2b-sandbox-id"])
        if machine is None:
            return JSONResponse({"message": GONE}, 502)
        path = request.query_params["path"]
        async with request.form(max_part_size=1 << 30) as form:
            data = await form["file"].read()  # type: ignore[union-attr]
        await machine.write(path, data)
        return JSONResponse([{"name": path.rpartition("/")[2], "path": path, "type": "file"}])

    return [
        Route("/e2b/v2/sandboxes", create, methods=["POST"]),
        Route("/e2b/sandboxes/{name}", remove, methods=["DELETE"]),
        Route("/envd/process.Process/Start", start, methods=["POST"]),
        Route("/envd/files", upload, methods=["POST"]),
        Route("/envd/health", lambda request: Response(status_code=204)),
    ]


def _user(request: Request) -> str:
    _, _, encoded = request.headers["authorization"].partition(" ")
    return base64.b64decode(encoded).decode().partition(":")[0]


def _envelope(message: dict[str, Any], *, flags: int = 0) -> bytes:
    text = json.dumps(message).encode()
    return bytes([flags]) + len(text).to_bytes(4, "big") + text


def _daytona(cloud: FakeCloud) -> list[Route]:
    ready_at: dict[str, float] = {}

    def answer(request: Request, name: str) -> Response:
        if name not in cloud.machines:
            return JSONResponse({"message": "Sandbox not found", "statusCode": 404}, 404)
        is_ready = asyncio.get_running_loop().time() >= ready_at[name]
        texts = dict.fromkeys(("organizationId", "user", "target"), "x")
        numbers = dict.fromkeys(("cpu", "gpu", "memory", "disk"), 1)
        flags = dict.fromkeys(("public", "networkBlockAll", "kvm"), False)
        state = {"state": "started" if is_ready else "starting", "env": {}, "labels": {}}
        url = {"toolboxProxyUrl": f"{str(request.base_url).rstrip('/')}/toolbox"}
        return JSONResponse({"id": name, "name": name, **texts, **numbers, **flags, **state, **url})

    async def create(request: Request) -> Response:
        assert request.headers["authorization"] == "Bearer key"
        name = cloud.order(await request.json())
        ready_at[name] = asyncio.get_running_loop().time() + cloud.start_delay_s
        return answer(request, name)

    async def get(request: Request) -> Response:
        return answer(request, request.path_params["name"])

    async def remove(request: Request) -> Response:
        found = answer(request, request.path_params["name"])
        cloud.remove(request.path_params["name"])
        return found

    async def execute(request: Request) -> Response:
        machine = cloud.machines.get(request.path_params["name"])
        if machine is None:
            return JSONResponse({"message": "Sandbox not found", "statusCode": 404}, 404)
        code, stdout, stderr = await machine.run(["sh", "-c", (await request.json())["command"]])
        return JSONResponse({"exitCode": code, "result": (stdout + stderr).decode()})

    async def upload(request: Request) -> Response:
        machine = cloud.machines[request.path_params["name"]]
        async with request.form(max_part_size=1 << 30) as form:
            await machine.write(str(form["files[0].path"]), await form["files[0].file"].read())  # type: ignore[union-attr]
        return JSONResponse({})

    return [
        Route("/daytona/sandbox", create, methods=["POST"]),
        Route("/daytona/sandbox/{name}", get, methods=["GET"]),
        Route("/daytona/sandbox/{name}", remove, methods=["DELETE"]),
        Route("/toolbox/{name}/process/execute", execute, methods=["POST"]),
        Route("/toolbox/{name}/files/bulk-upload", upload, methods=["POST"]),
    ]


def _kubernetes(cloud: FakeCloud) -> list[Route]:
    claims = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/{namespace}/sandboxclaims"
    objects: dict[str, dict[str, Any]] = {}

    async def create(request: Request) -> Response:
        body = await request.json()
        name = body["metadata"]["name"]
        body["metadata"] |= {"uid": name, "resourceVersion": "1"}
        objects[name] = body
        cloud.order(body, name)
        return JSONResponse(body, 201)

    async def watch(request: Request) -> Response:
        name = request.query_params["fieldSelector"].partition("=")[2]

        async def events() -> AsyncIterator[bytes]:
            await asyncio.sleep(cloud.start_delay_s)
            status = {"sandbox": {"name": name}, "conditions": [{"type": "Ready", "status": "True"}]}
            yield json.dumps({"type": "MODIFIED", "object": {**objects[name], "status": status}}).encode() + b"\n"

        return StreamingResponse(events(), media_type="application/json")

    async def remove(request: Request) -> Response:
        found = cloud.remove(request.path_params["name"])
        return JSONResponse({"kind": "Status", "status": "Success"}, 200 if found else 404)

    async def sandbox(request: Request) -> Response:
        return JSONResponse({"metadata": {"name": request.path_params["name"]}, "status": {}})

    async def execute(request: Request) -> Response:
        machine = cloud.machines.get(request.headers["x-sandbox-id"])
        if machine is None:
            return PlainTextResponse("sandbox not found", 404)
        code, stdout, stderr = await machine.run(shlex.split((await request.json())["command"]))
        return JSONResponse({"stdout": stdout.decode(), "stderr": stderr.decode(), "exit_code": code})

    return [
        Route(claims, create, methods=["POST"]),
        Route(claims, watch, methods=["GET"]),
        Route(f"{claims}/{{name}}", remove, methods=["DELETE"]),
        Route("/apis/agents.x-k8s.io/v1beta1/namespaces/{namespace}/sandboxes/{name}", sandbox),
        Route("/router/execute", execute, methods=["POST"]),
    ]
