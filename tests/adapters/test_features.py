"""Each folder of adapters declares its features, and what they say of each other holds."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from patience import PATIENCE_S

import verl_agentic.verl
from verl_agentic.verl.config_root import ROOT, root_key
from verl_agentic.verl.features import all_adapters, all_features, is_installed
from verl_agentic.verl.sections import all_sections


def test_an_adapter_is_imported_behind_those_that_it_names() -> None:
    order = [adapter.module for adapter in all_adapters()]
    declared = [adapter for features in all_features() for adapter in features.adapters]
    assert len(order) == len(set(order)) == sum(is_installed(one.needs.split(".")[0]) for one in declared)
    for adapter in all_adapters():
        assert set(adapter.behind) <= set(order[: order.index(adapter.module)]), adapter.module
        assert find_spec(f"verl_agentic.verl.{adapter.module}"), adapter.module


def test_every_module_of_features_is_loaded() -> None:
    folder = Path(verl_agentic.verl.__path__[0])
    all_features()
    loaded = {sys.modules[name].__file__ for name in sys.modules if name.endswith("_features")}
    assert {str(path) for path in folder.rglob("*_features.py")} <= loaded


def test_every_section_has_a_key_below_the_root() -> None:
    assert all(root_key(path).split(".")[0] == ROOT for path in all_sections())
    places = [place for features in all_features() for place in features.places.values()]
    assert len(set(places)) == len(places)


def test_features_import_neither_torch_nor_verl() -> None:
    code = (
        "import sys\n"
        "from verl_agentic.verl.features import all_adapters\n"
        "assert all_adapters()\n"
        "print([name for name in ('torch', 'verl', 'ray') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert found.stdout.split("\n")[-2] == "[]", found.stdout
