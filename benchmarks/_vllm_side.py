"""The vLLM side of `rollout_server.py` and `engines.py`, in a process of its own: it needs nothing but vLLM.

Usage: `python _vllm_side.py MODEL REQUESTS`. Answers a line when it is ready, then to every line that it reads the
seconds that it took to serve all requests once. Ends when its input ends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main(model: str, requests_path: str) -> None:
    """Serves until the input ends."""
    # vLLM writes its log to standard output, which is ours for the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm import LLM, SamplingParams  # pyright: ignore[reportMissingImports]

    requests = json.loads(Path(requests_path).read_text())
    prompts = [{"prompt_token_ids": ids} for ids, _ in requests]
    params = [
        SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True, detokenize=False) for _, count in requests
    ]
    longest = max(len(ids) + count for ids, count in requests)
    llm = LLM(
        model=model, dtype="float32", max_model_len=longest, max_num_seqs=len(requests), enable_prefix_caching=False
    )
    llm.generate(prompts[:1], params[:1], use_tqdm=False)
    print("ready", file=answers, flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - begin
        assert [len(o.outputs[0].token_ids) for o in outputs] == [count for _, count in requests]
        print(seconds, file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
