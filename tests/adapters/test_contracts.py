"""The symbols that the adapters use from verl: a new verl fails here, by name, before it fails in a run."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import verl
from patch_scan import (
    DeclaredPatch,
    assigned_attributes,
    assigned_methods,
    bindings,
    declared_patches,
    is_verl,
    source_paths,
    sources,
)
from verl.workers.rollout.base import BaseRollout
from verl_versions import is_meant

from verl_agentic.episode.codec.turn_boundary import ContextBuilder
from verl_agentic.plugin import ADAPTERS, state
from verl_agentic.verl.patching import patches

ATTRIBUTES = {
    "verl.experimental.agent_loop.agent_loop:AgentLoopBase": "apply_chat_template_kwargs, config, "
    "continuous_token_builder, tokenizer",
    "verl.plugin.platform:PlatformBase": "device_name, ray_noset_envvars, rollout_env_vars, visible_devices_envvar",
    "verl.trainer.ppo.v1.replay_buffer:ReplayBuffer": "failure_keys, finished_keys, partitions, pending_keys, "
    "running_keys, sampler_kwargs",
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer": "actor_rollout_wg, checkpoint_manager, config, critic_wg, "
    "global_steps, logger, replay_buffer, tokenizer, train_dataloader, train_dataloader_it, train_dataset, use_critic",
    "verl.trainer.ppo.v1.trainer_sync:PPOTrainerSync": "ref_policy_wg",
    "verl.utils.checkpoint.checkpoint_manager:BaseCheckpointManager": "previous_saved_paths",
    "verl.workers.config.actor:ActorConfig": "clip_ratio, clip_ratio_c, clip_ratio_high, clip_ratio_low, "
    "global_batch_info, policy_loss",
    "verl.workers.config.actor:PolicyLossConfig": "loss_mode",
    "verl.workers.config.rollout:CheckpointEngineConfig": "update_weights_bucket_megabytes",
    "verl.workers.config:HFModelConfig": "local_path",
    "verl.workers.config:RolloutConfig": "checkpoint_engine, custom, data_parallel_size, dtype, engine_kwargs, "
    "ignore_eos, max_num_seqs, multi_turn, pipeline_model_parallel_size, prompt_length, response_length, seed, "
    "tensor_model_parallel_size",
    "verl.workers.engine.fsdp.transformer_impl:FSDPEngineWithLMHead": "checkpoint_manager, engine_config, "
    "is_param_offload_enabled, module, optimizer",
    "verl.workers.engine.fsdp.transformer_impl:FSDPEngineWithValueHead": "checkpoint_manager, engine_config, module, "
    "optimizer",
    "verl.workers.engine_workers:ActorRolloutRefWorker": "ref_worker_cls",
    "verl.workers.rollout.replica:RolloutReplica": "_server_address, _server_handle, servers",
    "verl.workers.rollout.replica:TokenOutput": "extra_fields, log_probs, stop_reason, token_ids",
}
"""Attributes that functions of ours read of instances; what a subclass reads of itself is found in its source."""
CALLS = {
    "verl.checkpoint_engine.base:CheckpointEngineManager.sleep_replicas": "self",
    "verl.checkpoint_engine.base:CheckpointEngineManager.update_weights": "self, global_steps",
    "verl.experimental.agent_loop.tool_parser:ToolParser.extract_tool_calls": "self, responses_ids",
    "verl.utils.distributed:initialize_global_process_group": "timeout_second",
    "verl.utils.distributed:initialize_global_process_group_ray": "timeout_second=, backend=",
    "verl.workers.engine.fsdp.transformer_impl:FSDPEngineWithLMHead._gather_and_unpad_packed": "self, tensor, pad_size",
    "verl.workers.engine_workers:ActorRolloutRefWorker.load_checkpoint": "self, local_path=, del_local_after_load=",
    "verl.workers.engine_workers:TrainingWorker.load_checkpoint": "self, local_path=, del_local_after_load=",
    "verl.workers.rollout.llm_server:LLMServerClient.generate": "self, request_id=, prompt_ids=, sampling_params=",
}
"""Calls of methods whose object has no name that an adapter imports; a keyword ends with `=`."""


@functools.cache
def list_patches() -> list[tuple[str, DeclaredPatch]]:
    """Returns the patches that the adapters declare by `wrap`, `replace` and `add`, in the order of the files."""
    return [
        (adapter, patch) for adapter, tree in sources() for patch in declared_patches(tree) if is_meant(patch.versions)
    ]


@pytest.mark.parametrize("adapter", source_paths())
def test_verl_has_what_an_adapter_uses(adapter: str) -> None:
    tree = dict(sources())[adapter]
    faults = [_fault_of_symbol(symbol) for symbol in sorted(_used_symbols(tree))]
    faults += [_fault_of_call(symbol, arguments) for symbol, arguments in _calls(tree)]
    faults += [
        _fault_of_patch(patch.symbol, patch.parameters)
        for name, patch in list_patches()
        if name == adapter and patch.kind != "add"
    ]
    assert not any(faults), f"verl {verl.__version__}: {list(filter(None, faults))}"


@pytest.mark.sample(7)
@pytest.mark.parametrize("symbol", ATTRIBUTES)
def test_instances_have_the_attributes_that_are_read(symbol: str) -> None:
    missing = set(_split(ATTRIBUTES[symbol])) - _instance_names(_find(symbol))
    assert not missing, f"{symbol} of verl {verl.__version__} sets no {missing}"


@pytest.mark.parametrize("symbol", CALLS)
def test_methods_take_what_they_are_given(symbol: str) -> None:
    assert not (fault := _fault_of_names(_find(symbol), _split(CALLS[symbol]))), f"verl {verl.__version__}: {fault}"


def test_verl_has_what_our_classes_override_and_inherit() -> None:
    classes = [cls for adapter, _ in sources() for cls in _subclasses(adapter)]
    faults = [f"{cls.__module__}.{cls.__name__}: {fault}" for cls in classes for fault in _faults_of_class(cls)]
    assert len(classes) > 10 and not faults, f"verl {verl.__version__}: {faults}"


class _Fake(BaseRollout):
    def __init__(self) -> None:
        self.own = self.device_mesh

    async def resume(self, labels: Any) -> None:
        self.own = self.gone


def test_a_broken_contract_is_named() -> None:
    device = "verl.utils.device"
    assert "has no gone" in _fault_of_symbol(f"{device}:gone")
    assert "cannot be imported" in _fault_of_symbol("verl.utils.gone:")
    for arguments in ((1, ["gone"]), (0, []), (2, [])):
        assert "takes (config" in _fault_of_call(f"{device}:auto_set_device", arguments)
    for replaced in ("", "*, gone, **kw", "setting, *args"):
        assert "takes (config)" in _fault_of_patch(f"{device}:auto_set_device", replaced)
    faults = list(_faults_of_class(_Fake))
    for fault in ("wants update_weights", "resume takes (self, tags), ours takes (self, labels)"):
        assert any(fault in found for found in faults), (fault, faults)
    assert [fault for fault in faults if fault.startswith("sets no")] == ["sets no gone"]


def test_the_walk_over_the_adapters_sees_every_way_to_name_verl() -> None:
    tree = ast.parse(
        """
