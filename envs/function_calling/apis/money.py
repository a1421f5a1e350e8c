"""Money."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Api, Chain, Intent, Respond, Slots, call, identifier, one_of, text
from .values import PEOPLE

_IN_EUROS = {"EUR": 1.0, "USD": 0.92, "GBP": 1.17, "JPY": 0.0061, "CHF": 1.04, "NOK": 0.086}
_AMOUNT = {"type": "number", "description": "The amount.", "exclusiveMinimum": 0}


def _convert_currency(arguments: Mapping[str, Any]) -> Any:
    factor = _IN_EUROS[arguments["source"]] / _IN_EUROS[arguments["target"]]
    return {"amount": round(arguments["amount"] * factor, 2), "currency": arguments["target"]}


def _transfer_money(arguments: Mapping[str, Any]) -> Any:
    return {"transfer_id": identifier("trf", "transfer_money", arguments), "status": "booked"}


def _send_converted(slots: Slots, respond: Respond) -> list[dict[str, Any]]:
    arguments = {"amount": slots["amount"], "source": slots["source"], "target": "EUR"}
    euros = respond("convert_currency", arguments)["amount"]
    return [
        call("convert_currency", **arguments),
        call("transfer_money", recipient=slots["person"], amount=euros, currency="EUR"),
    ]


APIS = (
    Api(
        name="convert_currency",
        description="Converts an amount of money at today's rate.",
        properties={
            "amount": _AMOUNT,
            "source": one_of(tuple(_IN_EUROS), "Currency of the amount."),
            "target": one_of(tuple(_IN_EUROS), "Currency of the result."),
        },
        respond=_convert_currency,
    ),
    Api(
        name="transfer_money",
        description="Transfers money from the user's account.",
        properties={
            "recipient": text("Full name of the recipient."),
            "amount": _AMOUNT,
            "currency": one_of(tuple(_IN_EUROS), "Currency of the amount.", default="EUR"),
            "reference": {
                "description": "What the recipient reads; null for nothing.",
                "anyOf": [{"type": "string", "maxLength": 140}, {"type": "null"}],
                "default": None,
            },
        },
        respond=_transfer_money,
    ),
)

INTENTS = (
    Intent(
        tool="convert_currency",
        draw=lambda d: {
            "amount": d.pick(range(10, 5000)),
            "source": (pair := d.rng.sample(list(_IN_EUROS), 2))[0],
            "target": pair[1],
        },
        train=("How much is {amount} {source} in {target}?", "Convert {amount} {source} to {target}."),
        test=("I have {amount} {source}. What would that be in {target} today?",),
        without={
            "unit": (
                "Convert {amount} {source} into another currency.",
                "I have {amount} {source}. What would that be in foreign money today?",
            )
        },
    ),
    Intent(
        tool="transfer_money",
        draw=lambda d: {
            "recipient": d.pick(PEOPLE),
            "amount": d.pick(range(10, 5000)) + 0.5,
            "reference": f"invoice {d.pick(range(100, 1000))}",
        },
        train=('Send {amount} EUR to {recipient} with the reference "{reference}".',),
        test=('Transfer {amount} EUR from my account to {recipient}; reference: "{reference}".',),
        without={
            "person": (
                'Send {amount} EUR with the reference "{reference}".',
                'Transfer {amount} EUR from my account; reference: "{reference}".',
            ),
            "amount": (
                'Send money to {recipient} with the reference "{reference}".',
                'Make a transfer from my account to {recipient}; reference: "{reference}".',
            ),
        },
    ),
    Intent(
        tool="transfer_money",
        draw=lambda d: {
            "recipient": d.pick(PEOPLE),
            "amount": d.pick(range(10, 5000)),
            "currency": d.choice(("USD", "GBP")),
        },
        train=("Pay {recipient} {amount} {currency}.",),
        test=("{recipient} should get {amount} {currency} from my account.",),
    ),
)

CHAINS = (
    Chain(
        draw=lambda d: {
            "amount": d.pick(range(10, 5000)),
            "source": d.choice(("USD", "GBP", "CHF")),
            "person": d.pick(PEOPLE),
        },
        calls=_send_converted,
        train=("Convert {amount} {source} to EUR and send exactly that many euros to {person}.",),
        test=(
            "{person} should get the equivalent of {amount} {source}: convert it to EUR, then transfer those euros.",
        ),
    ),
)
