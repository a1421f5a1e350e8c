"""Contacts and messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Api, Chain, Intent, Respond, Slots, call, dice, identifier, listed, one_of, text
from .values import PEOPLE, TEXTS


def _make_address(name: str) -> str:
    return f"{name.lower().replace(' ', '.')}{dice('address', {'name': name}).randint(10, 99)}@example.org"


def _find_contact(arguments: Mapping[str, Any]) -> Any:
    rng = dice("find_contact", arguments)
    return {
        "name": arguments["name"],
        "email": _make_address(arguments["name"]),
        "phone": f"+99 {rng.randint(10**6, 10**7)}",
    }


def _send_message(arguments: Mapping[str, Any]) -> Any:
    return {"message_id": identifier("msg", "send_message", arguments), "status": "sent"}


def _write_to_contact(slots: Slots, respond: Respond) -> list[dict[str, Any]]:
    address = respond("find_contact", {"name": slots["name"]})["email"]
    return [call("find_contact", name=slots["name"]), call("send_message", to=[address], text=slots["text"])]


APIS = (
    Api(
        name="find_contact",
        description="Looks up the e-mail address and the phone number of a person.",
        properties={"name": text("Full name.")},
        respond=_find_contact,
    ),
    Api(
        name="send_message",
        description="Sends a message.",
        properties={
            "to": listed({"type": "string", "pattern": "@"}, "E-mail addresses.", minItems=1),
            "text": text("The message, word for word."),
            "priority": one_of(("low", "normal", "high"), "How urgent it is.", default="normal"),
        },
        respond=_send_message,
    ),
)

INTENTS = (
    Intent(
        tool="find_contact",
        draw=lambda d: {"name": d.pick(PEOPLE)},
        train=("What is the phone number of {name}?", "Look up the contact data of {name}."),
        test=("How can I reach {name}?",),
        without={"person": ("Look up a phone number for me.", "I need the contact data of a colleague.")},
    ),
    Intent(
        tool="send_message",
        draw=lambda d: {
            "address": _make_address(d.pick(PEOPLE)),
            "text": d.pick(TEXTS),
            "priority": d.choice(("low", "high")),
        },
        arguments=lambda s: {"to": [s["address"]], "text": s["text"], "priority": s["priority"]},
        train=('Write to {address} with {priority} priority: "{text}"',),
        test=('Message for {address}, priority {priority}: "{text}"',),
        without={
            "person": ('Send a message with {priority} priority: "{text}"', 'Message, priority {priority}: "{text}"'),
            "text": (
                "Write to {address} with {priority} priority.",
                "I need to get a message to {address}, priority {priority}.",
            ),
        },
    ),
    Intent(
        tool="send_message",
        draw=lambda d: {
            "a": (pair := [_make_address(name) for name in d.several(PEOPLE, 2, 2)])[0],
            "b": pair[1],
            "text": d.pick(TEXTS),
        },
        arguments=lambda s: {"to": [s["a"], s["b"]], "text": s["text"]},
        train=('Tell {a} and {b} in one message: "{text}"',),
        test=('One message to both {a} and {b}: "{text}"',),
    ),
)

CHAINS = (
    Chain(
        draw=lambda d: {"name": d.pick(PEOPLE), "text": d.pick(TEXTS)},
        calls=_write_to_contact,
        train=('Look up the address of {name} and write to it: "{text}"', 'Send {name} this message: "{text}"'),
        test=('{name} should get this message, find out the address yourself: "{text}"',),
    ),
)
