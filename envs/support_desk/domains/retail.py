"""The domain `retail`: customers, orders and products, with the names and rules of tau2's tools.

Paper: https://arxiv.org/abs/2406.12045, tau2: https://arxiv.org/abs/2506.07982

Deviations: `modify_pending_order_items` gives every item the price and options of its own new variant; in tau2 all get
those of the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from ..database import Record
from ..desk_tool import Domain, RefusedError


class Retail(Domain):
    """Tools of a shop's support desk."""

    tables = ("users", "orders", "products")
    reads = (
        *("find_user_id_by_email", "find_user_id_by_name_zip", "get_user_details", "get_order_details"),
        *("get_product_details", "list_all_product_types", *Domain.reads),
    )
    changes = (
        *("cancel_pending_order", "modify_pending_order_address", "modify_pending_order_items"),
        *("modify_pending_order_payment", "modify_user_address", "return_delivered_order_items"),
        "exchange_delivered_order_items",
    )

    async def find_user_id_by_email(self, email: str) -> str:
        """Finds the id of a customer by email.

        Args:
            email: the address.
        """
        for user in self.database.records("users"):
            if user["email"].lower() == email.lower():
                return user["user_id"]
        raise RefusedError("user not found")

    async def find_user_id_by_name_zip(self, first_name: str, last_name: str, zip: str) -> str:
        """Finds the id of a customer by name and zip code.

        Args:
            first_name: the first name.
            last_name: the last name.
            zip: the zip code.
        """
        for user in self.database.records("users"):
            name = user["name"]["first_name"].lower(), user["name"]["last_name"].lower()
            if name == (first_name.lower(), last_name.lower()) and user["address"]["zip"] == zip:
                return user["user_id"]
        raise RefusedError("user not found")

    async def get_user_details(self, user_id: str) -> Record:
        """Returns a customer's name, addresses, payment methods and order ids.

        Args:
            user_id: such as sara_doe_496.
        """
        return self._find_record("users", user_id)

    async def get_order_details(self, order_id: str) -> Record:
        """Returns an order with its items, status, payments and shipments.

        Args:
            order_id: begins with #, such as #W0000000.
        """
        return self._find_record("orders", order_id)

    async def get_product_details(self, product_id: str) -> Record:
        """Returns a product with all its variants.

        Args:
            product_id: of the product, not of an item.
        """
        return self._find_record("products", product_id)

    async def list_all_product_types(self) -> dict[str, str]:
        """Lists the names and ids of all products."""
        return {product["name"]: product["product_id"] for product in self.database.records("products")}

    async def cancel_pending_order(
        self, order_id: str, reason: Literal["no longer needed", "ordered by mistake"]
    ) -> Record:
        """Cancels a pending order and refunds it.

        Args:
            order_id: begins with #.
            reason: of the customer.
        """
        self._demand_status(order_id, "pending")
        order = self.database.edit("orders", order_id)
        for payment in list(order["payment_history"]):
            order["payment_history"].append({**payment, "transaction_type": "refund"})
            self._take_amount(order["user_id"], payment["payment_method_id"], -payment["amount"])
        order.update(status="cancelled", cancel_reason=reason)
        return order

    async def modify_pending_order_address(
        self, order_id: str, address1: str, address2: str, city: str, state: str, country: str, zip: str
    ) -> Record:
        """Changes the shipping address of a pending order.

        Args:
            order_id: begins with #.
            address1: street and number.
            address2: apartment or suite; may be empty.
            city: the city.
            state: such as CA.
            country: such as USA.
            zip: the zip code.
        """
        self._demand_status(order_id, "pending", "pending (item modified)")
        order = self.database.edit("orders", order_id)
        order["address"] = _build_address(address1, address2, city, state, country, zip)
        return order

    async def modify_user_address(
        self, user_id: str, address1: str, address2: str, city: str, state: str, country: str, zip: str
    ) -> Record:
        """Changes the default address of a customer.

        Args:
            user_id: such as sara_doe_496.
            address1: street and number.
            address2: apartment or suite; may be empty.
            city: the city.
            state: such as CA.
            country: such as USA.
            zip: the zip code.
        """
        self._find_record("users", user_id)
        user = self.database.edit("users", user_id)
        user["address"] = _build_address(address1, address2, city, state, country, zip)
        return user

    async def modify_pending_order_payment(self, order_id: str, payment_method_id: str) -> Record:
        """Changes the payment method of a pending order.

        Args:
            order_id: begins with #.
            payment_method_id: such as gift_card_0000000.
        """
        self._demand_status(order_id, "pending", "pending (item modified)")
        order = self._find_record("orders", order_id)
        if len(order["payment_history"]) != 1:
            raise RefusedError("the order must have exactly one payment")
        paid = order["payment_history"][0]
        if paid["payment_method_id"] == payment_method_id:
            raise RefusedError("the new payment method must differ from the present one")
        self._demand_balance(order["user_id"], payment_method_id, paid["amount"])
        order = self.database.edit("orders", order_id)
        order["payment_history"] += [
            {**paid, "payment_method_id": payment_method_id},
            {**paid, "transaction_type": "refund"},
        ]
        self._take_amount(order["user_id"], payment_method_id, paid["amount"])
        self._take_amount(order["user_id"], paid["payment_method_id"], -paid["amount"])
        return order

    async def modify_pending_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Record:
        """Replaces items of a pending order by other variants of the same products; possible once per order.

        Args:
            order_id: begins with #.
            item_ids: the items to replace.
            new_item_ids: their replacements, in the same order.
            payment_method_id: pays or gets the difference in price.
        """
        self._demand_status(order_id, "pending")
        if set(item_ids) & set(new_item_ids):
            raise RefusedError("a new item must differ from the old one")
        pairs, difference = self._find_replacements(order_id, item_ids, new_item_ids, payment_method_id)
        order = self.database.edit("orders", order_id)
        kind = "payment" if difference > 0 else "refund"
        order["payment_history"].append(
            {"transaction_type": kind, "amount": abs(difference), "payment_method_id": payment_method_id}
        )
        self._take_amount(order["user_id"], payment_method_id, difference)
        for old, new in pairs:
            item = next(item for item in order["items"] if item["item_id"] == old)
            item.update(item_id=new["item_id"], price=new["price"], options=new["options"])
        order["status"] = "pending (item modified)"
        return order

    async def return_delivered_order_items(self, order_id: str, item_ids: list[str], payment_method_id: str) -> Record:
        """Requests the return of items of a delivered order.

        Args:
            order_id: begins with #.
            item_ids: the items.
            payment_method_id: gets the refund: that of the order, or a gift card.
        """
        order = self._demand_status(order_id, "delivered")
        self._demand_items(order, item_ids)
        method = self._payment_method(order["user_id"], payment_method_id)
        if method["source"] != "gift_card" and payment_method_id != order["payment_history"][0]["payment_method_id"]:
            raise RefusedError("the refund goes to the payment method of the order, or to a gift card")
        order = self.database.edit("orders", order_id)
        order.update(
            status="return requested", return_items=sorted(item_ids), return_payment_method_id=payment_method_id
        )
        return order

    async def exchange_delivered_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Record:
        """Requests the exchange of items of a delivered order for other variants of the same products.

        Args:
            order_id: begins with #.
            item_ids: the items to exchange.
            new_item_ids: their replacements, in the same order.
            payment_method_id: pays or gets the difference in price.
        """
        self._demand_status(order_id, "delivered")
        _, difference = self._find_replacements(order_id, item_ids, new_item_ids, payment_method_id)
        order = self.database.edit("orders", order_id)
        order.update(
            status="exchange requested",
            exchange_items=sorted(item_ids),
            exchange_new_items=sorted(new_item_ids),
            exchange_payment_method_id=payment_method_id,
            exchange_price_difference=difference,
        )
        return order

    def _demand_status(self, order_id: str, *status: str) -> Record:
        order = self._find_record("orders", order_id)
        if order["status"] not in status:
            raise RefusedError(f"this is possible only for orders that are {status[0]}, got {order['status']}")
        return order

    def _demand_items(self, order: Record, item_ids: Sequence[str]) -> None:
        if not item_ids or Counter(item_ids) - Counter(item["item_id"] for item in order["items"]):
            raise RefusedError("the order does not have all of these items")

    def _demand_balance(self, user_id: str, payment_method_id: str, amount: float) -> None:
        method = self._payment_method(user_id, payment_method_id)
        if method["source"] == "gift_card" and method["balance"] < amount:
            raise RefusedError("the balance of the gift card is too low")

    def _take_amount(self, user_id: str, payment_method_id: str, amount: float) -> None:
        """Takes an amount from a gift card; other methods have no balance."""
        if self._payment_method(user_id, payment_method_id)["source"] == "gift_card":
            card = self.database.edit("users", user_id)["payment_methods"][payment_method_id]
            card["balance"] = round(card["balance"] - amount, 2)

    def _find_replacements(
        self, order_id: str, item_ids: Sequence[str], new_item_ids: Sequence[str], payment_method_id: str
    ) -> tuple[list[tuple[str, Any]], float]:
        """Returns (old item, new variant) of each replacement, and the difference in price."""
        order = self._find_record("orders", order_id)
        self._demand_items(order, item_ids)
        if len(item_ids) != len(new_item_ids):
            raise RefusedError("there must be as many new items as old ones")
        pairs, difference = [], 0.0
        for old_id, new_id in zip(item_ids, new_item_ids, strict=True):
            old = next(item for item in order["items"] if item["item_id"] == old_id)
            new = self._find_record("products", old["product_id"])["variants"].get(new_id)
            if new is None or not new["available"]:
                raise RefusedError(f"item {new_id} is no available variant of this product")
            pairs.append((old_id, new))
            difference += new["price"] - old["price"]
        difference = round(difference, 2)
        self._demand_balance(order["user_id"], payment_method_id, difference)
        return pairs, difference


def _build_address(address1: str, address2: str, city: str, state: str, country: str, zip: str) -> Record:
    parts = {"address1": address1, "address2": address2, "city": city, "state": state, "country": country}
    return {**parts, "zip": zip}
