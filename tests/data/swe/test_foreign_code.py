"""Code of packages does not run while tasks are mined, and pip sees neither secrets nor the network."""

from __future__ import annotations

import asyncio
import functools
import io
import json
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from verl_agentic.base.errors import ConfigError, DataError
from verl_agentic.sandbox.pools.backends import probe
from verl_agentic.swe.releases import pip as pip_client
from verl_agentic.swe.releases import wheels
from verl_agentic.swe.releases.package_names import parse_named
from verl_agentic.swe.releases.pip import PipIndex
from verl_agentic.swe.releases.requirements import requirements_of
from verl_agentic.swe.releases.sdist import read_release
from verl_agentic.swe.releases.wheels import install_wheels, unpack_wheel

_FOREIGN = (
    "evil @ file:///tmp/evil-1.0.tar.gz", "evil@https://example.org/evil.zip", "evil[test] @ git+https://x.org/evil",
    "evil @ ./evil ; python_version > '3'", "./evil", "../evil-1.0.tar.gz", "/tmp/evil", "evil/", "~/evil",
    "file:///tmp/evil-1.0.tar.gz", "https://example.org/evil-1.0.tar.gz", "git+ssh://x.org/evil", "-e .", "-e git+x",
    "-r more.txt", "--requirement=more.txt", "-c limits.txt", "--index-url http://x.org", "-f http://x.org",
    "--find-links=/tmp", "--extra-index-url=http://x.org", "--no-binary=:all:", "--config-settings=a=b",
    "evil-1.0.tar.gz", "evil-1.0-py3-none-any.whl", "evil.zip", "evil.tgz", "evil.tar.bz2", "evil.tar", "evil.TAR.GZ",
    "evil --global-option=x", "evil\n-e .", "", "evil\\\n@ file:///x",
)  # fmt: skip


@pytest.mark.parametrize("text", _FOREIGN)
def test_only_names_are_requirements(text: str, tmp_path: Path) -> None:
    assert parse_named(text) is None
    with pytest.raises(ConfigError):
        requirements_of({}, extra=[text])
    with pytest.raises(DataError, match="name with versions"):
        install_wheels(PipIndex(find_links=tmp_path), [text], into=tmp_path / "site", backend="auto")


@pytest.mark.parametrize("text", ["a", "a==1", "a[b,c]>=1,<2; python_version > '3'", "zope.interface", "a-b_c.d~=1.0"])
def test_names_with_versions_are(text: str) -> None:
    assert parse_named(text) is not None


def test_requirements_of_all_places_are_dropped_and_kept_in_a_list() -> None:
    metadata = (
        "Metadata-Version: 2.1\nName: victim\nRequires-Dist: a>=1\nRequires-Dist: b @ file:///tmp/b.tar.gz\n"
        "Requires-Dist: c; extra == 'test'\nRequires-Dist: d @ https://x.org/d.zip ; extra == 'test'\n"
        "Requires-Dist: e; python_version > \"no version\" and platform_release > 'x y'\n"
    )
    groups = (
        '[dependency-groups]\ntest = ["f", "g @ file:///tmp/g.tar.gz", "-r h.txt", {include-group = "x"}, "i.zip"]\n'
    )
    found = requirements_of({"PKG-INFO": metadata.encode(), "pyproject.toml": groups.encode()})
    assert {"a>=1"} <= {*found.needed} and {"c", "f"} == {*found.optional}
    assert found.dropped == [
        "b @ file:///tmp/b.tar.gz", "d @ https://x.org/d.zip ; extra == 'test'", "g @ file:///tmp/g.tar.gz",
        "-r h.txt", "i.zip",
    ]  # fmt: skip
    assert not any("evil" in text or "@" in text for text in (*found.needed, *found.optional))


@pytest.mark.parametrize(
    "config", ["dependency-groups = 5", "[dependency-groups]\ntest = 5", "[[dependency-groups]]", "a = " + "[" * 5000]
)
def test_a_malformed_configuration_has_no_groups(config: str) -> None:
    assert requirements_of({"pyproject.toml": config.encode(), "PKG-INFO": b"Name: \xff\n"}).optional == []