import verl.utils.model
import importlib
from verl.utils import device
from verl.workers.rollout.base import BaseRollout as Base
from verl_agentic import errors

importlib.import_module("verl.utils.config")
hooks.when_imported("verl.utils.fs", print)
Adapter(module="x", needs="verl.utils.memory_utils")
device.auto_set_device({})

class Mine(Base):
    field: int = 1

    def resume(self, tags):
        self.own = self.device_mesh
        return self.own, self.field
"""
    )
    assert _used_symbols(tree) == {
        "verl.utils.model:",
        "verl.utils.device:",
        "verl.utils.device:auto_set_device",
        "verl.workers.rollout.base:BaseRollout",
        "verl.utils.config:",
        "verl.utils.fs:",
        "verl.utils.memory_utils:",
    }
    assert list(_calls(tree)) == [("verl.utils.device:auto_set_device", (1, []))]


def test_no_adapter_changes_verl_but_by_patching() -> None:
    found = [f"{adapter}: {assigned}" for adapter, tree in sources() for assigned in assigned_attributes(tree)]
    assert not found, f"use wrap, replace or add of verl/patching.py instead of {found}"


METHODS_OF_OBJECTS = {
    "extensions/dryrun/gradient_probe": "the engine of a dry run",
    "extensions/dryrun/step_probe": "the trainer of a dry run",
    "extensions/offline/pair_trainer": "the client of our own trainer",
    "extensions/offline/warm_start_trainer": "the checkpoint handler of our own trainer",
}
"""Files that change a method of a single object, which `doctor --patches` does not list, and whose object it is."""


def test_no_other_adapter_changes_a_method_of_an_object_of_verl() -> None:
    found = {name: list(assigned_methods(tree)) for name, tree in sources()}
    assert {name for name, texts in found.items() if texts} == set(METHODS_OF_OBJECTS), found
    tree = ast.parse(
        """
def report(): ...

