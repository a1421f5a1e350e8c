#!/usr/bin/env bash
# SGLang 0.5.23 and the chat templates of TRL 1.16.0: string arguments that a template writes come back altered.
#
# A tool has one parameter of type string. The chat template writes a call with a value; SGLang's parser of the same
# model family reads the call.
#
#   expected  the value that was written
#   seen      GLM: `1.10` is `1.1`, `true` is `True`, `null` is `None`, `"hi"` loses its quotes
#             Qwen3-Coder's format: `null` is no text any more, but None
#
# Versions, zip codes, quoted text and words such as `true` are changed before the tool sees them. A policy that was
# trained with another reader of calls gets other results when it is served.
#
# Downloads about 30 MB and installs no server: modules that only serve models are replaced by stand-ins. Exit code 1 if
# the packages do something else.
set -euo pipefail

folder="$(mktemp --directory)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
pip="$folder/env/bin/pip"
"$pip" install --quiet jinja2==3.1.6 orjson==3.13.0 partial-json-parser==0.2.1.1.post7 pydantic==2.14.4
"$pip" download --quiet --no-deps --only-binary :all: --dest "$folder" sglang==0.5.23 trl==1.16.0
(cd "$folder" && for wheel in *.whl; do python3 -m zipfile -e "$wheel" unpacked; done)

cat > "$folder/show.py" <<'PYTHON'
import json
import logging
import sys
import types
from importlib import import_module
from pathlib import Path

from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

logging.disable(logging.CRITICAL)
unpacked = Path(sys.argv[1])
for name, path in (("sglang", "sglang"), ("sglang.srt", "sglang/srt"), ("sglang.srt.entrypoints", ""),
                   ("sglang.srt.entrypoints.openai", ""), ("sglang.srt.function_call", "sglang/srt/function_call")):
    package = sys.modules[name] = types.ModuleType(name)
    package.__path__ = [str(unpacked / path)] if path else []
protocol = sys.modules["sglang.srt.entrypoints.openai.protocol"] = types.ModuleType("protocol")
protocol.Tool = protocol.ToolChoice = types.SimpleNamespace
environ = sys.modules["sglang.srt.environ"] = types.ModuleType("environ")
environ.envs = types.SimpleNamespace()

PARAMETERS = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOL = types.SimpleNamespace(function=types.SimpleNamespace(name="note", parameters=PARAMETERS))
jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
jinja.filters["tojson"] = lambda value, ensure_ascii=False, indent=None: json.dumps(value, ensure_ascii=ensure_ascii)
altered = {}
for template, module, kind in (("glm4moe", "glm4_moe_detector", "Glm4MoeDetector"),
                               ("qwen3_5_nothink", "qwen3_coder_detector", "Qwen3CoderDetector")):
    detector = getattr(import_module(f"sglang.srt.function_call.{module}"), kind)
    source = jinja.from_string((unpacked / f"trl/chat_templates/{template}.jinja").read_text())
    for value in ("plain", "1.10", "true", "null", '"hi"'):
        call = {"type": "function", "function": {"name": "note", "arguments": {"text": value}}}
        messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
        written = source.render(messages=messages, tools=None, add_generation_prompt=False)
        (read,) = detector().detect_and_parse(written[written.index("<tool_call>"):], [TOOL]).calls
        found = json.loads(read.parameters)["text"]
        print(f"{template:15} {value!r:8} -> {found!r}")
        if found != value:
            altered[template, value] = found
raise SystemExit(altered != {("glm4moe", "1.10"): "1.1", ("glm4moe", "true"): "True", ("glm4moe", "null"): "None",
                             ("glm4moe", '"hi"'): "hi", ("qwen3_5_nothink", "null"): None})
PYTHON
"$folder/env/bin/python" "$folder/show.py" "$folder/unpacked"