@functools.cache
def _refusal(backend: str) -> str:
    """Returns why a backend does not work here; empty if it does."""
    return asyncio.run(probe(backend)).refusal


@pytest.fixture(params=["namespaces", "landlock"])
def backend(request: pytest.FixtureRequest) -> str:
    """A backend that works here."""
    if refusal := _refusal(request.param):
        pytest.skip(refusal)
    return request.param


# A package index on this machine, with a package that would build.


class _Index(ThreadingHTTPServer):
    requested: list[str]


class _Handler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.requested.append(self.path)  # type: ignore[attr-defined]
        super().do_GET()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[Path, _Index]]:
    """A folder `files` with pages below `simple`, and its server."""
    folder = tmp_path / "index"
    (folder / "files").mkdir(parents=True)

    class Handler(_Handler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(folder))  # type: ignore[arg-type]

    server = _Index(("127.0.0.1", 0), Handler)
    server.requested = []
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield folder, server
    server.shutdown()  # after at most the interval of its poll
    server.server_close()


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests use no index but theirs."""
    monkeypatch.setattr(pip_client, "_pip_settings", dict)
    pip_client._make_opener.cache_clear()


def _offer(folder: Path, path: Path) -> None:
    page = folder / "simple" / path.name.split("-")[0] / "index.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    before = page.read_text() if page.exists() else ""
    page.write_text(before + f'<a href="/files/{path.name}">{path.name}</a>\n')


def _wheel(folder: Path, name: str, version: str = "1.0", *, needs: tuple[str, ...] = ()) -> Path:
    path = folder / "files" / f"{name}-{version}-py3-none-any.whl"
    needed = "".join(f"Requires-Dist: {one}\n" for one in needs)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    _offer(folder, path)
    return path


def _planted(folder: Path, marker: Path) -> Path:
    """Returns a source distribution whose build writes a marker."""
    path = folder / "files" / "evil-1.0.tar.gz"
    ran = f"open({str(marker)!r}, 'a').write('ran')\n"
    files = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n",
        "pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n",
        "backend.py": ran,
        "setup.py": ran,
    }
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"evil-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    _offer(folder, path)
    return path


@pytest.mark.slow
@pytest.mark.sample(1)
def test_a_planted_build_backend_runs_with_plain_pip_and_not_here(
    backend: str, index: tuple[Path, _Index], tmp_path: Path
) -> None:
    folder, server = index
    marker = tmp_path / "marker"
    planted = _planted(folder, marker)
    url = f"http://127.0.0.1:{server.server_port}"
    direct = f"evil @ {planted.as_uri()}"
    options = ("--isolated", "--no-cache-dir", "--no-index", "--only-binary", ":all:", "--dry-run")
    subprocess.run([sys.executable, "-m", "pip", "install", *options, direct], capture_output=True, check=False)
    assert marker.exists()  # so `--only-binary` is no defence
    marker.unlink()

    _wheel(folder, "honest", needs=(direct, f"evil @ {url}/files/evil-1.0.tar.gz", "other"))
    _wheel(folder, "other")
    _wheel(folder, "needy", needs=("evil",))
    site = tmp_path / "site"
    site.mkdir()
    source = PipIndex(index_url=f"{url}/simple")
    dropped = install_wheels(source, ["honest"], into=site, backend=backend)
    assert {path.name for path in site.iterdir()} >= {"honest.py", "other.py"} and len(dropped) == 2
    with pytest.raises(DataError, match=r"needy|evil"):
        install_wheels(source, ["needy"], into=tmp_path, backend=backend)
    sdist = PipIndex(index_url=f"{url}/simple").download_sdist("evil", "1.0", into=tmp_path / "sdists")
    assert read_release(sdist, name="evil", version="1.0").files["backend.py"]
    assert not marker.exists()


def test_the_network_of_pip_is_the_index(index: tuple[Path, _Index], tmp_path: Path) -> None:
    folder, server = index
    _wheel(folder, "honest")
    relay = wheels.WheelIndex(
        index=PipIndex(index_url=f"http://127.0.0.1:{server.server_port}/simple"), folder=tmp_path
    )
    assert b"honest-1.0" in (relay.answer("https://index.invalid/simple/honest/") or b"")
    assert b"Name: honest" in (relay.answer("https://index.invalid/files/honest-1.0-py3-none-any.whl.metadata") or b"")
    before = len(server.requested)
    for url in (
        f"http://127.0.0.1:{server.server_port}/files/honest-1.0-py3-none-any.whl", "file:///etc/passwd",
        "https://index.invalid/files/../../etc/passwd", "https://index.invalid/files//etc/passwd",
        "https://index.invalid/simple/../files/x/", "https://index.invalid/simple/a%2f..%2fb/",
        "https://index.invalid.example.org/simple/honest/", "http://169.254.169.254/latest/", "https://index.invalid/",
    ):  # fmt: skip
        assert not relay.answer(url), url
        with pytest.raises(DataError):
            relay.download(url)
    assert len(server.requested) == before


_TAKEN_OVER = """
import json, os, socket
def main(arguments):
    found = {"environment": dict(os.environ)}
    for name, attempt in {
        "connects": lambda: socket.create_connection(("127.0.0.1", PORT), timeout=2),
        "reads": lambda: open(SECRET).read(),
        "starts": lambda: __import__("subprocess").run(["true"]),
        "forks": os.fork,
    }.items():
        try:
            attempt()
            found[name] = "succeeded"
        except Exception as error:
            found[name] = type(error).__name__
    os.write(2, ("ERROR: " + json.dumps(found)).encode())
    return 1
