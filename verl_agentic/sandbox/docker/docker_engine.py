"""The docker backend's requests to an engine: images, hardened containers, cleanup.

Everything here blocks; the backend calls it in threads.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_agentic.base.env_card import needs_extra
from verl_agentic.base.errors import ConfigError, SandboxError, SandboxUnavailableError
from verl_agentic.sandbox.boxes import reaper
from verl_agentic.sandbox.docker import seccomp_profile

FOLDERS = ("/work", "/tmp", "/dev/shm")
_LABEL = "verl-agentic."
_PROGRAM = f"{_LABEL}program"
"""Label of containers whose program may end by itself."""
_USERS = range(20_000, 60_000)
_NANO = 10**9
# Paths that reveal the machine and its kernel: the engines' usual ones, and more of /sys.
_MASKED = (
    *(f"/proc/{name}" for name in ("acpi", "asound", "interrupts", "kallsyms", "kcore", "keys", "latency_stats")),
    *(f"/proc/{name}" for name in ("sched_debug", "scsi", "timer_list", "timer_stats")),
    *(f"/sys/{name}" for name in ("devices/virtual/powercap", "firmware", "kernel", "module", "power")),
)
_DEFAULT_URL = "unix:///var/run/docker.sock"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The configuration of a container."""

    image: str
    entrypoint: Sequence[str]
    memory_mb: int
    processes: int
    spare_processes: int
    """Processes in addition to those of the code: process 1 and the runtime's threads."""
    cpus: float
    disk_mb: int
    network: str
    hosts: Sequence[str]
    """Names of the addresses from 127.0.0.2 on."""
    runtime: str | None
    group: str
    """Label of all containers of one backend."""


@dataclass(frozen=True, kw_only=True)
class ProgramShape:
    """The configuration of a container that runs a program of its image: the root is writable, the user the image's."""

    image: str
    command: Sequence[str]
    """Empty: that of the image."""
    environment: Mapping[str, str]
    memory_mb: int
    processes: int
    cpus: float
    network: str
    runtime: str | None
    capabilities: Sequence[str]
    group: str
    """Label of all containers of one episode."""


