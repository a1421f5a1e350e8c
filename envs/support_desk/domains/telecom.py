"""The domain `telecom`: customers, lines, bills and plans, with the names and rules of tau2's tools.

The customer has tools, too, on his phone (`phone`). After every call, the line decides what the phone may do, and a
paid request settles its bill.

tau2: https://arxiv.org/abs/2506.07982

Deviations: the new bill of a charge has a counted id instead of a random one.
"""

from __future__ import annotations

from typing import Any

from ..database import Record, Tables
from ..desk_tool import TRANSFER, RefusedError
from ..tau2_files import Tau2Files
from .phone import SURROUNDINGS, Phone

TODAY = "2025-02-25"
"""The date in the policy of tau2."""
_THIS_CYCLE_END = "2025-02-28"
_LAST_BILL = {"period_start": "2025-01-01", "period_end": "2025-01-31", "issue_date": "2025-01-01",
              "due_date": "2025-01-15"}  # fmt: skip
_NEXT_BILL = {"period_start": "2025-03-01", "period_end": "2025-03-31", "issue_date": "2025-03-01",
              "due_date": "2025-03-15"}  # fmt: skip
_KEYS = {"plans": "plan_id", "customers": "customer_id", "lines": "line_id", "bills": "bill_id", "devices": "device_id"}
_LINE = {"data_used_gb": 0.0, "data_refueling_gb": 0.0, "roaming_enabled": False}
"""Defaults of a line."""


