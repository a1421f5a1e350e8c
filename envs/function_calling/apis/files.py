"""Files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Api, Chain, Intent, Respond, Slots, call, dice, integer, one_of, text
from .values import FILE_STEMS, FOLDERS, TEXTS

_ENDINGS = ("pdf", "txt", "csv", "docx")


def _search_files(arguments: Mapping[str, Any]) -> Any:
    rng = dice("search_files", {"pattern": arguments["pattern"], "folder": arguments["folder"]})
    stem, _, ending = arguments["pattern"].rpartition(".")
    names = [f"{stem.replace('*', '') or 'file'}-{rng.randint(10, 99)}.{ending}" for _ in range(rng.randint(1, 4))]
    folder = arguments["folder"].rstrip("/")
    return {"matches": [f"{folder}/{name}" for name in names][: arguments["max_results"]]}


def _move_file(arguments: Mapping[str, Any]) -> Any:
    return {"status": "moved", "path": arguments["destination"]}


def _write_file(arguments: Mapping[str, Any]) -> Any:
    return {"status": "written", "path": arguments["path"], "characters": len(arguments["content"])}


def _archive_found(slots: Slots, respond: Respond) -> list[dict[str, Any]]:
    arguments = {"pattern": slots["pattern"], "folder": slots["folder"], "max_results": 1}
    path = respond("search_files", arguments)["matches"][0]
    return [call("search_files", **arguments), call("move_file", source=path, destination=slots["destination"])]


APIS = (
    Api(
        name="search_files",
        description="Lists the files whose name matches a pattern.",
        properties={
            "pattern": text("Shell pattern of the name, such as *.txt."),
            "folder": text("Folder to search.", default="/"),
            "max_results": integer("Most files to list.", minimum=1, default=20),
        },
        respond=_search_files,
    ),
    Api(
        name="move_file",
        description="Moves or renames one file.",
        properties={
            "source": text("Full path of the file."),
            "destination": text("Full path it gets."),
            "overwrite": {"type": "boolean", "description": "Whether to replace a file there.", "default": False},
        },
        respond=_move_file,
    ),
    Api(
        name="write_file",
        description="Writes text to a file.",
        properties={
            "path": text("Full path of the file."),
            "content": text("The text."),
            "mode": one_of(("replace", "append"), "What happens to text that is there.", default="replace"),
        },
        respond=_write_file,
    ),
)

INTENTS = (
    Intent(
        tool="search_files",
        draw=lambda d: {"pattern": f"*{d.pick(FILE_STEMS)}*.{d.choice(_ENDINGS)}", "folder": d.pick(FOLDERS)},
        train=("List the files in {folder} that match {pattern}.", "Search {folder} for {pattern}."),
        test=("Which files in {folder} have a name like {pattern}?",),
    ),
    Intent(
        tool="move_file",
        draw=lambda d: {
            "source": f"{d.pick(FOLDERS)}/{(name := d.pick(FILE_STEMS) + '.' + d.choice(_ENDINGS))}",
            "destination": f"{d.pick(FOLDERS)}/old/{name}",
        },
        train=("Move {source} to {destination}.", "{source} should become {destination}, please move it."),
        test=("Take the file {source} and move it so that its path is {destination}.",),
        without={"path": ("Move {source} somewhere else.", "Take the file {source} and move it.")},
    ),
    Intent(
        tool="move_file",
        draw=lambda d: {
            "source": f"{d.pick(FOLDERS)}/{d.pick(FILE_STEMS)}.{d.choice(_ENDINGS)}",
            "destination": f"{d.pick(FOLDERS)}/{d.pick(FILE_STEMS)}-{d.number(2, 99)}.bak",
            "overwrite": True,
        },
        train=("Move {source} to {destination} and replace whatever is there.",),
        test=("Rename {source} to {destination}; overwrite it if it exists.",),
    ),
    Intent(
        tool="write_file",
        draw=lambda d: {
            "path": f"{d.pick(FOLDERS)}/{d.pick(FILE_STEMS)}.txt",
            "content": d.pick(TEXTS),
            "mode": d.choice(("replace", "append")),
        },
        train=('Write "{content}" to {path} in {mode} mode.',),
        test=('Mode {mode}: put the text "{content}" into the file {path}.',),
        without={
            "path": (
                'Write "{content}" to a file in {mode} mode.',
                'Mode {mode}: put the text "{content}" into the file.',
            )
        },
    ),
)

CHAINS = (
    Chain(
        draw=lambda d: {
            "pattern": f"{d.pick(FILE_STEMS)}*.{d.choice(_ENDINGS)}",
            "folder": d.pick(FOLDERS),
            "destination": f"{d.pick(FOLDERS)}/kept.{d.choice(_ENDINGS)}",
        },
        calls=_archive_found,
        train=("Search {folder} for {pattern}, with one result at most, and move that file to {destination}.",),
        test=("Move the file in {folder} that matches {pattern} (ask for just 1 result) to {destination}.",),
    ),
)