class Engine:
    """A connection to an engine."""

    def __init__(self, url: str | None) -> None:
        """Connects.

        Raises:
            MissingDependencyError: the SDK is not installed.
            SandboxUnavailableError: no engine answers, or it cannot limit containers.
        """
        self._sdk = _import_sdk()
        address = url or os.environ.get("DOCKER_HOST") or _DEFAULT_URL
        try:
            if address.startswith("unix://"):
                os.stat(address[len("unix://") :])  # first, because the SDK does not close a socket that finds nothing
            settings = {"base_url": url} if url else self._sdk.utils.kwargs_from_env()
            self._api = self._sdk.APIClient(**settings, version="auto", timeout=60, max_pool_size=64)
            self._info = self._api.info()
        except (self._sdk.errors.DockerException, OSError) as cause:
            raise SandboxUnavailableError(
                f"no Docker engine answers at {address}, got {cause}; start one, or set DOCKER_HOST"
            ) from cause
        self._volumes: dict[str, list[str]] = {}

    def check(self, runtime: str | None) -> None:
        """Raises SandboxUnavailableError if the engine does not enforce limits or lacks the runtime."""
        lacking = [name for name in ("MemoryLimit", "PidsLimit", "CpuCfsQuota") if not self._info.get(name)]
        if not any("seccomp" in option for option in self._info.get("SecurityOptions") or ()):
            lacking.append("seccomp")
        if lacking:
            raise SandboxUnavailableError(
                f"the Docker engine cannot confine containers, got no {', '.join(lacking)}; use one that can"
            )
        runtimes = sorted(self._info.get("Runtimes") or ())
        if runtime is not None and runtime not in runtimes:
            raise SandboxUnavailableError(
                f"the Docker engine has the runtimes {runtimes}, got {runtime!r}; register it with the engine"
            )

    def provide_image(self, image: str) -> None:
        """Pulls the image unless the engine has it. Raises SandboxUnavailableError if the image cannot be pulled."""
        try:
            try:
                record = self._api.inspect_image(image)
            except self._sdk.errors.ImageNotFound:
                repository, tag = self._sdk.utils.parse_repository_tag(image)
                self._api.pull(repository, tag or "latest")
                record = self._api.inspect_image(image)
        except self._sdk.errors.DockerException as cause:
            raise SandboxUnavailableError(
                f"the engine has no image {image!r} and cannot fetch it, got {cause}; build or load it"
            ) from cause
        self._volumes[image] = sorted((record.get("Config") or {}).get("Volumes") or ())

    def build_image(self, folder: Path) -> str:
        """Builds the image of a folder with a Dockerfile, unless it exists; returns its name.

        Raises:
            ConfigError: the folder has no Dockerfile.
            SandboxUnavailableError: the build failed; the message ends with its last lines.
        """
        if not (folder / "Dockerfile").is_file():
            raise ConfigError(f"an image is built from a folder with a Dockerfile, got {folder}")
        name = f"verl-agentic-sandbox:{_hash_folder(folder)}"
        with contextlib.suppress(self._sdk.errors.ImageNotFound):
            self._api.inspect_image(name)
            return name
        lines: list[str] = []
        labels = {f"{_LABEL}image": "1"}
        for event in self._api.build(path=str(folder), tag=name, rm=True, forcerm=True, decode=True, labels=labels):
            lines.append(str(event.get("stream") or event.get("error") or "").rstrip())
            if "error" in event:
                raise SandboxUnavailableError(
                    f"the image of {folder} could not be built, got: {' | '.join(filter(None, lines[-5:]))}"
                )
        return name

    def create(self, shape: Shape) -> tuple[str, Any]:
        """Makes a container without starting it; returns id and stdio. Raises SandboxError if the engine refuses."""
        user = random.SystemRandom().choice(_USERS)  # a separate user, because the kernel counts processes per user
        tmpfs = f"rw,nosuid,nodev,exec,size={shape.disk_mb}m,nr_inodes={1024 + 256 * shape.disk_mb},mode=1777"
        memory = _to_bytes(shape.memory_mb)
        is_joined = shape.network.startswith("container:")  # then names and host name are those of the other one
        with self._wrap_refusals("make a container"):
            host = self._api.create_host_config(
                network_mode=shape.network,
                extra_hosts={name: f"127.0.0.{number}" for number, name in enumerate(shape.hosts, start=2)},
                read_only=True,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges:true", f"seccomp={seccomp_profile.profile()}"],
                pids_limit=shape.processes + shape.spare_processes,
                mem_limit=memory,
                memswap_limit=memory,
                nano_cpus=int(shape.cpus * _NANO),
                ipc_mode="private",
                init=False,
                log_config=self._sdk.types.LogConfig(type="none"),  # keeps stdout off the engine's disk
                runtime=shape.runtime,
                ulimits=[self._sdk.types.Ulimit(name="core", soft=1, hard=1)],
                # A volume of the image would use the engine's disk without a limit.
                tmpfs={**dict.fromkeys(self._volumes.get(shape.image, ()), "ro"), **dict.fromkeys(FOLDERS, tmpfs)},
            )
            host["MaskedPaths"] = _MASKED
            return self._make_attached(
                image=shape.image,
                command=[],
                entrypoint=list(shape.entrypoint),
                user=f"{user}:{user}",
                working_dir="/work",
                hostname=None if is_joined else "sandbox",
                labels={f"{_LABEL}group": shape.group},
                host_config=host,
            )

    def create_program(self, shape: ProgramShape) -> tuple[str, Any]:
        """Makes a container of an image's program; see `create`."""
        needs_root = shape.network == "host" and any(
            "userns" in option for option in self._info.get("SecurityOptions") or ()
        )
        memory = _to_bytes(shape.memory_mb)
        with self._wrap_refusals("make a container"):
            host = self._api.create_host_config(
                network_mode=shape.network,
                userns_mode="host" if needs_root else None,  # engines with remapped users refuse the host's network
                cap_drop=["ALL"],
                cap_add=list(shape.capabilities),
                security_opt=["no-new-privileges:true"],
                pids_limit=shape.processes,
                mem_limit=memory,
                memswap_limit=memory,
                nano_cpus=int(shape.cpus * _NANO),
                ipc_mode="private",
                init=True,
                log_config=self._sdk.types.LogConfig(type="none"),
                runtime=shape.runtime,
                ulimits=[self._sdk.types.Ulimit(name="core", soft=1, hard=1)],
            )
            return self._make_attached(
                image=shape.image,
                command=list(shape.command) or None,
                environment=dict(shape.environment),
                labels={f"{_LABEL}group": shape.group, _PROGRAM: "1"},
                host_config=host,
            )

    def host_address(self, network: str) -> str:
        """Returns the address of this machine in a network of the engine.

        Raises:
            ConfigError: the engine has no such network, or the network has no such address.
            SandboxError: the engine failed.
        """
        if network == "host":
            return "127.0.0.1"
        try:
            with self._wrap_refusals("look at a network"):
                pools = self._api.inspect_network(network)["IPAM"]["Config"] or ()
        except SandboxError as cause:
            if isinstance(cause.__cause__, self._sdk.errors.NotFound):
                pools = ()
            else:
                raise
        gateways = [pool["Gateway"] for pool in pools if "." in pool.get("Gateway", "")]
        if not gateways:
            raise ConfigError(
                f"the network must give this machine an address, got {network!r}; use bridge or host, or make one with "
                "`docker network create --internal NAME`"
            )
        return gateways[0]

    def _make_attached(self, *, labels: dict[str, str], **settings: Any) -> tuple[str, Any]:
        """Makes a container and returns its id and stdio."""
        container = self._api.create_container(
            stdin_open=True,  # a box ends with our connection, so it does not outlive a killed trainer
            healthcheck={"test": ["NONE"]},
            labels={**_build_owner_labels(), **labels},
            **settings,
        )["Id"]
        try:
            parameters = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            return container, self._api.attach_socket(container, params=parameters)
        except BaseException:
            self.remove(container)
            raise

    def start(self, container: str) -> None:
        """Starts a container. Raises SandboxError if the engine refused."""
        with self._wrap_refusals("start a container"):
            self._api.start(container)

    def limit(self, container: str, *, memory_mb: int, processes: int) -> None:
        """Changes the limits of a running container. Raises SandboxError if the engine or its runtime cannot."""
        memory = _to_bytes(memory_mb)
        data = {"Memory": memory, "MemorySwap": memory, "PidsLimit": processes}
        with self._wrap_refusals("change the limits of a container"):
            url = self._api._url("/containers/{0}/update", container)  # the SDK's own method lacks PidsLimit
            self._api._result(self._api._post_json(url, data=data), True)

    def state(self, container: str, *, is_ending: bool = False) -> dict[str, Any]:
        """Returns the engine's record of a container's state; may wait for a near end."""
        with contextlib.suppress(self._sdk.errors.DockerException, OSError):
            if is_ending:
                self._api.wait(container, timeout=10)
            return self._api.inspect_container(container)["State"]
        return {}

    def remove(self, container: str) -> None:
        """Removes a container with its volumes; ignores missing ones. Raises SandboxError if the engine refuses."""
        with self._wrap_refusals("remove a container"):
            try:
                self._api.remove_container(container, force=True, v=True)
            except self._sdk.errors.APIError as error:
                if error.status_code not in (404, 409):
                    raise

    def execute(self, container: str, argv: Sequence[str], environment: dict[str, str]) -> tuple[str, Any]:
        """Starts a program in a running container; returns the exec's id and the connection to its stdio."""
        with self._wrap_refusals("start a program"):
            program = self._api.exec_create(container, list(argv), stdin=True, environment=environment, workdir="/work")
            return program["Id"], self._api.exec_start(program["Id"], socket=True)

    def exit_code(self, execution: str) -> int | None:
        """Returns the exit code of an exec; None while it runs."""
        with self._wrap_refusals("look at a program"):
            state = self._api.exec_inspect(execution)
            return None if state["Running"] else state["ExitCode"]

    def remove_group(self, group: str) -> None:
        """Removes all containers of a backend."""
        with self._wrap_refusals("list containers"):
            containers = self._api.containers(all=True, filters={"label": f"{_LABEL}group={group}"})
        for container in containers:
            self.remove(container["Id"])

    def reap(self) -> list[str]:
        """Removes containers whose owner, a process of this machine, has ended; returns their ids."""
        with self._wrap_refusals("list containers"):
            containers = self._api.containers(all=True, filters={"label": f"{_LABEL}owner"})
        orphans = [container["Id"] for container in containers if _is_orphan(container)]
        for container in orphans:
            self.remove(container)
        return orphans

    def close(self) -> None:
        self._api.close()

    @contextlib.contextmanager
    def _wrap_refusals(self, action: str) -> Iterator[None]:
        import requests

        try:
            yield
        except (self._sdk.errors.DockerException, requests.RequestException, OSError) as cause:
            raise SandboxError(f"the Docker engine could not {action}, got {cause}") from cause


def _import_sdk() -> Any:
    with needs_extra("docker", what="the backend docker"):
        import docker
        import docker.errors
        import docker.types
        import docker.utils
    return docker


def _to_bytes(memory_mb: int) -> int:
    return memory_mb * 2**20


def _hash_folder(folder: Path) -> str:
    """Returns a hash of all files of the folder."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_mode:o}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _build_owner_labels() -> dict[str, str]:
    """Returns labels of this process and the boot of its machine, since process numbers repeat on other machines."""
    return {f"{_LABEL}owner": reaper.owner(), f"{_LABEL}boot": _read_boot_id()}


def _read_boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _is_orphan(container: dict[str, Any]) -> bool:
    labels = container["Labels"]
    if labels.get(f"{_LABEL}boot") == _read_boot_id() and reaper.is_dead(labels[f"{_LABEL}owner"]):
        return True
    # The owner may be invisible from here. But a box that has ended has lost its owner.
    has_ended = container["State"] in ("exited", "dead") and _PROGRAM not in labels
    return has_ended and labels[f"{_LABEL}owner"] != reaper.owner()