buffer.sample, buffer.size = report, 3
client.train_batch = in_items(client.train_batch)
setattr(trainer, name, wrapped(function))
trainer.step = trainer.steps + 1
"""
    )
    assert len(list(assigned_methods(tree))) == 3


def test_the_walk_over_the_adapters_sees_every_way_to_patch_verl() -> None:
    tree = ast.parse(
        """
from dataclasses import replace as changed
from verl.utils import device
from verl.workers.rollout.base import BaseRollout
from verl_agentic.verl.patching import add, replace, wrap

@wrap(BaseRollout, "resume", "release", versions="<2", lost="a")
def _resume(resume, /, self, tags=1, *, now, **kwargs):
    return changed(self, tags=tags)

def _set_device(set_device, config):
    pass

wrap(device, "auto_set_device")(_set_device)
replace(device, "is_npu_available", False)
add(device.Fake, "ours", _set_device)
"""
    )
    base = "verl.workers.rollout.base:BaseRollout"
    found = sorted((patch.kind, patch.symbol, patch.parameters, patch.versions) for patch in declared_patches(tree))
    assert found == [
        ("add", "verl.utils.device:Fake.ours", "set_device, config", ""),
        ("replace", "verl.utils.device:is_npu_available", None, ""),
        ("wrap", "verl.utils.device:auto_set_device", "config", ""),
        ("wrap", f"{base}.release", "self, tags, *, now, **kwargs", "<2"),
        ("wrap", f"{base}.resume", "self, tags, *, now, **kwargs", "<2"),
    ]
    assert not list(assigned_attributes(tree))
    tree = ast.parse(
        """
from verl.utils import device
from verl.workers.rollout.base import BaseRollout

device.a = 1
base = cast("Any", BaseRollout)
base.b = base.c = 2
for owner, name in ((device, "d"), (BaseRollout, "e")):
    setattr(owner, name, 3)
