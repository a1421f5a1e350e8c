"""A patch keeps what verl's attribute is for everybody else, and stands in the table."""

from __future__ import annotations

import asyncio
import inspect
import sys
from types import ModuleType
from typing import Any

import pytest
import verl

from verl_agentic import plugin
from verl_agentic.base.errors import PluginError
from verl_agentic.verl import patching
from verl_agentic.verl.features import Adapter
from verl_agentic.verl.patching import Patch, add, missing_hooks, patches, replace, undo_failed, wrap


@pytest.fixture(autouse=True)
def _empty_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patching, "_applied", [])
    monkeypatch.setattr(patching, "_missing", {})


@pytest.fixture
def owner() -> Any:
    """A class like one of verl's."""

    class Base:
        def inherited(self, text: str) -> str:
            return f"base {text}"

    class Owner(Base):
        label = "verl"

        def method(self, text: str, *, end: str = ".") -> str:
            """Returns the text."""
            return text + end

        method.marked = True  # type: ignore[attr-defined]  # as verl's decorators do

        async def wait(self, text: str) -> str:
            await asyncio.sleep(0)
            return text

        @classmethod
        def of(cls, text: str) -> tuple[type, str]:
            return cls, text

        @staticmethod
        def join(*texts: str) -> str:
            return " ".join(texts)

    return Owner


def test_a_wrapper_gets_the_original_and_the_call_and_keeps_the_metadata(owner: Any) -> None:
    verls, signature = owner.method, inspect.signature(owner.method)

    @wrap(owner, "method")
    def shout(method: Any, self: Any, text: str, **kwargs: Any) -> str:
        return method(self, text.upper(), **kwargs)

    assert owner().method("a", end="!") == "A!"
    found = owner.method
    assert (found.__name__, found.__qualname__, found.__doc__) == (verls.__name__, verls.__qualname__, verls.__doc__)
    assert found.__module__ == verls.__module__ and found.marked and found.__wrapped__ is verls
    assert inspect.signature(found) == signature
    assert shout(lambda self, text: text, None, "b") == "B", "the wrapper itself stays callable"


def test_patches_of_one_symbol_nest_in_the_order_in_which_they_are_applied(owner: Any) -> None:
    @wrap(owner, "method")
    def first(method: Any, self: Any, text: str) -> str:
        return f"[{method(self, text)}]"

    @wrap(owner, "method")
    def second(method: Any, self: Any, text: str) -> str:
        return f"({method(self, text)})"

    assert owner().method("a") == "([a.])"
    name = f"{__name__}:{owner.__qualname__}.method"
    assert [(p.symbol, p.kind, p.adapter, p.order) for p in patches()] == [
        (name, "wrap", __name__, 1),
        (name, "wrap", __name__, 2),
    ]


async def test_around_a_coroutine_function_there_is_one(owner: Any) -> None:
    @wrap(owner, "wait")
    async def wait_twice(wait: Any, self: Any, text: str) -> str:
        return await wait(self, text) + await wait(self, text)

    assert inspect.iscoroutinefunction(owner.wait) and not inspect.iscoroutinefunction(owner.method)
    assert await owner().wait("a") == "aa"


def test_class_methods_and_static_methods_stay_what_they_are(owner: Any) -> None:
    @wrap(owner, "of")
    def of_upper(of: Any, cls: Any, text: str) -> tuple[type, str]:
        return of(cls, text.upper())

    @wrap(owner, "join")
    def join_all(join: Any, *texts: str) -> str:
        return join(*texts, "end")

    class Child(owner):
        pass

    assert Child.of("a") == (Child, "A") and owner.of("a") == (owner, "A")
    assert owner.join("a") == owner().join("a") == "a end"


def test_one_wrapper_serves_several_names_and_owners(owner: Any) -> None:
    class Other(owner):
        def method(self, text: str) -> str:
            return "other " + text

    @wrap(owner, "method", "inherited")
    @wrap(Other, "method")
    def mark(call: Any, self: Any, text: str) -> str:
        return f"<{call(self, text)}>"

    assert owner().method("a") == "<a.>" and owner().inherited("a") == "<base a>"
    assert Other().method("a") == "<other a>"
    assert "inherited" not in [patch.symbol for patch in patches() if "Base" in patch.symbol]
    assert owner.__base__().inherited("a") == "base a", "the base class is left alone"


