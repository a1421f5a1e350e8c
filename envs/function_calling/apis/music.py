"""Music."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Api, Chain, Intent, Respond, Slots, and_list, call, identifier, integer, listed, obj, text
from .values import ARTISTS, MOODS, ROOMS

_WHAT = {
    "description": "One artist, or a playlist by its id.",
    "anyOf": [obj({"artist": text("Name of the artist.")}), obj({"playlist_id": text("As pls-NNNN.")})],
}


def _play_music(arguments: Mapping[str, Any]) -> Any:
    return {"playing": arguments["what"], "room": arguments["room"], "volume": arguments["volume"]}


def _create_playlist(arguments: Mapping[str, Any]) -> Any:
    return {"playlist_id": identifier("pls", "create_playlist", arguments), "artists": len(arguments["artists"])}


def _create_and_play(slots: Slots, respond: Respond) -> list[dict[str, Any]]:
    arguments = {"name": slots["name"], "artists": slots["artists"]}
    playlist_id = respond("create_playlist", arguments)["playlist_id"]
    return [
        call("create_playlist", **arguments),
        call("play_music", what={"playlist_id": playlist_id}, room=slots["room"]),
    ]


APIS = (
    Api(
        name="play_music",
        description="Plays music in a room.",
        properties={
            "what": _WHAT,
            "room": text("Name of the room."),
            "volume": integer("Percent.", minimum=0, maximum=100, default=40),
        },
        respond=_play_music,
    ),
    Api(
        name="create_playlist",
        description="Makes a playlist of several artists.",
        properties={
            "name": text("Name of the playlist."),
            "artists": listed({"type": "string"}, "Names, in the order given.", minItems=1),
            "options": {
                "description": "How it is played.",
                **obj(
                    {
                        "shuffle": {"type": "boolean", "default": False},
                        "repeat": {"type": "boolean", "default": False},
                    }
                ),
                "default": {"shuffle": False, "repeat": False},
            },
        },
        respond=_create_playlist,
    ),
)

INTENTS = (
    Intent(
        tool="play_music",
        draw=lambda d: {"artist": d.pick(ARTISTS), "room": d.pick(ROOMS), "volume": d.number(10, 90, 5)},
        arguments=lambda s: {"what": {"artist": s["artist"]}, "room": s["room"], "volume": s["volume"]},
        train=(
            "Play {artist} in the {room} at {volume} percent.",
            "I want to hear {artist} in the {room}, volume {volume}.",
        ),
        test=("Music by {artist} in the {room}, please, volume {volume} %.",),
        without={
            "place": ("Play {artist} at {volume} percent.", "Music by {artist}, please, volume {volume} %."),
            "person": (
                "Play some music in the {room} at {volume} percent.",
                "I want music in the {room}, please, volume {volume} %.",
            ),
        },
    ),
    Intent(
        tool="create_playlist",
        draw=lambda d: {
            "name": d.pick(MOODS),
            "artists": (artists := d.several(ARTISTS, 2, 3)),
            "named": and_list(artists),
        },
        arguments=lambda s: {"name": s["name"], "artists": s["artists"], "options": {"shuffle": True}},
        train=('Make a playlist called "{name}" with {named}, and shuffle it.',),
        test=('I need a shuffled playlist named "{name}" of {named}.',),
    ),
)

CHAINS = (
    Chain(
        draw=lambda d: {
            "name": d.pick(MOODS),
            "artists": (artists := d.several(ARTISTS, 2, 3)),
            "named": and_list(artists),
            "room": d.pick(ROOMS),
        },
        calls=_create_and_play,
        train=('Create a playlist "{name}" with {named} and then play it in the {room}.',),
        test=('Play a new playlist in the {room}: create it as "{name}" with {named}.',),
    ),
)
