"""transformers' `generate` for `engines.py`, in a process of its own; as `_vllm_side.py` does.

Usage: `python _hf_side.py MODEL REQUESTS`. Answers a line when it is ready, then to every line that it reads the
seconds that it took to serve all requests once, in one batch that is padded on the left. Ends when its input ends.
`OUTPUTS`: a file that gets the new tokens of the last round.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "20000")  # before torch: threads that wait must not keep a core

import torch
from _agentic_side import write_outputs
from transformers import AutoModelForCausalLM


def main(model_path: Path, requests: list[tuple[list[int], int]]) -> None:
    """Serves until the input ends."""
    model: Any = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32, attn_implementation="sdpa")
    model.generation_config.eos_token_id = None

    def serve(some: list[tuple[list[int], int]]) -> list[list[int]]:
        width = max(len(ids) for ids, _ in some)
        padded = torch.tensor([[0] * (width - len(ids)) + ids for ids, _ in some])
        mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids, _ in some])
        with torch.inference_mode():
            outputs = model.generate(
                padded,
                attention_mask=mask,
                do_sample=False,
                max_new_tokens=max(count for _, count in some),
                pad_token_id=0,
            )
        return [row[width : width + count] for row, (_, count) in zip(outputs.tolist(), some, strict=True)]

    serve([(requests[0][0], 2)])
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        outputs = serve(requests)
        seconds = time.perf_counter() - begin
        write_outputs(outputs)
        print(seconds, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()))
