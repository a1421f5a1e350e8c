"""Shopping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Api, Chain, Intent, Respond, Slots, call, dice, identifier, integer, listed, obj, one_of, text
from .values import CITIES, PRODUCTS

_COLOURS = ("red", "blue", "green", "black", "white")
_ORDERS = ("relevance", "price_up", "price_down", "rating")
_SKU = text("The product, as sku-NNNN.", pattern=r"^sku-\d{4}$")


def _search_products(arguments: Mapping[str, Any]) -> Any:
    rng = dice("search_products", arguments)
    low = arguments["filters"].get("min_price", 5)
    high = max(low, arguments["filters"].get("max_price", 200))
    products = [{"sku": f"sku-{rng.randint(1000, 9999)}", "price": rng.randint(int(low), int(high))} for _ in range(3)]
    ordered = {"price_up": 1, "price_down": -1}.get(arguments["sort"], 0)
    return {"products": sorted(products, key=lambda product: ordered * product["price"])}


def _to_cart(arguments: Mapping[str, Any]) -> Any:
    return {"status": "added", "sku": arguments["sku"], "in_cart": arguments["quantity"]}


def _place_order(arguments: Mapping[str, Any]) -> Any:
    pieces = sum(item["quantity"] for item in arguments["items"])
    return {"order_id": identifier("ord", "place_order", arguments), "pieces": pieces}


def _cart_first_found(slots: Slots, respond: Respond) -> list[dict[str, Any]]:
    arguments = {"query": slots["query"], "filters": {"max_price": slots["max_price"]}, "sort": "price_up"}
    sku = respond("search_products", arguments)["products"][0]["sku"]
    return [call("search_products", **arguments), call("add_to_cart", sku=sku, quantity=slots["quantity"])]


APIS = (
    Api(
        name="search_products",
        description="Searches the shop.",
        properties={
            "query": text("What to look for.", minLength=1),
            "filters": {
                "type": "object",
                "description": "Conditions that products must meet.",
                "properties": {
                    "min_price": {"type": "number", "minimum": 0},
                    "max_price": {"type": "number", "minimum": 0},
                    "colour": one_of(_COLOURS, "Main colour."),
                    "in_stock": {"type": "boolean", "default": True},
                },
                "additionalProperties": False,
                "default": {},
            },
            "sort": one_of(_ORDERS, "Order of the results.", default="relevance"),
        },
        respond=_search_products,
    ),
    Api(
        name="add_to_cart",
        description="Adds a product to the cart.",
        properties={"sku": _SKU, "quantity": integer("How many.", minimum=1, default=1)},
        respond=_to_cart,
    ),
    Api(
        name="place_order",
        description="Orders products at once, without the cart.",
        properties={
            "items": listed(obj({"sku": _SKU, "quantity": integer("How many.", minimum=1)}), "Products.", minItems=1),
            "shipping": obj(
                {
                    "method": one_of(("standard", "express"), "Speed.", default="standard"),
                    "address": {
                        "description": "Name of a saved address, or a full one.",
                        "anyOf": [{"type": "string"}, obj({"street": text("With number."), "city": text("City.")})],
                    },
                }
            ),
        },
        respond=_place_order,
    ),
)

INTENTS = (
    Intent(
        tool="search_products",
        draw=lambda d: {"query": d.pick(PRODUCTS), "colour": d.choice(_COLOURS), "max_price": d.number(20, 200, 5)},
        arguments=lambda s: {"query": s["query"], "filters": {"colour": s["colour"], "max_price": s["max_price"]}},
        train=(
            'Search the shop for "{query}" in {colour} for at most {max_price} euros.',
            'I am looking for a {colour} "{query}" in the shop, no more than {max_price} euros.',
        ),
        test=('Which {colour} products does the shop have for "{query}" up to {max_price} euros?',),
        without={
            "product": (
                "Search the shop for something {colour} for at most {max_price} euros.",
                "Look in the shop for {colour} products up to {max_price} euros.",
            )
        },
    ),
    Intent(
        tool="search_products",
        draw=lambda d: {"query": d.pick(PRODUCTS), "sort": d.choice(_ORDERS[1:])},
        train=('Search the shop for "{query}" and sort by {sort}.',),
        test=('Shop results for "{query}", please, in the order {sort}.',),
    ),
    Intent(
        tool="add_to_cart",
        draw=lambda d: {"sku": f"sku-{d.pick(range(1000, 10_000))}", "quantity": d.number(2, 9)},
        train=("Add {quantity} of {sku} to my cart.", "I want {quantity} pieces of {sku} in the cart."),
        test=("My cart needs {quantity} times {sku}.",),
        without={
            "product": ("Add {quantity} of them to my cart.", "Please put {quantity} pieces of it into my cart."),
        },
    ),
    Intent(
        tool="place_order",
        draw=lambda d: {
            "a": (pair := [f"sku-{number}" for number in d.several(range(1000, 10_000), 2, 2)])[0],
            "b": pair[1],
            "n": d.number(1, 5),
            "m": d.number(1, 5),
            "city": d.pick(CITIES),
            "house": d.number(1, 99),
        },
        arguments=lambda s: {
            "items": [{"sku": s["a"], "quantity": s["n"]}, {"sku": s["b"], "quantity": s["m"]}],
            "shipping": {"method": "express", "address": {"street": f"Mill Road {s['house']}", "city": s["city"]}},
        },
        train=("Order {n} of {a} and {m} of {b} at once, by express, to Mill Road {house} in {city}.",),
        test=("Express order, please: {n} pieces of {a}, {m} pieces of {b}; ship to Mill Road {house}, {city}.",),
    ),
    Intent(
        tool="place_order",
        draw=lambda d: {"sku": f"sku-{d.pick(range(1000, 10_000))}", "n": d.number(1, 5)},
        arguments=lambda s: {"items": [{"sku": s["sku"], "quantity": s["n"]}], "shipping": {"address": "home"}},
        train=('Order {n} of {sku} right away to my saved address "home".',),
        test=('Place an order for {n} of {sku}; the saved address is "home".',),
    ),
)

CHAINS = (
    Chain(
        draw=lambda d: {"query": d.pick(PRODUCTS), "max_price": d.number(20, 200, 5), "quantity": d.number(2, 5)},
        calls=_cart_first_found,
        train=(
            'Search the shop for "{query}" up to {max_price} euros, sorted by price_up, and add {quantity} of the '
            "first result to my cart.",
        ),
        test=(
            'Put {quantity} of the first shop result for "{query}" (at most {max_price} euros, sort by price_up) into '
            "my cart.",
        ),
    ),
)
