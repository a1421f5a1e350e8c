"""The docker side of `swe.py`: a repository and its requirements in a fresh container, by the engine's own calls."""

from __future__ import annotations

import io
import tarfile
import time
from pathlib import Path

from _report import median, progress
from _sandbox_docker import provide_image


def docker_setup_s(base: Path, site: Path | None, *, begin: str, rounds: int) -> tuple[float | None, str]:
    """Returns the median seconds until a container has the files and a commit, or the reason why there is none."""
    try:
        import docker
        from docker.errors import DockerException
    except ImportError as cause:
        return None, str(cause)
    try:
        client = docker.from_env()
    except DockerException as cause:
        return None, str(cause)
    progress("the same setup in a container")
    image, times = provide_image(), []
    try:
        for _ in range(rounds + 1):
            started = time.perf_counter()
            container = client.containers.run(image, ["sleep", "600"], detach=True, network_mode="none", init=True)
            try:
                container.put_archive("/tmp", _tar(base, "testbed"))
                if site is not None:
                    container.put_archive("/tmp", _tar(site, "site"))
                done = container.exec_run(["bash", "-c", f"cd /tmp/testbed && {begin} && cp -r . ../snapshot"])
                assert done.exit_code == 0, done.output
                times.append(time.perf_counter() - started)
            finally:
                container.remove(force=True)
    finally:
        client.close()
    return median(times[1:]), ""


def _tar(folder: Path, name: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(folder, name, filter=_of_root)
    return packed.getvalue()


def _of_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.mode |= 0o200
    return member