del device.f
device.Fake.g += 1
made = BaseRollout()
made.h = 4
"""
    )
    assert sorted(assigned_attributes(tree)) == [
        "base.b",
        "base.c",
        "device.Fake.g",
        "device.a",
        "device.f",
        "setattr(owner, name, 3)",
    ]


@pytest.fixture(scope="module")
def patched() -> set[tuple[str, str]]:
    """Returns adapter and symbol of every patch of verl in this process, once all adapters are loaded."""
    for adapter in ADAPTERS:
        importlib.import_module(adapter.needs)
    assert not state().failed
    return {(patch.adapter.replace(".", "/"), patch.symbol) for patch in patches() if is_verl(patch.symbol)}


def test_the_table_holds_every_patch(patched: set[tuple[str, str]]) -> None:
    known = {(adapter, patch.symbol) for adapter, patch in list_patches()}
    assert patched, "no adapter patches verl"
    assert not patched - known, f"declared_patches misses {sorted(patched - known)}"
    expected = {
        adapter.module.replace(".", "/") for adapter in ADAPTERS if not adapter.module.startswith("extensions.cpu.")
    }
    assert {(adapter, symbol) for adapter, symbol in known if adapter in expected} <= patched


def test_a_file_that_patches_verl_begins_with_what_it_patches() -> None:
    for adapter, patch in list_patches():
        docstring = str(ast.get_docstring(dict(sources())[adapter]))
        assert docstring.startswith("Patches verl:"), adapter
        name = patch.symbol.replace(":", ".").rsplit(".", 1)[1]
        assert re.search(rf"`[\w.]*\b{name}`", docstring), f"{adapter} does not name {name}"


def test_our_server_answers_every_call_that_verl_makes_to_a_server() -> None:
    from verl_agentic.verl.extensions.server.rollout_server import RolloutServer

    calls = set()
    for module in ("replica", "llm_server"):
        source = Path(str(_module(f"verl.workers.rollout.{module}").__file__)).read_text()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and (found := re.fullmatch(r"server\.(\w+)\.remote", ast.unparse(node.func))):
                calls.add((found[1], tuple(keyword.arg for keyword in node.keywords if keyword.arg)))
    assert {name for name, _ in calls} >= {"generate", "sleep", "wake_up", "abort_all_requests"}
    for name, keywords in calls:
        method = getattr(RolloutServer, name, None)
        assert method, f"verl {verl.__version__} calls {name} of a rollout server; RolloutServer has none"
        accepted = inspect.signature(method).parameters
        taken = {*accepted} if not _has_kwargs(method) else {*accepted, *keywords}
        assert taken >= set(keywords), f"verl {verl.__version__} gives {name} of a rollout server {keywords}"


def test_verls_token_builder_has_the_methods_that_join_turns() -> None:
    builder = _module("verl_agentic.verl.rollout.token_builder").ContinuousTokenBuilder
    for name in ("build_initial_tokens", "merge_context_tokens", "render_delta_token_id"):
        given = _split(_parameters(getattr(ContextBuilder, name)))
        fault = _fault_of_names(getattr(builder, name), [f"{n}=" if n == "tools" else n for n in given])
        assert not fault, f"{name} of the token builder of verl {verl.__version__} {fault}"


def test_verl_has_the_configuration_keys_that_the_guard_reads() -> None:
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer")
    rollout = "actor_rollout_ref.rollout"
    for key in (
        "trainer.device",
        f"{rollout}.name",
        f"{rollout}.agent.default_agent_loop",
        f"{rollout}.checkpoint_engine.backend",
        "algorithm.adv_estimator",
        "trainer.v1.sampler.sampler_kwargs",
        "reward.reward_manager.name",
    ):
        section, _, name = key.rpartition(".")
        # A set of keys, because `in` says False for a value that is still to be given.
        assert name in {*OmegaConf.select(config, section).keys()}, (
            f"verl {verl.__version__} has no {key}, which guard reads"
        )


def _find(symbol: str) -> Any:
    module, _, names = symbol.partition(":")
    found: Any = _module(module)
    for name in filter(None, names.split(".")):
        found = getattr(found, name)
    return found


def _fault_of_symbol(symbol: str) -> str:
    try:
        _find(symbol)
    except ImportError as error:
        return f"{symbol.strip(':')} cannot be imported, {error}"
    except AttributeError as error:
        name = re.findall(r"'(\w+)'", str(error))[-1]
        return f"{symbol} has no {name}"
    return ""


def _fault_of_call(symbol: str, arguments: tuple[int, list[str]]) -> str:
    try:
        signature = inspect.signature(_find(symbol))
    except ValueError:  # a class of C
        return ""
    num_positional, keywords = arguments
    try:
        signature.bind(*[None] * num_positional, **dict.fromkeys(keywords))
    except TypeError as error:
        return f"{symbol} takes {signature}, {error}"
    return ""


def _fault_of_names(function: Any, arguments: list[str]) -> str:
    positional = [name for name in arguments if not name.endswith("=")]
    signature = inspect.signature(function)
    if list(signature.parameters)[: len(positional)] != positional:
        return f"{function} takes {signature}, it is given {positional} in that order"
    try:
        signature.bind(*positional, **{name[:-1]: None for name in arguments if name.endswith("=")})
    except TypeError as error:
        return f"{function} takes {signature}, {error}"
    return ""


def _fault_of_patch(symbol: str, ours: str | None) -> str:
    if (fault := _fault_of_symbol(symbol)) or ours is None or _takes_its_calls(_find(symbol), _split(ours)):
        return fault
    return f"{symbol} takes ({_parameters(_find(symbol))}), ours takes ({ours})"


def _calls(tree: ast.Module) -> Iterator[tuple[str, tuple[int, list[str]]]]:
    """Yields every call of something that is imported from verl: number of positional arguments, and keywords."""
    bound = bindings(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or any(isinstance(argument, ast.Starred) for argument in node.args):
            continue
        root, *names = ast.unparse(node.func).split(".")
        keywords = [keyword.arg for keyword in node.keywords if keyword.arg]
        if root in bound and all(map(str.isidentifier, names)) and len(keywords) == len(node.keywords):
            separator = "" if bound[root].endswith(":") or not names else "."
            yield f"{bound[root]}{separator}{'.'.join(names)}", (len(node.args), keywords)


def _subclasses(adapter: str) -> Iterator[type]:
    """Yields the classes of a file that have a base of verl."""
    name = "verl_agentic.plugin" if adapter == "plugin" else f"verl_agentic.verl.{adapter.replace('/', '.')}"
    try:
        module = _module(name.removesuffix(".__init__"))
    except ImportError:  # vLLM is not installed
        return
    for cls in vars(module).values():
        if isinstance(cls, type) and cls.__module__ == module.__name__ and _bases_of(cls, "verl"):
            yield cls


def _bases_of(cls: type, *packages: str) -> list[type]:
    return [base for base in cls.__mro__ if base.__module__.split(".")[0] in packages]


def _without_extra(mine: Any, base: Any) -> list[str]:
    """Returns our parameters, without those that verl's function takes as `**kwargs`."""
    named = inspect.signature(base).parameters
    extra = [] if not _has_kwargs(base) else [n for n in inspect.signature(mine).parameters if n not in named]
    return [name for name in _split(_parameters(mine)) if name not in extra] + ["**_"] * bool(extra)


