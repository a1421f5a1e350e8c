"""User functions of every kind are found by the same addresses, and refused with the same errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.registry import Registry
from verl_agentic.base.settings import read_settings
from verl_agentic.checks.preflight.result import load_check
from verl_agentic.credit.advantage import load_advantage
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.policy_loss import LossBatch, load_policy_loss
from verl_agentic.observe.diagnosis.check import load_check as load_run_check
from verl_agentic.observe.health.monitor import HealthMonitor, HealthSettings
from verl_agentic.rewards.component import load_component
from verl_agentic.rewards.rubric import Rubric
from verl_agentic.sampling.curriculum import CurriculumSettings, Pool, load_curriculum
from verl_agentic.sampling.gate import GateType, Group, decide, load_gate, to_gates
from verl_agentic.sampling.prompts.pass_rates import PassRates

SOURCE = '''
import numpy as np
import torch
from verl_agentic.credit.advantage import advantage
from verl_agentic.credit.credit.batch import CreditBatch
from verl_agentic.credit.policy_loss import Loss, policy_loss
from verl_agentic.observe.health.alarm import alarm
from verl_agentic.base.finding import warn
from verl_agentic.rewards.component import component
from verl_agentic.sampling.curriculum import curriculum
from verl_agentic.sampling.gate import Verdict, gate

@component(kind="outcome", inline=True)
def own_component(sample, *, value: float = 0.0):
    return value

@advantage()
def own_advantage(batch, *, value: float = 0.0):
    return torch.full_like(batch.rewards_BT, value)

@policy_loss()
def own_policy_loss(batch, *, value: float = 0.0):
    return Loss(per_token_BT=torch.full_like(batch.log_prob_BT, value))

@gate()
def own_gate(group, *, reason: str = "mine"):
    return Verdict(dropped=reason)

@curriculum()
def own_curriculum(pool, *, value: float = 0.0):
    return np.full(len(pool), value)

@alarm(reads=("episode/acc",), patience=1)
def own_alarm(history, *, limit: float = 0.5):
    """The outcome is high."""
    acc = history.last("episode/acc", 1)[0]
    return warn(f"{acc} > {limit}", "none") if acc > limit else None

def plain(sample):
    return 0.0
'''


class Kind(NamedTuple):
    """A kind of function, and what a user sees of one by its address."""

    what: str
    load: Callable[[str], Any]
    use: Callable[[str], Any] | None = None
    """Returns 3 of the function in `SOURCE` with options, through the place where a user writes the address."""


def _component(address: str) -> Any:
    rubric = Rubric.from_mapping({"components": [{"use": address, "options": {"value": 3.0}, "kind": "outcome"}]})
    return rubric.terms[0].component(None)


def _batch() -> CreditBatch:
    return CreditBatch.of(rewards=torch.ones(1, 1), mask=torch.ones(1, 1, dtype=torch.bool), groups=[0])


def _loss(address: str) -> Any:
    log_prob_BT = torch.zeros(1, 1)
    batch = LossBatch(
        log_prob_BT=log_prob_BT, old_log_prob_BT=log_prob_BT, advantages_BT=log_prob_BT, mask_BT=log_prob_BT == 0
    )
    per_token_BT = load_policy_loss(address)(batch, value=3.0).per_token_BT
    assert per_token_BT is not None
    return per_token_BT.item()


def _gate(address: str) -> Any:
    gates = to_gates([{"name": address, "reason": "3"}], name="gates")
    decision = decide(Group(uid="g", sessions=()), gates)
    assert decision.gate == "own_gate"
    return int(decision.reason)


def _curriculum(address: str) -> Any:
    settings = CurriculumSettings(name=address, options={"value": 3.0})
    weights: Any = load_curriculum(settings.name)(Pool(rates=PassRates(1)), **settings.options)
    return np.asarray(weights).item()


def _alarm(address: str) -> Any:
    section = {
        "alarms": [address],
        "actions": {"default": "off", "own_alarm": "stop"},
        "thresholds": {"own_alarm": {"limit": 2.0}},
    }
    monitor = HealthMonitor(read_settings(HealthSettings, section, section="health"))
    assert monitor.observe(1, {"episode/acc": 1.0}) == []
    (found,) = monitor.observe(2, {"episode/acc": 3.0})
    assert (found.check, found.level, found.found) == ("own_alarm", "stop", "3.0 > 2.0; since step 2")
    assert monitor.metrics() == {"health/own_alarm": 1.0}
    return 3


def _load_alarm(address: str) -> Any:
    return HealthSettings(alarms=[address])


KINDS = {
    "own_component": Kind("component", load_component, _component),
    "own_advantage": Kind(
        "advantage estimator",
        load_advantage,
        lambda address: load_advantage(address)(_batch(), value=3.0).advantages_BT[0, 0].item(),
    ),
    "own_policy_loss": Kind("policy loss", load_policy_loss, _loss),
    "own_gate": Kind("gate", load_gate, _gate),
    "own_curriculum": Kind("curriculum", load_curriculum, _curriculum),
    "own_alarm": Kind("alarm", _load_alarm, _alarm),
    "check": Kind("preflight check", load_check),
    "run_check": Kind("check", load_run_check),
}
OWN = [name for name, kind in KINDS.items() if kind.use is not None]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with what a user has written in `own_things.py`."""
    (tmp_path / "own_things.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_things", raising=False)
    return tmp_path


