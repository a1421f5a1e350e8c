"""A generated shop (customers, orders, products), and requests of its customers."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..database import Record, Tables
from ..scenario import Call, Request, Step, call, change_request, read_request
from ..world import Generator

_SEED = 20_261
_CUSTOMERS, _ORDERS_EACH = 120, 4
_FIRST = ("Amara", "Bruno", "Carla", "Dmitri", "Elif", "Farid", "Greta", "Hana", "Ivan", "Joana", "Kofi", "Lena")
_LAST = ("Abend", "Baptiste", "Castro", "Dahl", "Eze", "Fontana", "Grau", "Holm", "Ilves", "Jansen")
_CITIES = (("Austin", "TX"), ("Denver", "CO"), ("Boston", "MA"), ("Seattle", "WA"), ("Chicago", "IL"), ("Miami", "FL"))
_STREETS = ("Oak Street", "River Road", "Hill Avenue", "Lake Drive", "Maple Lane")
_PRODUCTS: Mapping[str, tuple[dict[str, list[str]], int]] = {
    "T-Shirt": ({"color": ["red", "blue", "black"], "size": ["S", "M", "L"]}, 22),
    "Backpack": ({"color": ["grey", "green"], "capacity": ["20 l", "30 l"]}, 75),
    "Desk Lamp": ({"color": ["white", "black"], "power": ["battery", "USB"]}, 48),
    "Headphones": ({"color": ["black", "white", "blue"], "type": ["in-ear", "over-ear"]}, 120),
    "Water Bottle": ({"material": ["glass", "steel"], "capacity": ["500 ml", "750 ml", "1000 ml"]}, 26),
    "Running Shoes": ({"color": ["red", "white"], "size": ["8", "9", "10"]}, 96),
    "Keyboard": ({"switches": ["clicky", "linear"], "layout": ["full", "compact"]}, 88),
    "Yoga Mat": ({"color": ["pink", "green"], "thickness": ["4 mm", "6 mm"]}, 34),
}
_STATUS = ("pending", "pending", "processed", "delivered", "delivered", "late")
_NO_LONGER = "no longer needed"


@functools.cache
def retail_tables() -> Tables:
    """Returns the generated database, which is the same everywhere."""
    rng = random.Random(_SEED)
    products = {product["product_id"]: product for product in _draw_products(rng)}
    users = {user["user_id"]: user for user in _draw_users(rng)}
    numbers = iter(rng.sample(range(10**6, 10**7), _CUSTOMERS * _ORDERS_EACH))
    orders: dict[str, Record] = {}
    for user in users.values():
        for _ in range(_ORDERS_EACH):
            order = _draw_order(rng, f"#W{next(numbers)}", user, list(products.values()))
            orders[order["order_id"]] = order
            user["orders"].append(order["order_id"])
    return {"users": users, "orders": orders, "products": products}


def retail_requests(user: Record, rng: random.Random) -> list[Request]:
    """Returns a possible request about each order of a customer, in random order."""
    tables = retail_tables()
    requests = []
    for order_id in rng.sample(user["orders"], len(user["orders"])):
        order = tables["orders"][order_id]
        makers = _MAKERS["late" if _is_late(order) else order["status"]]
        request = rng.choice(makers)(order, rng)
        if request is not None:
            requests.append(request)
    return requests


def retail_identity(user: Record, rng: random.Random) -> tuple[dict[str, str], str, dict[str, Any]]:
    """Returns what the customer says about himself, the question for it, and the call that finds him."""
    name = user["name"]
    if rng.random() < 0.5:
        facts = {"e-?mail|who you are|identif|name|zip": f"My email is {user['email']}."}
        return facts, "May I have your email address?", call("find_user_id_by_email", email=user["email"])
    zip_code = user["address"]["zip"]
    statement = f"I am {name['first_name']} {name['last_name']}, zip code {zip_code}. I do not remember my email."
    lookup = call("find_user_id_by_name_zip", **name, zip=zip_code)
    return {"e-?mail|who you are|identif|name|zip": statement}, "May I have your name and zip code?", lookup


def _is_late(order: Record) -> bool:
    return order["status"] == "delivered" and order["delivered_at"] < "2024-04-15"


def _format_total(order: Record) -> str:
    return f"{order['payment_history'][0]['amount']:.2f}"


def _read_tracking_id(order: Record) -> str:
    return order["fulfillments"][0]["tracking_id"]


def _paid_by(order: Record) -> str:
    return order["payment_history"][0]["payment_method_id"]


def _build_change(order: Record, *, plan: str, before: Sequence[Step] = (), **request: Any) -> Request:
    return change_request(before=[_look_up_order(order), *before], plan=f"{plan} {order['order_id']}.", **request)


def _look_up_order(order: Record) -> Call:
    return call("get_order_details", order_id=order["order_id"])


def _request_cancellation(order: Record, rng: random.Random) -> Request:
    reason, order_id = rng.choice([_NO_LONGER, "ordered by mistake"]), order["order_id"]
    is_asked = rng.random() < 0.5
    return _build_change(
        order,
        kind="cancel",
        message=f"I want to cancel order {order_id}." + " How much do I get back?" * is_asked,
        plan="cancel order",
        action=call("cancel_pending_order", order_id=order_id, reason=reason),
        facts={"reason|why": f"The reason is: {reason}."},
        statement=f" {_format_total(order)} dollars." * is_asked,
        outputs=[_format_total(order)] * is_asked,
    )


def _request_address(order: Record, rng: random.Random) -> Request:
    address, order_id = _draw_address(rng), order["order_id"]
    line = f"{address['address1']}, {address['address2']}, {address['city']}, {address['state']} {address['zip']}, USA"
    return _build_change(
        order,
        kind="address",
        message=f"Please send order {order_id} to another address.",
        plan="change the address of order",
        action=call("modify_pending_order_address", order_id=order_id, **address),
        facts={"address|where": f"The new address is {line}."},
    )


def _request_return(order: Record, rng: random.Random) -> Request:
    items = rng.sample(order["items"], rng.randint(1, len(order["items"])))
    names, order_id = " and the ".join(item["name"] for item in items), order["order_id"]
    ids = [item["item_id"] for item in items]
    return _build_change(
        order,
        kind="return",
        message=f"I want to return the {names} of order {order_id}.",
        plan="take back items of order",
        action=call("return_delivered_order_items", order_id=order_id, item_ids=ids, payment_method_id=_paid_by(order)),
        facts={"payment|refund": "The money may go to the original payment method."},
    )


def _request_exchange(order: Record, rng: random.Random) -> Request | None:
    choices = list(_iter_variants(order))
    if not choices:
        return None
    item, name, new = rng.choice(choices)
    order_id, wish = order["order_id"], f"the same one with {name} {new['options'][name]}"
    action = call(
        "exchange_delivered_order_items",
        order_id=order_id,
        item_ids=[item["item_id"]],
        new_item_ids=[new["item_id"]],
        payment_method_id=_paid_by(order),
    )
    look = call("get_product_details", product_id=item["product_id"])
    return _build_change(
        order,
        kind="exchange",
        before=["Which option would you like instead?", look],
        message=f"Can I exchange the {item['name']} of order {order_id}?",
        plan="exchange an item of order",
        action=action,
        facts={
            "which|what|option|instead|like": f"I would like {wish}.",
            "payment": "Use the original payment method.",
        },
    )


def _iter_variants(order: Record) -> Iterator[tuple[Record, str, Record]]:
    """Yields (item, option, new variant) of exchanges that differ in one option and are available."""
    for item in order["items"]:
        for new in retail_tables()["products"][item["product_id"]]["variants"].values():
            differing = [name for name, value in new["options"].items() if item["options"][name] != value]
            if len(differing) == 1 and new["available"]:
                yield item, differing[0], new


def _ask_total(order: Record, rng: random.Random) -> Request:
    order_id, outputs = order["order_id"], [_format_total(order), _read_tracking_id(order)]
    message = f"What did I pay for order {order_id}, and what is its tracking number?"
    reply = f"You paid {outputs[0]}; the tracking number is {outputs[1]}."
    return read_request(kind="question", message=message, before=[_look_up_order(order)], reply=reply, outputs=outputs)


def _refuse_cancel(order: Record, rng: random.Random) -> Request:
    message = f"I want to cancel order {order['order_id']}; it is {_NO_LONGER}."
    return _build_refusal(
        order, kind="refuse_cancel", message=message, outputs=[order["status"], _read_tracking_id(order)]
    )


def _refuse_return(order: Record, rng: random.Random) -> Request:
    message = f"I want to return the {order['items'][0]['name']} of order {order['order_id']}."
    return _build_refusal(
        order, kind="refuse_return", message=message, outputs=[_read_tracking_id(order), order["delivered_at"]]
    )


def _build_refusal(order: Record, *, kind: str, message: str, outputs: list[str]) -> Request:
    reply = f"I cannot do that: the order is {order['status']}. Details: {', '.join(outputs)}."
    facts = {"reason|why": f"It is {_NO_LONGER}."}
    return read_request(
        kind=kind, message=message, before=[_look_up_order(order)], reply=reply, facts=facts, outputs=outputs
    )


_Maker = Callable[[Record, random.Random], Request | None]
_MAKERS: Mapping[str, tuple[_Maker, ...]] = {
    "pending": (_request_cancellation, _request_address),
    "processed": (_refuse_cancel, _ask_total),
    "delivered": (_request_return, _request_exchange, _request_exchange, _request_return, _ask_total),
    "late": (_refuse_return,),
}


def _draw_products(rng: random.Random) -> Iterator[Record]:
    ids = iter(rng.sample(range(10**9, 10**10), 200))
    for name, (options, price) in _PRODUCTS.items():
        variants = {}
        for values in itertools.product(*options.values()):
            item = str(next(ids))
            cents = int(price * 100 * rng.uniform(0.8, 1.25))
            variants[item] = {
                "item_id": item,
                "options": dict(zip(options, values, strict=True)),
                "available": rng.random() < 0.75,
                "price": cents / 100,
            }
        yield {"name": name, "product_id": str(next(ids)), "variants": variants}


def _draw_users(rng: random.Random) -> Iterator[Record]:
    for first, last in itertools.product(_FIRST, _LAST):
        number = rng.randrange(1_000, 10_000)
        card, gift = f"credit_card_{rng.randrange(10**6, 10**7)}", f"gift_card_{rng.randrange(10**6, 10**7)}"
        yield {
            "user_id": f"{first}_{last}_{number}".lower(),
            "name": {"first_name": first, "last_name": last},
            "address": _draw_address(rng),
            "email": f"{first}.{last}{number}@example.com".lower(),
            "payment_methods": {
                card: {"source": "credit_card", "id": card, "last_four": card[-4:]},
                gift: {"source": "gift_card", "id": gift, "balance": float(rng.randrange(100, 500))},
            },
            "orders": [],
        }


def _draw_address(rng: random.Random) -> Record:
    city, state = rng.choice(_CITIES)
    return {
        "address1": f"{rng.randrange(10, 990)} {rng.choice(_STREETS)}",
        "address2": f"Suite {rng.randrange(100, 999)}",
        "city": city,
        "state": state,
        "country": "USA",
        "zip": str(rng.randrange(10_000, 99_999)),
    }


def _draw_order(rng: random.Random, order_id: str, user: Record, products: list[Record]) -> Record:
    chosen = rng.sample(products, rng.randint(1, 3))
    items = []
    for product in chosen:
        variant = rng.choice(list(product["variants"].values()))
        bought = {key: variant[key] for key in ("item_id", "price", "options")}
        items.append({"name": product["name"], "product_id": product["product_id"], **bought})
    status = rng.choice(_STATUS)
    paid = {
        "transaction_type": "payment",
        "amount": round(sum(item["price"] for item in items), 2),
        "payment_method_id": rng.choice(list(user["payment_methods"])),
    }
    order = {
        "order_id": order_id,
        "user_id": user["user_id"],
        "address": user["address"],
        "items": items,
        "status": "delivered" if status == "late" else status,
        "fulfillments": [] if status == "pending" else [{"tracking_id": str(rng.randrange(10**11, 10**12))}],
        "payment_history": [paid],
    }
    if status == "delivered":
        order["delivered_at"] = f"2024-05-{rng.randrange(1, 15):02}"
    elif status == "late":
        order["delivered_at"] = f"2024-03-{rng.randrange(1, 29):02}"
    return order


GENERATOR = Generator(tables=retail_tables, identity=retail_identity, requests=retail_requests)
