"""The rollout engine `agentic` for `engines.py`, in a process of its own; as `_vllm_side.py` does.

Usage: `python _agentic_side.py MODEL REQUESTS`. Answers a line when it is ready, then to every line that it reads the
seconds that it took to serve all requests once. Ends when its input ends. `TEMPERATURE`: of sampling; default 0.
`OUTPUTS`: a file that gets the new tokens of the last round.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "20000")  # before torch: threads that wait must not keep a core

from verl_agentic.cpu.inference.inference_engine import InferenceEngine
from verl_agentic.cpu.inference.request import SamplingParams


def write_outputs(outputs: list[list[int]]) -> None:
    """Writes the new tokens where `OUTPUTS` names a file."""
    if path := os.environ.get("OUTPUTS"):
        Path(path).write_text(json.dumps(outputs))


async def main(model: Path, requests: list[tuple[list[int], int]]) -> None:
    """Serves until the input ends."""
    engine = InferenceEngine.from_pretrained(model)
    temperature = float(os.environ.get("TEMPERATURE", "0"))

    async def serve(some: list[tuple[list[int], int]]) -> list[list[int]]:
        await engine.clear_cache()  # repeats of the same prompts would hit it
        calls = [
            engine.generate(ids, SamplingParams(temperature=temperature, max_tokens=count, ignore_eos=True))
            for ids, count in some
        ]
        return [list(generation.token_ids) for generation in await asyncio.gather(*calls)]

    await serve(requests[:1])
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        begin = time.perf_counter()
        outputs = await serve(requests)
        seconds = time.perf_counter() - begin
        assert list(map(len, outputs)) == [count for _, count in requests]
        write_outputs(outputs)
        print(seconds, flush=True)
    await engine.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())))