"""


@pytest.mark.sample(1)
def test_a_pip_that_is_taken_over_has_no_secrets_no_network_and_no_files(
    backend: str, index: tuple[Path, _Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    code = _TAKEN_OVER.replace("PORT", str(index[1].server_port)).replace("SECRET", repr(str(secret)))
    fake = tmp_path / "fake" / "pip"
    for place, text in (("_internal/cli/main.py", code), ("_internal/network/session.py", ""),
                        ("_vendor/requests/adapters.py", "class HTTPAdapter: pass\n")):  # fmt: skip
        (fake / place).parent.mkdir(parents=True)
        (fake / place).write_text(text)
    monkeypatch.setattr(wheels, "pip_folder", lambda: fake)
    for name in ("HF_TOKEN", "PIP_INDEX_URL", "WANDB_API_KEY", "PIP_CONFIG_FILE"):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setattr(wheels, "_MAX_MESSAGE_CHARS", 10_000)
    with pytest.raises(DataError) as refused:
        install_wheels(PipIndex(find_links=tmp_path), ["honest"], into=tmp_path, backend=backend)
    message = str(refused.value)
    found = json.loads(message[message.index("{") : message.rindex("}") + 1])
    assert not any("hunter2" in value for value in found["environment"].values())
    assert not {*found["environment"]} & {"HF_TOKEN", "PIP_INDEX_URL", "WANDB_API_KEY", "PIP_CONFIG_FILE"}
    attempts = {name: found[name] for name in ("connects", "reads", "starts", "forks")}
    assert "succeeded" not in attempts.values(), attempts
    assert not index[1].requested


@pytest.mark.parametrize("name", ["../x.py", "/x.py", "a/../../x.py", "a//x.py", "a.data/purelib/../../x.py"])
def test_a_wheel_cannot_write_outside_of_its_folder(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, "x")
    (tmp_path / "site").mkdir()
    with pytest.raises(DataError):
        unpack_wheel(path, tmp_path / "site")
    assert not [*(tmp_path / "site").rglob("*.py")] and not (tmp_path / "x.py").exists()


def test_a_page_of_a_server_cannot_name_files_of_this_machine(index: tuple[Path, _Index], tmp_path: Path) -> None:
    folder, server = index
    (folder / "simple" / "a").mkdir(parents=True)
    (folder / "simple" / "a" / "index.html").write_text(
        '<base href="file:///"><a href="/etc/a-1.tar.gz">x</a><a href="file:///etc/a-2.tar.gz">x</a>'
        '<a href="http://127.0.0.1/..%2fa-3.tar.gz">x</a><a href="ftp://x.org/a-4.tar.gz">x</a>'
    )
    with pytest.raises(DataError):
        PipIndex(index_url=f"http://127.0.0.1:{server.server_port}/simple").versions("a")