class Telecom(Phone):
    """Tools of a carrier's support desk."""

    tables = (*_KEYS, "phone")
    reads = (
        *("get_customer_by_phone", "get_customer_by_id", "get_customer_by_name", "get_details_by_id"),
        *("get_bills_for_customer", "get_data_usage", TRANSFER),
    )
    changes = (
        *("suspend_line", "resume_line", "send_payment_request", "enable_roaming", "disable_roaming", "refuel_data"),
    )
    preparations = (*Phone.preparations, "set_data_usage", "suspend_line_for_overdue_bill")
    assertions = (*Phone.assertions, "assert_data_refueling_amount", "assert_no_overdue_bill")

    @classmethod
    def read_tables(cls, files: Tau2Files) -> Tables:
        """Returns tau2's database by ids, and the phone at the start of a task."""
        entries = files.toml("db.toml")
        tables = {name: {record[key]: record for record in entries.get(name, ())} for name, key in _KEYS.items()}
        tables["lines"] = {key: {**_LINE, **line} for key, line in tables["lines"].items()}
        return {**tables, "phone": {**files.toml("user_db.toml"), "surroundings": SURROUNDINGS}}

    # Looking up.

    async def get_customer_by_phone(self, phone_number: str) -> Record:
        """Finds a customer by the number of a line, or of his contact.

        Args:
            phone_number: such as 555-123-4567.
        """
        for customer in self.database.records("customers"):
            lines = (self._find_record("lines", line_id)["phone_number"] for line_id in customer["line_ids"])
            if phone_number in (customer["phone_number"], *lines):
                return customer
        raise RefusedError("customer not found")

    async def get_customer_by_id(self, customer_id: str) -> Record:
        """Returns a customer with the ids of his lines and bills.

        Args:
            customer_id: begins with C.
        """
        return self._find_record("customers", customer_id)

    async def get_customer_by_name(self, full_name: str, dob: str) -> list[Record]:
        """Lists customers with a name and a date of birth.

        Args:
            full_name: first and last name.
            dob: YYYY-MM-DD.
        """
        identity = full_name.lower(), dob
        customers = self.database.records("customers")
        return [
            customer for customer in customers if (customer["full_name"].lower(), customer["date_of_birth"]) == identity
        ]

    async def get_details_by_id(self, id: str) -> Record:
        """Returns a line, device, bill, customer or plan.

        Args:
            id: begins with L, D, B, C or P.
        """
        table = next((name for name in _KEYS if name[0].upper() == id[:1]), None)
        if table is None:
            raise RefusedError("an id begins with L, D, B, C or P")
        return self._find_record(table, id)

    async def get_bills_for_customer(self, customer_id: str, limit: int = 12) -> list[Record]:
        """Lists a customer's bills, the newest first.

        Args:
            customer_id: begins with C.
            limit: maximum number of bills.
        """
        bills = [
            self._find_record("bills", bill_id) for bill_id in self._find_record("customers", customer_id)["bill_ids"]
        ]
        return sorted(bills, key=lambda bill: bill["issue_date"], reverse=True)[: max(0, limit)]

    async def get_data_usage(self, customer_id: str, line_id: str) -> Record:
        """Returns the data that a line has used in this billing cycle, and its limit.

        Args:
            customer_id: begins with C.
            line_id: begins with L.
        """
        line = self._find_line(customer_id, line_id)
        limit = self._find_record("plans", line["plan_id"])["data_limit_gb"]
        usage = {key: line[key] for key in ("line_id", "data_used_gb", "data_refueling_gb")}
        return {**usage, "data_limit_gb": limit, "cycle_end_date": _THIS_CYCLE_END}

    # Changing.

    async def suspend_line(self, customer_id: str, line_id: str, reason: str) -> Record:
        """Suspends an active line.

        Args:
            customer_id: begins with C.
            line_id: begins with L.
            reason: of the customer.
        """
        if self._find_line(customer_id, line_id)["status"] != "Active":
            raise RefusedError("only an active line can be suspended")
        return self._edit_line(line_id, status="Suspended", suspension_start_date=TODAY)

    async def resume_line(self, customer_id: str, line_id: str) -> Record:
        """Makes a suspended or new line active.

        Args:
            customer_id: begins with C.
            line_id: begins with L.
        """
        if self._find_line(customer_id, line_id)["status"] not in ("Suspended", "Pending Activation"):
            raise RefusedError("only a suspended line can be resumed")
        return self._edit_line(line_id, status="Active", suspension_start_date=None)

    async def send_payment_request(self, customer_id: str, bill_id: str) -> str:
        """Asks the customer to pay a bill on his phone. There can be one request at a time.

        Args:
            customer_id: begins with C.
            bill_id: begins with B.
        """
        customer = self._find_record("customers", customer_id)
        if self._list_awaited_bills(customer):
            raise RefusedError("a bill of this customer awaits its payment already")
        if bill_id not in customer["bill_ids"]:
            raise RefusedError("the customer has no such bill")
        self.database.edit("bills", bill_id)["status"] = "Awaiting Payment"
        return f"payment request sent for bill {bill_id}"

    async def enable_roaming(self, customer_id: str, line_id: str) -> str:
        """Allows roaming abroad for a line.

        Args:
            customer_id: begins with C.
            line_id: begins with L.
        """
        self._find_line(customer_id, line_id)
        self._edit_line(line_id, roaming_enabled=True)
        return "roaming is enabled"

    async def disable_roaming(self, customer_id: str, line_id: str) -> str:
        """Forbids roaming abroad for a line.

        Args:
            customer_id: begins with C.
            line_id: begins with L.
        """
        self._find_line(customer_id, line_id)
        self._edit_line(line_id, roaming_enabled=False)
        return "roaming is disabled"

    async def refuel_data(self, customer_id: str, line_id: str, gb_amount: float) -> Record:
        """Adds data to a line and charges it on the next bill.

        Args:
            customer_id: begins with C.
            line_id: begins with L.
            gb_amount: in gigabytes.
        """
        line = self._find_line(customer_id, line_id)
        if not gb_amount > 0:
            raise RefusedError("the amount must be positive")
        price = self._find_record("plans", line["plan_id"])["data_refueling_price_per_gb"]
        self._edit_line(line_id, data_refueling_gb=line["data_refueling_gb"] + gb_amount)
        self._charge_customer(customer_id, gb_amount * price, f"{gb_amount} GB of data at {price} dollars each")
        return {
            "data_refueling_gb": self._find_record("lines", line_id)["data_refueling_gb"],
            "charge": gb_amount * price,
        }

    # The initial state of a task, assertions about the final one, and both sides together.

    def set_data_usage(self, customer_id: str, line_id: str, data_used_gb: float) -> None:
        """Sets the data that a line has used."""
        self._find_line(customer_id, line_id)
        self._edit_line(line_id, data_used_gb=data_used_gb)

    def suspend_line_for_overdue_bill(
        self, customer_id: str, line_id: str, new_bill_id: str, contract_ended: bool
    ) -> None:
        """Suspends a line because of a new bill that is overdue."""
        price = self._find_record("plans", self._find_record("lines", line_id)["plan_id"])["price_per_month"]
        self._add_bill(customer_id, new_bill_id, status="Overdue", dates=_LAST_BILL)
        self._add_item(new_bill_id, price, f"line {line_id}")
        self._edit_line(line_id, status="Suspended", suspension_start_date=TODAY)
        if contract_ended:
            self._edit_line(line_id, contract_end_date=_LAST_BILL["period_end"])

    def assert_data_refueling_amount(self, customer_id: str, line_id: str, expected_amount: float) -> bool:
        """Returns whether so much data was added to a line."""
        return abs(self._find_line(customer_id, line_id)["data_refueling_gb"] - expected_amount) < 1e-6

    def assert_no_overdue_bill(self, overdue_bill_id: str) -> bool:
        """Returns whether a bill is paid, or there is none."""
        bill = self.database.get("bills", overdue_bill_id)
        return bill is None or bill["status"] == "Paid"

    def settle(self) -> None:
        """Carries the state of the line over to the phone, and payments to the bills."""
        number = self._surroundings_record["phone_number"]
        line = next((record for record in self.database.records("lines") if record["phone_number"] == number), None)
        if line is None:
            return
        limit = self._find_record("plans", line["plan_id"])["data_limit_gb"] + line["data_refueling_gb"]
        request = self._surroundings_record["payment_request"]
        if request is not None and request.get("paid"):
            self.database.edit("bills", request["bill_id"])["status"] = "Paid"
            request = None
        customers = self.database.records("customers")
        owner = next((record for record in customers if line["line_id"] in record["line_ids"]), None)
        if request is None and owner is not None and (bills := self._list_awaited_bills(owner)):
            request = {"bill_id": bills[0]["bill_id"], "amount_due": bills[0]["total_due"]}
        self._change_surroundings(
            line_active=line["status"] == "Active",
            roaming_allowed=line["roaming_enabled"],
            mobile_data_usage_exceeded=line["data_used_gb"] >= limit,
            payment_request=request,
        )

    def _find_line(self, customer_id: str, line_id: str) -> Record:
        if line_id not in self._find_record("customers", customer_id)["line_ids"]:
            raise RefusedError("the customer has no such line")
        return self._find_record("lines", line_id)

    def _edit_line(self, line_id: str, **values: Any) -> Record:
        line = self.database.edit("lines", line_id)
        line.update(values)
        return line

    def _list_awaited_bills(self, customer: Record) -> list[Record]:
        bills = [self._find_record("bills", bill_id) for bill_id in customer["bill_ids"]]
        return [bill for bill in bills if bill["status"] == "Awaiting Payment"]

    def _charge_customer(self, customer_id: str, amount: float, description: str) -> None:
        bill_ids = self._find_record("customers", customer_id)["bill_ids"]
        draft = next((key for key in bill_ids if self._find_record("bills", key)["status"] == "Draft"), None)
        if draft is None:
            draft = f"B{customer_id}-{len(bill_ids) + 1}"
            self._add_bill(customer_id, draft, status="Draft", dates=_NEXT_BILL)
        self._add_item(draft, amount, description)

    def _add_bill(self, customer_id: str, bill_id: str, *, status: str, dates: Record) -> None:
        bill = {"bill_id": bill_id, "customer_id": customer_id, **dates, "total_due": 0.0, "line_items": []}
        self.database.add("bills", bill_id, {**bill, "status": status})
        self.database.edit("customers", customer_id)["bill_ids"].append(bill_id)

    def _add_item(self, bill_id: str, amount: float, description: str) -> None:
        bill = self.database.edit("bills", bill_id)
        bill["line_items"].append({"description": description, "amount": amount, "date": TODAY, "item_type": "Charge"})
        bill["total_due"] += amount
