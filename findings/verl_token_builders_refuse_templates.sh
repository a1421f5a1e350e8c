#!/usr/bin/env bash
# verl 0.9.1 and the chat templates of TRL 1.16.0: a second message of the user cannot be rendered for some models.
#
# In multi-turn training, verl's token builder renders the messages that follow a turn after a synthetic conversation,
# which is a message of the system and one of the user. Some templates demand that user and policy alternate:
#
#   expected  the tokens of the new message: the template renders the real conversation (user, policy, user)
#   seen      Gemma 3, Cohere 2: TemplateError, "Conversation roles must alternate"
#             Qwen 2.5: rendered
#
# Raised in the loop of an agent, this ends each episode in which the policy answers in words and the environment asks
# again. Remedy: render new messages after a question and a turn of the policy.
#
# Downloads about 2 GB. Exit code 1 if the packages do something else.
set -euo pipefail

folder="$(mktemp --directory)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
"$folder/env/bin/pip" install --quiet verl==0.9.1 TransferQueue==0.1.11 tensordict==0.10.0 ray==2.60.0 \
    transformers==5.10.4 cachetools==8.0.2 fastapi==0.165.0 orjson==3.13.0 uvicorn==0.54.0  # verl imports them undeclared
"$folder/env/bin/pip" install --quiet --no-deps trl==1.16.0

cat > "$folder/show.py" <<'PYTHON'
from importlib.metadata import files
from pathlib import Path

import verl
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

(folder,) = {Path(file.locate()).parent for file in files("trl") if file.name == "gemma3.jinja"}
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
BEFORE = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "Done."}]
NEW = [{"role": "user", "content": "More."}]
seen = {}
for template in ("qwen2_5", "gemma3", "cohere2"):
    bytes_only = Tokenizer(models.BPE(vocab={sign: number for number, sign in enumerate(alphabet)}, merges=[]))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytes_only, bos_token="<s>", eos_token="</s>", pad_token="</s>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = (folder / f"{template}.jinja").read_text()
    builder = create_continuous_token_builder(tokenizer, model_family="default")
    assert "More." in tokenizer.apply_chat_template([*BEFORE, *NEW], tokenize=False)
    stream = builder.build_initial_tokens(BEFORE[:1], tools=None)
    try:
        builder.merge_context_tokens(BEFORE, [*BEFORE, *NEW], stream)
        seen[template] = "rendered"
    except Exception as cause:
        seen[template] = f"{type(cause).__name__}: {cause}"
    print(f"verl {verl.__version__}, {template}: {seen[template][:100]}")
refused = {template for template, found in seen.items() if "roles must alternate" in found}
raise SystemExit(refused != {"gemma3", "cohere2"} or seen["qwen2_5"] != "rendered")
PYTHON
VERL_USE_EXTERNAL_PLUGINS=none "$folder/env/bin/python" -W ignore "$folder/show.py"