def test_attributes_of_modules_are_wrapped_replaced_and_added() -> None:
    module: Any = ModuleType("verl.some")
    module.limit, module.read = 1, lambda: "verl"
    replace(module, "limit", 2)
    add(module, "ours", 3)
    wrap(module, "read")(lambda read: read() + " and ours")
    assert (module.limit, module.ours, module.read()) == (2, 3, "verl and ours")
    assert [(patch.symbol, patch.kind) for patch in patches()] == [
        ("verl.some:limit", "replace"),
        ("verl.some:ours", "add"),
        ("verl.some:read", "wrap"),
    ]


def test_an_attribute_that_verl_lacks_or_has_already_is_named(owner: Any) -> None:
    for patch in (wrap(owner, "gone"), lambda value: replace(owner, "gone", value)):
        with pytest.raises(
            PluginError, match=rf"verl {verl.__version__} lacks .*must (wrap|replace), got .*Owner\.gone;"
        ):
            patch(print)
    with pytest.raises(PluginError, match=r"Owner\.method"):
        add(owner, "method", print)
    assert not patches() and not hasattr(owner, "gone")


def test_a_patch_for_other_versions_of_verl_is_not_applied(owner: Any) -> None:
    major = int(verl.__version__.split(".")[0])
    replace(owner, "label", "later", versions=f">={major + 1}")
    wrap(owner, "gone_since", versions=f">={major + 1}")(print)
    assert owner.label == "verl" and not patches() and not missing_hooks()
    replace(owner, "label", "now", versions=f"<{major + 1}")
    assert owner.label == "now" and patches()[0].versions == f"<{major + 1}"


def test_a_hook_that_other_versions_have_is_listed_with_what_is_lost_without_it(owner: Any) -> None:
    major = int(verl.__version__.split(".")[0])
    for lost in ("", "the metric a"):
        wrap(owner, "gone", "method", versions=f">={major + 1}", lost=lost)(print)
        wrap(owner, "method", versions=f"<{major + 1}", lost=lost)(lambda method, *args: method(*args))
    found = missing_hooks()
    assert [(hook.symbol.rpartition(".")[2], hook.lost) for hook in found] == [
        ("gone", "the metric a"),
        ("method", "the metric a"),
    ]
    assert {(hook.adapter, hook.versions) for hook in found} == {(__name__, f">={major + 1}")}


def test_an_adapter_that_fails_leaves_verl_as_it_was(owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(vars(owner))
    wrap(owner, "method")(lambda method, self, text: "whole " + method(self, text))
    failing: dict[str, Any] = {
        "__name__": "verl_agentic.verl.trainer.failing",
        "owner": owner,
        "wrap": wrap,
        "add": add,
    }
    source = "wrap(owner, 'method', 'of', 'inherited')(lambda call, *args: undefined)\nadd(owner, 'ours', 1)\n1 / 0"
    monkeypatch.setattr(plugin, "_state", plugin.PluginState())
    monkeypatch.setattr(plugin.importlib, "import_module", _importing(failing, source))
    plugin.load(Adapter(module="trainer.failing", needs="verl", gives="", chosen_by=""))
    assert plugin.state().failed == {"trainer.failing": "ZeroDivisionError: division by zero"}
    assert owner().method("a") == "whole a." and owner.of("a") == (owner, "a")
    assert set(vars(owner)) == before
    assert [(patch.adapter, patch.order) for patch in patches()] == [(__name__, 1)]


def _importing(namespace: dict[str, Any], source: str) -> Any:
    def import_module(name: str) -> Any:
        if name == patching.__name__:
            return sys.modules[name]
        exec(source, namespace)

    return import_module


def test_the_table_is_a_copy(owner: Any) -> None:
    replace(owner, "label", "ours")
    (patch,) = found = patches()
    replace(owner, "label", "again")
    assert found == (patch,) and isinstance(patch, Patch)
    undo_failed()
    assert owner.label == "again" and len(patches()) == 2, "nothing has failed"
