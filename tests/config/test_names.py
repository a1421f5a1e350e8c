"""The table of names: every name resolves, every place exists, and unknown names get near ones."""

from __future__ import annotations

import functools
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from verl_agentic.base.errors import ConfigError
from verl_agentic.base.paths import find_bundled
from verl_agentic.catalogue.names import KINDS, find_name, find_place, list_names, make_key, read_table
from verl_agentic.cli import main

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "verl_agentic" / "config" / "agentic" / "plugin.yaml"
ROWS = [row for group in read_table().values() for row in group.items()]
NAMES = [make_key(name) for names, _ in ROWS for name in names.split(",")]
PLACES = sorted({address for _, row in ROWS for address in row["at"]})


@functools.cache
def load_defaults(config: Path) -> dict:
    return yaml.safe_load(config.read_text())


def has_key(config: Path, key: str) -> bool:
    """Tells whether a file of defaults declares a dotted key."""
    node = load_defaults(config)
    for part in key.split("."):
        if not isinstance(node, dict) or part not in node:
            return False
        node = node[part]
    return True


def read_anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as mkdocs makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    explicit = [re.search(r"\{ #([\w-]+) \}", heading) for heading in headings]
    return {
        match[1] if match else re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")
        for heading, match in zip(headings, explicit, strict=True)
    }


def test_every_name_resolves_to_a_place_or_to_the_reason_why_there_is_none() -> None:
    for key in NAMES:
        name = find_name(key)
        assert name.places or name.differs.startswith("not here"), key


def test_a_name_has_one_row() -> None:
    assert len(NAMES) == len(set(NAMES)) and len(NAMES) > 450


def test_every_name_of_the_list_resolves() -> None:
    listed = list_names()
    assert set(NAMES) < set(listed) and len(listed) > 700
    for key in listed[::25]:  # a name of a docstring costs a scan of all files
        assert find_name(key).key == key


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
def test_every_place_exists(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    for place in [find_place(address) for address in PLACES if address.startswith(f"{kind}/")]:
        if kind == "docs":
            page, _, anchor = place.name.partition("#")
            assert not anchor or anchor in read_anchors(ROOT / "docs" / page), place
        elif kind == "command":
            with pytest.raises(SystemExit) as stop:
                main([*place.name.split(), "--help"])
            assert stop.value.code == 0 and f"verl-agentic {place.name}" in capsys.readouterr().out
        elif kind == "option" and place.name.startswith("agentic."):
            assert has_key(PLUGIN, place.name), place
        elif kind in ("option", "verl"):
            spec = find_spec("verl")
            if spec is not None and spec.submodule_search_locations:
                folder = Path(spec.submodule_search_locations[0])
                defaults = folder / "trainer" / "config" / "_generated_ppo_trainer.yaml"
                assert (folder / place.name).is_file() or has_key(defaults, place.name), place
        else:
            assert find_bundled(place.file).is_file() and place.use


def test_every_bundled_thing_with_a_name_is_found_under_it() -> None:
    for address in ("system/webrl", "recipe/agentq", "environment/shop", "bridge/bfcl", "estimator/salt", "loss/pacs"):
        places = find_name(address.partition("/")[2]).places
        assert address in {f"{place.kind}/{place.name}" for place in places}


def test_spelling_does_not_matter() -> None:
    expected = find_name("tau_bench").places
    assert expected and all(find_name(text).places == expected for text in ("Tau-Bench", "τ-bench", " TAU bench"))


def test_a_method_of_a_docstring_is_found_without_a_row() -> None:
    assert "merge_ram" not in NAMES
    assert [place.file for place in find_name("merge_ram").places] == ["verl_agentic/data/model_merge_math.py"]


def test_the_largest_deviation_comes_first() -> None:
    first, *others = find_name("webrl").deviations
    assert "GAE over turns" in first and any("another form" in text for text in others)
    assert find_name("marft").deviations[0].startswith("agents share the weights")
    assert any(text.startswith("no reproduction tests") for text in find_name("agentless").deviations)


def test_an_unknown_name_gets_near_ones() -> None:
    with pytest.raises(ConfigError, match=r"agentles.*agentless"):
        find_name("agentles")
    with pytest.raises(ConfigError, match=r"bench.*swe_bench"):
        find_name("bench")


def test_a_place_with_an_unknown_kind_or_without_a_file_is_refused() -> None:
    for address in ("component/nothing", "thing/search_r1", "search_r1"):
        with pytest.raises(ConfigError, match=address):
            find_place(address)


def test_the_page_of_papers_has_every_name_of_the_table() -> None:
    text = (ROOT / "docs" / "papers.md").read_text()
    assert all(f"| {names} |" in text for names, _ in ROWS)


@pytest.mark.parametrize("name", ["agentless", "inspo", "tau_bench", "bfcl", "alfworld", "browsecomp", "webshaper"])
def test_the_command_shows_places_and_deviations(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", name]) == 0
    output = capsys.readouterr().out
    assert output.startswith(name) and all(place.use in output for place in find_name(name).places)
    assert all(text in output for text in find_name(name).deviations)


def test_the_command_names_near_matches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "agentles"]) == 2 and "agentless" in capsys.readouterr().err


def test_a_system_has_its_other_places_and_its_deviations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "Search-R1"]) == 0
    output = capsys.readouterr().out
    assert "agentic/system: search_r1" in output and "agentic.protocol: search_r1" in output
    assert find_name("search_r1").deviations[0] in output
