"""Answers calls to an environment in a session of a sandbox. Sent there as source; imported nowhere.

The calls are those of an environment server (`bridges/remote/wire.py`). The process outside judges the answers.
"""

import asyncio
import json
import os
import sys

_loop = asyncio.new_event_loop()


def begin(folder: str, packages: list) -> None:
    """Loads the environment; `packages` are folders of Python packages."""
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.path[:0] = packages
    for name in [name for name in sys.modules if name.partition(".")[0] == "verl_agentic"]:
        del sys.modules[name]  # the sandbox has a few of them, without the rest
    from verl_agentic.bridges.remote.sessions import EnvSessions
    from verl_agentic.episode.env_package import load_env_package

    global _sessions
    asyncio.set_event_loop(_loop)
    _sessions = EnvSessions(load_env_package(folder))
    print("\n{}")


def answer(calls: str) -> None:
    """Prints the answers to calls, in their order, in the last line."""
    from verl_agentic.bridges.remote.wire import dumps

    async def answer_all() -> list:
        return list(await asyncio.gather(*map(_sessions.answer, json.loads(calls))))

    print("\n" + dumps(_loop.run_until_complete(answer_all())).decode())
