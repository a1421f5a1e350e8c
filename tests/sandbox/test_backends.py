"""Choice of a backend, which is never weaker than asked for."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from verl_agentic.base.errors import ConfigError, SandboxError, SandboxUnavailableError
from verl_agentic.sandbox.interface import Command, Limits, Sandbox, Tree
from verl_agentic.sandbox.isolation import Isolation
from verl_agentic.sandbox.local.local_backend import LocalBackend
from verl_agentic.sandbox.pools import backends as choose
from verl_agentic.sandbox.pools.backends import AutoBackend, BackendProbe, isolation_of, make_backend, probe


class Fake(LocalBackend):
    """Runs code as `local` does, under another name."""

    def __init__(self, name: str, *, failure: Exception | None = None, says: str = "42") -> None:
        super().__init__(is_trusted=True)
        self.name, self.failure, self.says = name, failure, says
        self.closed = 0

    async def start(self) -> None:
        if self.failure is not None:
            raise self.failure
        await super().start()

    async def create(self, *, trees: Sequence[Tree] = (), image: str | None = None) -> Any:
        sandbox = await super().create(trees=trees, image=image)
        if self.says != "42":
            original = sandbox.run

            async def run(command: Command, *, limits: Limits, fresh: bool = False) -> Any:
                return await original(Command(code=f"print({self.says!r})"), limits=limits, fresh=fresh)

            sandbox.run = run  # type: ignore[method-assign]
        return sandbox

    async def close(self) -> None:
        self.closed += 1
        await super().close()


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> dict[str, Fake]:
    """The machine: what each backend is here; to be changed by the test."""
    made = {name: Fake(name) for name in choose.AUTO_ORDER}
    monkeypatch.setattr(choose, "_MAKERS", {name: lambda options, name=name: made[name] for name in made})
    monkeypatch.setattr(choose.os, "geteuid", lambda: 1000)
    return made


ISOLATING = choose.AUTO_ORDER[:-1]


async def test_the_first_that_works_is_chosen(backends: dict[str, Fake]) -> None:
    auto = make_backend("auto", at_least="namespaces")
    assert auto.name == "auto"
    await auto.start()
    assert (auto.name, isolation_of(auto)) == ("namespaces", Isolation.NAMESPACES)
    sandbox: Sandbox = await auto.create()
    assert (await sandbox.run(Command(code="print(1)"), limits=Limits())).stdout == "1\n"
    await auto.close()
    assert backends["namespaces"].closed == 1 and backends["docker"].closed == 0


async def test_auto_takes_no_backend_without_walls_unless_it_is_told_to(backends: dict[str, Fake]) -> None:
    for name in ISOLATING:
        backends[name].failure = SandboxUnavailableError("not here")
    with pytest.raises(SandboxUnavailableError, match="process_limits"):
        await make_backend("auto").start()
    auto = make_backend("auto", at_least="none")
    await auto.start()
    assert auto.name == "local"
    await auto.close()


async def test_landlock_isolates_enough_where_nothing_is_asked_for(backends: dict[str, Fake]) -> None:
    for name in ("namespaces", "docker"):
        backends[name].failure = SandboxUnavailableError("not here")
    auto = make_backend("auto")
    await auto.start()
    assert (auto.name, isolation_of(auto)) == ("landlock", Isolation.LANDLOCK)
    await auto.close()
    with pytest.raises(SandboxUnavailableError, match="landlock"):
        await make_backend("auto", at_least="namespaces").start()


@pytest.mark.parametrize("level", list(Isolation))
async def test_auto_never_runs_code_as_root_without_walls(
    backends: dict[str, Fake], monkeypatch: pytest.MonkeyPatch, level: Isolation
) -> None:
    monkeypatch.setattr(choose.os, "geteuid", lambda: 0)
    for name in ISOLATING:
        backends[name].failure = SandboxUnavailableError("not here")
    with pytest.raises(SandboxUnavailableError) as caught:
        await make_backend("auto", at_least=level).start()
    if level <= Isolation.PROCESS_LIMITS:
        assert "local: would run" in str(caught.value)
    named = make_backend("local")
    await named.start()
    assert named.name == "local"
    await named.close()


@pytest.mark.parametrize(
    "broken",
    [
        Fake("namespaces", failure=SandboxUnavailableError("user namespaces are off")),
        Fake("namespaces", failure=OSError("user namespaces are off")),
    ],
    ids=["typed", "foreign"],
)
async def test_one_that_does_not_start_is_passed_over_and_its_reason_kept(
    backends: dict[str, Fake], broken: Fake
) -> None:
    backends["namespaces"] = broken
    auto = make_backend("auto", at_least="container")
    await auto.start()
    assert auto.name == "docker" and isinstance(auto, AutoBackend)
    assert "user namespaces are off" in auto.refusals["namespaces"] and broken.closed == 1
    await auto.close()


async def test_one_that_cannot_be_imported_is_passed_over(
    backends: dict[str, Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(options: object) -> None:
        raise SandboxUnavailableError("cannot be imported")

    monkeypatch.setitem(choose._MAKERS, "namespaces", refuse)
    auto = make_backend("auto")
    await auto.start()
    assert auto.name == "docker" and isinstance(auto, AutoBackend)
    assert auto.refusals == {"namespaces": "cannot be imported"}
    await auto.close()


async def test_one_that_starts_and_computes_wrongly_is_passed_over(backends: dict[str, Fake]) -> None:
    backends["namespaces"] = Fake("namespaces", says="41")
    auto = make_backend("auto", at_least="namespaces")
    await auto.start()
    assert auto.name == "docker"
    await auto.close()


async def test_auto_never_takes_a_weaker_one_than_asked_for(backends: dict[str, Fake]) -> None:
    for name in ISOLATING:
        backends[name] = Fake(name, failure=SandboxUnavailableError(f"no {name}"))
    auto = make_backend("auto", at_least="namespaces")
    with pytest.raises(SandboxUnavailableError) as caught:
        await auto.start()
    message = str(caught.value)
    for reason in (
        "namespaces: no namespaces",
        "docker: no docker",
        "landlock: isolates by landlock only",
        "local: isolates by process_limits only",
    ):
        assert reason in message
    with pytest.raises(SandboxError, match="not started"):
        await auto.create()


async def test_auto_takes_local_where_that_is_allowed_and_warns_with_the_reasons(
    backends: dict[str, Fake], caplog: pytest.LogCaptureFixture
) -> None:
    for name in ISOLATING:
        backends[name] = Fake(name, failure=SandboxUnavailableError(f"no {name}"))
    auto = make_backend("auto", at_least="none")
    await auto.start()
    assert auto.name == "local"
    await auto.close()
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "no namespaces" in warning and "no docker" in warning


async def test_a_backend_may_know_better_how_it_isolates(backends: dict[str, Fake]) -> None:
    backends["docker"].isolation = Isolation.OWN_KERNEL  # type: ignore[attr-defined]
    auto = make_backend("auto", at_least="own_kernel")
    await auto.start()
    assert auto.name == "docker" and isinstance(auto, AutoBackend)
    assert auto.refusals == {"namespaces": "isolates by namespaces only"}
    await auto.close()


def test_a_backend_that_is_named_must_isolate_enough_too() -> None:
    with pytest.raises(ConfigError, match="process_limits"):
        make_backend("local", at_least=Isolation.NAMESPACES)
    assert make_backend("local").name == "local"
    assert make_backend("namespaces", at_least="namespaces", disk_mb=32).name == "namespaces"


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("chroot", {}, "'chroot'"),
        ("local", {"max_runing": 1}, "'max_runing'"),
        ("namespaces", {"image": "x"}, "'image'"),
        ("auto", {"disk_mb": 1}, "auto"),
        ("auto", {"local": {"size": 1}}, "local"),
        ("local", {"at_least": "strong"}, "process_limits"),
    ],
)
def test_what_is_misspelt_is_told(name: str, options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        make_backend(name, **options)


async def test_a_probe_tells_times_or_the_reason(backends: dict[str, Fake]) -> None:
    backends["docker"] = Fake("docker", failure=SandboxUnavailableError("no engine"))
    works, broken = await probe("namespaces"), await probe("docker")
    assert works.works and works.start_ms > 0 and works.run_ms > 0 and works.isolation == "namespaces"
    assert broken == BackendProbe(name="docker", isolation="namespaces", refusal="no engine")
    assert backends["namespaces"].closed == backends["docker"].closed == 1


async def test_a_probe_that_hangs_is_ended(backends: dict[str, Fake], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "_PROBE_TIMEOUT_S", 0.0)
    hanging = await probe("namespaces")
    assert "gave no result" in hanging.refusal and backends["namespaces"].closed == 1


async def test_all_real_backends_are_probed_and_local_works_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERL_AGENTIC_SANDBOX_URL", raising=False)
    probes = {found.name: found for found in await choose.probe_all()}
    assert list(probes) == ["namespaces", "docker", "landlock", "local"]
    assert probes["local"].works
    assert all(found.works or found.refusal for found in probes.values())
