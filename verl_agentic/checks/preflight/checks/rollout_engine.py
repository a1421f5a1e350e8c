"""The rollout engine: its version, and what it cannot serve or update."""

from __future__ import annotations

import math
from collections.abc import Iterator

from packaging.version import Version

from verl_agentic.base.finding import Finding, fail, ok, warn
from verl_agentic.checks.preflight.planned_run import Model, PlannedRun

_ROLLOUT = "actor_rollout_ref.rollout"
_BUCKET_MB = f"{_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes"
_OLDEST = Version("0.18")
"""verl 0.9 refuses older ones."""
_CPU_TESTED = Version("0.28.0")
_CPU_VERSIONS = (Version("0.27.1"), Version("0.32"))
"""First version that wants the torch of this backend; first one that wants a transformers that verl 0.9 refuses."""
_CHECKS_TIED_WEIGHTS = Version("0.29")
_FULL_PRECISION = ("float32", "fp32")


def rollout_engine(run: PlannedRun) -> list[Finding]:
    """Returns settings, models and versions with which verl's rollout engine fails in the first steps of a run."""
    name = str(run.get(f"{_ROLLOUT}.name", ""))
    findings = list(_check_vllm(run)) if name == "vllm" else []
    version = run.packages.get(name)
    return findings or [ok(f"{_ROLLOUT}.name={name}" + (f", version {version}" if version else ""))]


def _check_vllm(run: PlannedRun) -> Iterator[Finding]:
    is_cpu = run.get("trainer.device") == "cpu"
    version = Version(run.packages["vllm"]) if "vllm" in run.packages else None
    if version is not None and version < _OLDEST:
        yield fail(f"verl 0.9 works with vLLM {_OLDEST} and newer, got {version}", f"pip install 'vllm>={_OLDEST}'")
    elif version is not None and is_cpu:
        yield from _check_cpu_version(version)
    if is_cpu:
        yield from _check_cpu_settings(run)
    if run.model is not None:
        yield from _check_cpu_model(run, run.model) if is_cpu else ()
        yield from _check_tied_weights(run, run.model, version)


def _check_cpu_version(version: Version) -> Iterator[Finding]:
    oldest, newest = _CPU_VERSIONS
    if not oldest <= version < newest:
        yield fail(
            f"vLLM's CPU build works with verl 0.9 from {oldest} to before {newest}, got {version}", "run `make vllm`"
        )
    elif version.public != _CPU_TESTED.public:
        yield warn(
            f"vLLM's CPU build is tested in version {_CPU_TESTED}, got {version}", "run `make vllm` for that version"
        )


def _check_cpu_settings(run: PlannedRun) -> Iterator[Finding]:
    sleeping = [
        f"{_ROLLOUT}.{key}" for key in ("enable_sleep_mode", "free_cache_engine") if run.get(f"{_ROLLOUT}.{key}")
    ]
    if sleeping:
        yield fail(
            f"vLLM's CPU build cannot sleep, got {' and '.join(f'{key}=True' for key in sleeping)}",
            "put agentic/cpu_vllm behind agentic/cpu in the defaults of the recipe",
        )
    if (ranks := run.number(f"{_ROLLOUT}.tensor_model_parallel_size", 1)) > 1:
        yield fail(
            f"vLLM on a CPU serves with one rank, got {_ROLLOUT}.tensor_model_parallel_size={ranks}", "set it to 1"
        )


def _check_cpu_model(run: PlannedRun, model: Model) -> Iterator[Finding]:
    if model.has_experts:
        yield fail(
            "vLLM's CPU build packs experts so that their weights cannot be updated, got a model with experts",
            f"set {_ROLLOUT}.name=agentic, or take a dense model",
        )
    quantisation = run.get(f"{_ROLLOUT}.quantization") or model.quantisation
    if quantisation:
        yield fail(
            f"weights of a quantised model cannot be updated in vLLM's CPU build, got {quantisation}",
            f"unset {_ROLLOUT}.quantization, and take a model that is not quantised",
        )


def _check_tied_weights(run: PlannedRun, model: Model, version: Version | None) -> Iterator[Finding]:
    """Yields that a bucket of weights has the head without the embedding, which newer versions of vLLM refuse."""
    if version is None or version < _CHECKS_TIED_WEIGHTS or not model.tied_parameters:
        return
    dtype = run.get("actor_rollout_ref.actor.fsdp_config.model_dtype", "fp32")
    needed_mb = model.tied_parameters * (4 if dtype in _FULL_PRECISION else 2) / 2**20
    bucket_mb = run.number(_BUCKET_MB)
    if needed_mb > bucket_mb:
        yield fail(
            f"vLLM {version} loads tied weights only together with the embedding, and the model's {needed_mb:.0f} MiB "
            f"take several buckets of {_BUCKET_MB}={bucket_mb}",
            f"set {_BUCKET_MB}={math.ceil(needed_mb) + 1}, or take vLLM 0.28 or older",
        )
