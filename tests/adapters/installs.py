"""Broken installations in throwaway folders, put before everything else by PYTHONPATH, and processes that use them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

_RECIPE = """
hydra: {searchpath: [pkg://verl_agentic.config], output_subdir: null, run: {dir: .}}
defaults: [ppo_trainer, agentic/cpu, _self_]
"""


@dataclass(frozen=True)
class Install:
    """A folder that shadows what is installed; an empty one shadows nothing."""

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, timeout_s: float = 240.0, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs this Python with the arguments, from another folder, with no variable of verl's but those given."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("VERL_", "RAY_"))}
        environment |= {"PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        cwd = self.folder / "elsewhere"  # Python looks for modules where it is started
        cwd.mkdir(exist_ok=True)
        return subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd=cwd,
            env={**environment, **self.variables, **variables},
            check=False,
        )

    def run_main_ppo(self, *overrides: str, platform: str) -> subprocess.CompletedProcess[str]:
        """Runs verl's trainer with a recipe that asks for us."""
        (self.folder / "recipe.yaml").write_text(_RECIPE)
        command = ("-m", "verl.trainer.main_ppo", "--config-dir", str(self.folder), "--config-name", "recipe")
        return self.run(*command, *overrides, VERL_PLATFORM=platform)


def without_entry_point(folder: Path) -> Install:
    """Returns an installation whose distribution has lost its entry points."""
    _add_distribution(folder, "verl_agentic", _metadata("verl-agentic"))
    return Install(folder)


def with_failing_adapter(folder: Path, adapter: str, message: str) -> Install:
    """Returns an installation with one adapter that raises."""
    return with_failing_module(folder, f"verl_agentic/verl/{adapter.replace('.', '/')}.py", message)


def with_failing_module(
    folder: Path, module: str, message: str, *, entry_point: str = "verl_agentic.entry_point"
) -> Install:
    """Returns an installation in which a module raises: one of ours, or, shadowed, one of a dependency.

    Args:
        folder: of the installation.
        module: its file, relative to the folder.
        message: of the exception.
        entry_point: target of the entry point.
    """
    source = Path(str(find_spec("verl_agentic").submodule_search_locations[0]))  # type: ignore[union-attr, index]
    shutil.copytree(source, folder / "verl_agentic", ignore=shutil.ignore_patterns("__pycache__", "_bundled"))
    (folder / module).parent.mkdir(exist_ok=True)
    (folder / module).write_text(f"raise OSError({message!r})\n")
    _add_distribution(
        folder, "verl_agentic", _metadata("verl-agentic"), f"[verl.plugins]\nverl_agentic = {entry_point}\n"
    )
    return Install(folder)


def with_other_verl(folder: Path, version: str) -> Install:
    """Returns an installation whose verl says that it has another version; its modules are links to the real ones."""
    source = Path(str(find_spec("verl").submodule_search_locations[0]))  # type: ignore[union-attr, index]
    (folder / "verl").mkdir()
    for path in source.iterdir():
        if path.name not in ("version", "__pycache__"):
            (folder / "verl" / path.name).symlink_to(path)
    (folder / "verl" / "version").mkdir()
    (folder / "verl" / "version" / "version").write_text(f"{version}\n")
    _add_distribution(folder, "verl", _metadata("verl", version=version))
    return Install(folder)


def without_hook(install: Install, file: str, name: str) -> Install:
    """Returns the installation of `with_other_verl` after a name of its verl has got another one.

    Args:
        install: the installation.
        file: that has the name, relative to the package.
        name: of a function, class or attribute.
    """
    path = install.folder / "verl"
    for part in Path(file).parts:
        if path.is_symlink():
            source = path.resolve()
            path.unlink()
            path.mkdir()
            for entry in source.iterdir():
                if entry.name != "__pycache__":
                    (path / entry.name).symlink_to(entry)
        path /= part
    text = path.read_text()
    path.unlink()
    path.write_text(re.sub(rf"\b{name}\b", f"{name}_of_later", text))
    return install


def with_other_plugin(folder: Path, message: str) -> Install:
    """Returns an installation with a second plugin, which raises, and is loaded before ours."""
    (folder / "other_plugin.py").write_text(f"raise OSError({message!r})\n")
    _add_distribution(folder, "a_plugin", _metadata(None), "[verl.plugins]\na_plugin = other_plugin\n")
    return Install(folder)


def errors_of(process: subprocess.CompletedProcess[str]) -> list[str]:
    """Returns the ERROR lines of the driver."""
    return [line for line in process.stderr.splitlines() if line.startswith("ERROR verl_agentic")]


def _metadata(distribution_name: str | None, *, version: str | None = None) -> str:
    if distribution_name is None:
        return "Metadata-Version: 2.1\nName: a-plugin\nVersion: 1.0\n"
    installed = distribution(distribution_name)
    text = installed.read_text("METADATA") or ""
    return text.replace(f"\nVersion: {installed.version}\n", f"\nVersion: {version or installed.version}\n")


def _add_distribution(folder: Path, name: str, metadata: str, entry_points: str | None = None) -> None:
    information = folder / f"{name}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(metadata)
    if entry_points is not None:
        (information / "entry_points.txt").write_text(entry_points)