@pytest.mark.parametrize("place", ["own_things", "own_things.py", "./own_things.py"])
@pytest.mark.parametrize("name", OWN)
def test_a_function_of_the_user_works_where_its_address_is_written(name: str, place: str, folder: Path) -> None:
    use = KINDS[name].use
    assert use is not None and use(f"{place}:{name}") == 3


@pytest.mark.parametrize("name", KINDS)
def test_what_is_wrong_with_an_address_is_said_in_the_same_words(name: str, folder: Path) -> None:
    what, load, _ = KINDS[name]
    (folder / "broken.py").write_text("raise SystemExit(3)\n")
    for address, said in {
        "no_such": f"unknown {what} 'no_such'; use one of [",
        "no_such_module:f": f"the {what} 'no_such_module:f' cannot be imported, got ModuleNotFoundError: No module",
        "no_such.py:f": f"the {what} 'no_such.py:f' cannot be imported, got FileNotFoundError: no file 'no_such.py'",
        "broken.py:f": f"the {what} 'broken.py:f' cannot be imported, got SystemExit: 3",
        "own_things:f": f"the {what} 'own_things:f' is not there, got no 'f' in {folder}/own_things.py",
    }.items():
        with pytest.raises(ConfigError) as refused:
            load(address)
        assert str(refused.value).startswith(said)
        assert "package.module:function or path/file.py:function" in str(refused.value)


@pytest.mark.parametrize("name", OWN)
def test_a_function_without_the_right_decorator_is_refused(name: str, folder: Path) -> None:
    kind, decorator = KINDS[name], name.removeprefix("own_")
    other = "own_gate" if name != "own_gate" else "own_component"
    for wrong, said in {"plain": "function", other: type(KINDS[other].load(f"own_things:{other}")).__name__}.items():
        with pytest.raises(ConfigError, match=f"must be a function with the decorator @{decorator}, got {said};"):
            kind.load(f"own_things.py:{wrong}")


def test_the_nearest_name_is_named() -> None:
    with pytest.raises(ConfigError, match="zero_variance"):
        load_gate("zero_varianz")
    with pytest.raises(ConfigError, match="exact_match"):
        load_component("exactmatch")


def test_a_relative_path_is_found_in_a_worker_that_runs_in_another_folder(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a worker of Ray: the driver's working folder is on its path.
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert load_gate("own_things.py:own_gate").name == "own_gate"


def test_a_file_is_loaded_once_however_it_is_written(folder: Path) -> None:
    found = {
        id(load_gate(f"{place}:own_gate")) for place in ("own_things.py", "./own_things.py", folder / "own_things.py")
    }
    assert len(found) == 1


def test_a_file_that_failed_is_loaded_anew(folder: Path) -> None:
    (folder / "later.py").write_text("raise ValueError('not yet')\n")
    with pytest.raises(ConfigError, match="not yet"):
        load_gate("later.py:own_gate")
    (folder / "later.py").write_text(SOURCE + "\n# now\n")
    assert load_gate("later.py:own_gate").name == "own_gate"


def test_an_alarm_of_the_user_needs_a_name_of_its_own(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"health\.alarms"):
        read_settings(HealthSettings, {"alarms": ["own_things:own_alarm", "own_things.py:own_alarm"]}, section="health")
    with pytest.raises(ConfigError, match=r"health\.alarms"):
        read_settings(HealthSettings, {"alarms": "own_things:own_alarm"}, section="health")


def test_functions_of_extensions_are_found_with_those_of_the_core() -> None:
    gates, curricula = "verl_agentic.sampling.gates", "verl_agentic.sampling.curricula"
    both = Registry[GateType](package=gates, extensions=(curricula,), what="gate", kind=GateType, decorator="gate")
    alone = Registry[GateType](package=gates, what="gate", kind=GateType, decorator="gate")
    assert {"void_groups", "mix"} <= set(both.names()) and "mix" not in alone.names()
    assert both.load("void_groups") is alone.load("void_groups")
    with pytest.raises(ConfigError):
        both.load("mix")  # a curriculum, which is no gate
