"""The domain `airline`: passengers, flights and reservations, with the names and rules of tau2's tools.

Paper: https://arxiv.org/abs/2406.12045, tau2: https://arxiv.org/abs/2506.07982
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date as Date
from datetime import timedelta
from typing import Any, Literal

from typing_extensions import TypedDict

from ..database import Record
from ..desk_tool import Domain, RefusedError

Cabin = Literal["basic_economy", "economy", "business"]
NOW = "2024-05-15T15:00:00"
"""The time in the policy of tau2."""
_BAG, _INSURANCE = 50, 30
"""Prices in dollars, of a bag that is not free, and of the insurance of a passenger."""
_NEW_RESERVATIONS = ("HATHAT", "HATHAU", "HATHAV")
_NEW_CERTIFICATES = ("certificate_3221322", "certificate_3221323", "certificate_3221324")
_AIRPORTS = {
    "SFO": "San Francisco", "JFK": "New York", "LAX": "Los Angeles", "ORD": "Chicago", "DFW": "Dallas", "DEN": "Denver",
    "SEA": "Seattle", "ATL": "Atlanta", "MIA": "Miami", "BOS": "Boston", "PHX": "Phoenix", "IAH": "Houston",
    "LAS": "Las Vegas", "MCO": "Orlando", "EWR": "Newark", "CLT": "Charlotte", "MSP": "Minneapolis", "DTW": "Detroit",
    "PHL": "Philadelphia", "LGA": "LaGuardia",
}  # fmt: skip


class FlightOfDay(TypedDict):
    """A flight on a date, `YYYY-MM-DD`."""

    flight_number: str
    date: str


class Passenger(TypedDict):
    """A passenger; the date of birth is `YYYY-MM-DD`."""

    first_name: str
    last_name: str
    dob: str


class Payment(TypedDict):
    """An amount in dollars by a payment method."""

    payment_id: str
    amount: int


class Airline(Domain):
    """Tools of an airline's support desk."""

    tables = ("users", "flights", "reservations")
    reads = (
        *("get_user_details", "get_reservation_details", "search_direct_flight", "search_onestop_flight"),
        *("get_flight_status", "list_all_airports", *Domain.reads),
    )
    changes = (
        *("book_reservation", "cancel_reservation", "update_reservation_flights", "update_reservation_passengers"),
        *("update_reservation_baggages", "send_certificate"),
    )

    async def get_user_details(self, user_id: str) -> Record:
        """Returns a customer's profile with payment methods and reservations.

        Args:
            user_id: such as sara_doe_496.
        """
        return self._find_record("users", user_id)

    async def get_reservation_details(self, reservation_id: str) -> Record:
        """Returns a reservation.

        Args:
            reservation_id: such as 8JX2WO.
        """
        return self._find_record("reservations", reservation_id)

    async def list_all_airports(self) -> dict[str, str]:
        """Lists the codes and cities of all airports."""
        return _AIRPORTS

    async def get_flight_status(self, flight_number: str, date: str) -> str:
        """Returns the status of a flight on a date.

        Args:
            flight_number: such as HAT001.
            date: YYYY-MM-DD.
        """
        return self._find_day(flight_number, date)["status"]

    async def search_direct_flight(self, origin: str, destination: str, date: str) -> list[Record]:
        """Lists direct flights with free seats.

        Args:
            origin: code of an airport.
            destination: code of an airport.
            date: YYYY-MM-DD.
        """
        return self._find_flights(date, origin=origin, destination=destination)

    async def search_onestop_flight(self, origin: str, destination: str, date: str) -> list[list[Record]]:
        """Lists pairs of flights with free seats and one stop.

        Args:
            origin: code of an airport.
            destination: code of an airport.
            date: YYYY-MM-DD, of the first flight.
        """
        pairs = []
        for first in self._find_flights(date, origin=origin):
            arrival = first["scheduled_arrival_time_est"]
            second_date = _next_day(date) if "+1" in arrival else date
            onward = self._find_flights(
                second_date, origin=first["destination"], destination=destination, after=arrival
            )
            pairs += [[{**first, "date": date}, {**second, "date": second_date}] for second in onward]
        return pairs

    def _demand_price(self, user_id: str, payments: list[Payment], price: int) -> None:
        for payment in payments:
            self._demand_balance(user_id, payment["payment_id"], payment["amount"])
        paid = sum(payment["amount"] for payment in payments)
        if paid != price:
            raise RefusedError(f"the payments must add up to the price of {price}, got {paid}")

    async def book_reservation(
        self,
        user_id: str,
        origin: str,
        destination: str,
        flight_type: Literal["one_way", "round_trip"],
        cabin: Cabin,
        flights: list[FlightOfDay],
        passengers: list[Passenger],
        payment_methods: list[Payment],
        total_baggages: int,
        nonfree_baggages: int,
        insurance: Literal["yes", "no"],
    ) -> Record:
        """Books a reservation.

        Args:
            user_id: such as sara_doe_496.
            origin: code of an airport.
            destination: code of an airport.
            flight_type: one way or round trip.
            cabin: class of all flights.
            flights: in order.
            passengers: all of them.
            payment_methods: amounts that add up to the price.
            total_baggages: number of bags.
            nonfree_baggages: those of them that are paid for.
            insurance: whether all passengers have travel insurance.
        """
        self._find_record("users", user_id)
        key = next((key for key in _NEW_RESERVATIONS if self.database.get("reservations", key) is None), None)
        if key is None:
            raise RefusedError("too many reservations")
        booked = [self._build_booking(flight, cabin, len(passengers)) for flight in flights]
        fare = sum(flight["price"] for flight in booked) + _INSURANCE * (insurance == "yes")
        price = fare * len(passengers) + _BAG * nonfree_baggages
        self._demand_price(user_id, payment_methods, price)
        self._deduct_payments(user_id, payment_methods)
        self._take_seats(booked, cabin, len(passengers))
        reservation = {
            "reservation_id": key,
            "user_id": user_id,
            "origin": origin,
            "destination": destination,
            "flight_type": flight_type,
            "cabin": cabin,
            "flights": booked,
            "passengers": list(passengers),
            "payment_history": list(payment_methods),
            "created_at": NOW,
            "total_baggages": total_baggages,
            "nonfree_baggages": nonfree_baggages,
            "insurance": insurance,
        }
        self.database.add("reservations", key, reservation)
        self.database.edit("users", user_id)["reservations"].append(key)
        return reservation

    async def cancel_reservation(self, reservation_id: str) -> Record:
        """Cancels a whole reservation and refunds it.

        Args:
            reservation_id: such as 8JX2WO.
        """
        self._find_record("reservations", reservation_id)
        reservation = self.database.edit("reservations", reservation_id)
        refunds = [{**payment, "amount": -payment["amount"]} for payment in reservation["payment_history"]]
        reservation["payment_history"] += refunds
        reservation["status"] = "cancelled"
        return reservation

    async def update_reservation_flights(
        self, reservation_id: str, cabin: Cabin, flights: list[FlightOfDay], payment_id: str
    ) -> Record:
        """Changes flights or cabin of a reservation.

        Args:
            reservation_id: such as 8JX2WO.
            cabin: class of all flights.
            flights: all flights, also those that stay as they are.
            payment_id: pays or gets the difference in price.
        """
        old = self._find_record("reservations", reservation_id)
        seats, old_flights = len(old["passengers"]), {(f["flight_number"], f["date"]): f for f in old["flights"]}
        new = [
            old_flights.get((flight["flight_number"], flight["date"])) if cabin == old["cabin"] else None
            for flight in flights
        ]
        booked = [have or self._build_booking(want, cabin, seats) for have, want in zip(new, flights, strict=True)]
        price = sum(flight["price"] for flight in booked) - sum(flight["price"] for flight in old["flights"])
        self._charge_change(reservation_id, payment_id, price * seats)
        reservation = self.database.edit("reservations", reservation_id)
        reservation.update(flights=booked, cabin=cabin)
        return reservation

    async def update_reservation_passengers(self, reservation_id: str, passengers: list[Passenger]) -> Record:
        """Changes the passengers of a reservation; their number stays.

        Args:
            reservation_id: such as 8JX2WO.
            passengers: all of them.
        """
        if len(passengers) != len(self._find_record("reservations", reservation_id)["passengers"]):
            raise RefusedError("the number of passengers must stay the same")
        reservation = self.database.edit("reservations", reservation_id)
        reservation["passengers"] = list(passengers)
        return reservation

    async def update_reservation_baggages(
        self, reservation_id: str, total_baggages: int, nonfree_baggages: int, payment_id: str
    ) -> Record:
        """Changes the number of bags of a reservation.

        Args:
            reservation_id: such as 8JX2WO.
            total_baggages: number of bags.
            nonfree_baggages: those of them that are paid for.
            payment_id: pays for more bags.
        """
        more = max(0, nonfree_baggages - self._find_record("reservations", reservation_id)["nonfree_baggages"])
        self._charge_change(reservation_id, payment_id, _BAG * more)
        reservation = self.database.edit("reservations", reservation_id)
        reservation.update(total_baggages=total_baggages, nonfree_baggages=nonfree_baggages)
        return reservation

    async def send_certificate(self, user_id: str, amount: int) -> str:
        """Sends a travel certificate to a customer.

        Args:
            user_id: such as sara_doe_496.
            amount: in dollars.
        """
        methods = self._find_record("users", user_id)["payment_methods"]
        key = next((key for key in _NEW_CERTIFICATES if key not in methods), None)
        if key is None:
            raise RefusedError("too many certificates")
        methods = self.database.edit("users", user_id)["payment_methods"]
        methods[key] = {"source": "certificate", "id": key, "amount": amount}
        return f"Certificate {key} of {amount} dollars sent to {user_id}"

    def _find_day(self, flight_number: str, date: str) -> Record:
        day = self._find_record("flights", flight_number)["dates"].get(date)
        if day is None:
            raise RefusedError(f"flight {flight_number} does not fly on {date}")
        return day

    def _build_booking(self, flight: FlightOfDay, cabin: Cabin, count: int) -> Record:
        """Returns a flight of a reservation."""
        day, number = self._find_day(flight["flight_number"], flight["date"]), flight["flight_number"]
        if day["status"] != "available" or day["available_seats"][cabin] < count:
            raise RefusedError(f"flight {number} on {flight['date']} has not enough free seats in {cabin}")
        route = self._find_record("flights", number)
        return {
            "origin": route["origin"],
            "destination": route["destination"],
            "flight_number": number,
            "date": flight["date"],
            "price": day["prices"][cabin],
        }

    def _take_seats(self, booked: Sequence[Record], cabin: Cabin, count: int) -> None:
        for flight in booked:
            day = self.database.edit("flights", flight["flight_number"])["dates"][flight["date"]]
            day["available_seats"][cabin] -= count

    def _find_flights(
        self, date: str, *, origin: str, destination: str | None = None, after: str | None = None
    ) -> list[Record]:
        flights = []
        for flight in self.database.records("flights"):
            day = flight["dates"].get(date)
            is_route = flight["origin"] == origin and destination in (None, flight["destination"])
            is_late = after is None or flight["scheduled_departure_time_est"] >= after
            if day is not None and day["status"] == "available" and is_route and is_late:
                route = {key: value for key, value in flight.items() if key != "dates"}
                flights.append({**route, **day})
        return flights

    def _demand_balance(self, user_id: str, payment_id: str, amount: int) -> Record:
        method = self._payment_method(user_id, payment_id)
        if method["source"] != "credit_card" and method["amount"] < amount:
            raise RefusedError(f"the balance of {payment_id} is too low")
        return method

    def _deduct_payments(self, user_id: str, payments: Sequence[Payment]) -> None:
        methods = self.database.edit("users", user_id)["payment_methods"]
        for payment in payments:
            method = methods[payment["payment_id"]]
            if method["source"] == "gift_card":
                method["amount"] -= payment["amount"]
            elif method["source"] == "certificate":
                del methods[payment["payment_id"]]  # what is left of a certificate is lost

    def _charge_change(self, reservation_id: str, payment_id: str, price: int) -> None:
        """Pays the price of a change, or refunds a negative one."""
        reservation = self._find_record("reservations", reservation_id)
        method = self._demand_balance(reservation["user_id"], payment_id, price)
        if method["source"] == "certificate":
            raise RefusedError("a certificate cannot pay for a change")
        payment: Any = {"payment_id": payment_id, "amount": price}
        self._deduct_payments(reservation["user_id"], [payment])
        if price:
            self.database.edit("reservations", reservation_id)["payment_history"].append(payment)


def _next_day(date: str) -> str:
    try:
        return (Date.fromisoformat(date) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError) as cause:
        raise RefusedError("a date must be YYYY-MM-DD") from cause