def _faults_of_class(cls: type) -> Iterator[str]:
    theirs = _bases_of(cls, "verl")
    ours = [base for base in cls.__mro__ if base is cls or base.__module__.startswith("verl_agentic.")]
    yield from (f"wants {name}, which we do not have" for name in sorted(getattr(cls, "__abstractmethods__", ())))
    read, own = set[str](), {name for base in ours for name in (*vars(base), *vars(base).get("__annotations__", ()))}
    for base in ours:
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(base)))):
            if isinstance(node, ast.Attribute) and _is_self(node):
                (own if isinstance(node.ctx, ast.Store) else read).add(node.attr)
    inherited = set[str]().union(*map(_instance_names, theirs))
    yield from (f"sets no {name}" for name in sorted(read - own - inherited))
    for name in sorted(own):
        mine, base = (next((vars(c)[name] for c in bases if name in vars(c)), None) for bases in (ours, theirs))
        if mine is None or base is None or name == "__init__":  # what we construct, we may construct otherwise
            continue
        if isinstance(mine, property) != isinstance(base, property):
            yield f"{name} is a {type(base).__name__}"
        elif inspect.isfunction(mine) and not _takes_its_calls(base, _without_extra(mine, base)):
            yield f"{name} takes ({_parameters(base)}), ours takes ({_parameters(mine)})"


def _takes_its_calls(function: Any, ours: list[str]) -> bool:
    """Tells whether a function of ours takes what verl's does: the same names, or stars for the rest."""
    positional = list(itertools.takewhile(lambda name: not name.startswith("*"), ours))
    keywords = {name for name in ours[len(positional) :] if not name.startswith("*")}
    # Ray adds it to the methods of its actors.
    theirs = [name for name in _split(_parameters(function)) if name != "_ray_trace_ctx"]
    named = [name for name in theirs if not name.startswith("*")]
    takes_rest = any(name.startswith("*") and name != "*" for name in ours)
    rest = [name for name in theirs if name not in (*positional, *keywords)]
    return named[: len(positional)] == positional and keywords <= set(named) and (takes_rest or not rest)


def _parameters(function: Any) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    # Ours may have replaced it in this process already: inspect follows functools.wraps to the original.
    return ", ".join(
        stars.get(parameter.kind, "") + name for name, parameter in inspect.signature(function).parameters.items()
    )


def _instance_names(cls: type) -> set[str]:
    """Returns class attributes, annotated fields, and what methods assign to `self`."""
    names = set(dir(cls)) | set(getattr(cls, "model_fields", ()))
    for base in cls.__mro__[:-1]:
        names |= set(vars(base).get("__annotations__", ()))
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError):
            continue
        names |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node)
        }
    return names


def _used_symbols(tree: ast.Module) -> set[str]:
    bound = bindings(tree)
    # A module that is only named counts itself; one symbol of it is counted where it is used.
    used = set(bound.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            used |= {f"{alias.name}:" for alias in node.names if is_verl(alias.name)}
        if isinstance(node, ast.Call):
            used |= {f"{name}:" for name in _named_modules(node)}
        if isinstance(node, ast.Attribute):
            used |= _attribute(node, bound)
    used |= {patch.symbol for patch in declared_patches(tree) if patch.kind != "add" and is_meant(patch.versions)}
    # `Class.method` says more than `Class`.
    return {s for s in used if s.endswith(":") or not any(o.startswith(f"{s}.") for o in used)} | _bases(tree, bound)


def _named_modules(call: ast.Call) -> list[str]:
    function = ast.unparse(call.func).rsplit(".", 1)[-1]
    given = [keyword.value for keyword in call.keywords if keyword.arg == "needs"]
    if function in ("import_module", "when_imported", "__import__"):
        given += call.args[:1]
    constants = [node.value for node in given if isinstance(node, ast.Constant)]
    return [name for name in constants if isinstance(name, str) and is_verl(name)]


def _attribute(node: ast.Attribute, bound: dict[str, str]) -> set[str]:
    root, *names = ast.unparse(node).split(".")
    symbol = bound.get(root)
    if symbol is None or not all(name.isidentifier() for name in names):
        return set()
    depth = 2 if symbol.endswith(":") else 1
    return {symbol + ("" if symbol.endswith(":") else ".") + ".".join(names[:depth])}


def _bases(tree: ast.Module, bound: dict[str, str]) -> set[str]:
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {bound[ast.unparse(base)] for node in classes for base in node.bases if ast.unparse(base) in bound}


def _is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _has_kwargs(function: Any) -> bool:
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in inspect.signature(function).parameters.values())


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]
