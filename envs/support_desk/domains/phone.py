"""The customer's phone in the domain `telecom`: a device and its surroundings, with the rules of tau2's user tools.

A network search decides which service the phone has. Only some tools start one, so a repaired line may need a reboot.

tau2: https://arxiv.org/abs/2506.07982
"""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from ..database import Record
from ..desk_tool import Domain, RefusedError

Mode = Literal["4g_5g_preferred", "4g_only", "3g_only", "2g_only"]
App = Literal["messaging", "browser"]
Permission = Literal["sms", "storage", "phone", "network"]
SURROUNDINGS: Record = {
    "phone_number": None,
    "is_abroad": False,
    "roaming_allowed": False,
    "signal_strength": {"2G": "poor", "3G": "fair", "4G": "good", "5G": "excellent"},
    "mobile_data_usage_exceeded": False,
    "line_active": True,
    "payment_request": None,
}
"""The world around a phone at the start of every task."""
_APN = {"apn_name": "internet", "reset_at_reboot": False, "mms_apn": "mms",
        "mmsc_url": "http://mms.carrier.com/mms/wapenc"}  # fmt: skip
_VPN = {"server_address": "192.168.1.1", "protocol": "OpenVPN", "server_performance": "excellent"}
_SPEEDS = {"2G": (0.1, 0.4), "3G": (1.0, 5.0), "4G": (10.0, 100.0), "5G": (50.0, 500.0)}
"""Slowest and fastest download of a technology, in Mbit/s."""
_SIGNALS = {"poor": 0.2, "fair": 0.5, "good": 0.8, "excellent": 1.0}
"""Share of the speed that a signal leaves."""
_GRADES = ((1, "very poor"), (5, "poor"), (25, "fair"), (100, "good"), (float("inf"), "excellent"))
"""Speeds in Mbit/s below which a grade ends."""
_NO_SERVICE = {"network_connection_status": "no_service", "network_technology_connected": "none",
               "network_signal_strength": "none"}  # fmt: skip
_NO_WIFI = {"wifi_connected": False, "wifi_ssid": None, "wifi_signal_strength": "none"}


class ApnSettings(TypedDict, total=False):
    """Settings of the access point."""

    apn_name: Literal["internet", "broken"]
    mms_apn: str | None
    mmsc_url: str | None


class Phone(Domain):
    """Tools of the customer, on his phone."""

    hands = (
        *("check_status_bar", "check_network_status", "check_network_mode_preference", "set_network_mode_preference"),
        *("run_speed_test", "toggle_airplane_mode", "check_sim_status", "reseat_sim_card", "toggle_data"),
        *("toggle_roaming", "check_data_restriction_status", "toggle_data_saver_mode", "check_apn_settings"),
        *("set_apn_settings", "reset_apn_settings", "check_wifi_status", "toggle_wifi", "check_wifi_calling_status"),
        *("toggle_wifi_calling", "check_vpn_status", "connect_vpn", "disconnect_vpn", "check_installed_apps"),
        *("check_app_status", "check_app_permissions", "grant_app_permission", "can_send_mms", "reboot_device"),
        *("check_payment_request", "make_payment"),
    )
    preparations = (
        *("set_user_info", "set_user_location", "turn_roaming_off", "turn_roaming_on", "simulate_network_search"),
        *("turn_data_off", "turn_data_saver_mode_on", "break_vpn", "turn_airplane_mode_on", "unseat_sim_card"),
        *("lock_sim_card", "break_apn_settings", "set_wifi_calling", "break_apn_mms_setting", "remove_app_permission"),
    )
    assertions = (
        *("assert_mobile_data_status", "assert_internet_speed", "assert_service_status", "assert_can_send_mms"),
    )

    # Looking.

    async def check_status_bar(self) -> str:
        """Shows the icons at the top of the screen: signal, network, mobile data, Wi-Fi, VPN and battery."""
        return self._status_bar()

    async def check_network_status(self) -> str:
        """Shows airplane mode, SIM card, connection, signal, network type, mobile data, roaming and Wi-Fi."""
        phone = self._device_record
        values = {
            "airplane mode": _format_switch(phone["airplane_mode"]),
            "SIM card": self._sim_status(),
            "connection": phone["network_connection_status"],
            "signal": phone["network_signal_strength"],
            "network type": phone["network_technology_connected"],
            "mobile data": _format_switch(phone["data_enabled"]),
            "data roaming": _format_switch(phone["roaming_enabled"]),
            "Wi-Fi": _format_switch(phone["wifi_enabled"]),
            "Wi-Fi connected": phone.get("wifi_ssid") or ("yes" if phone["wifi_connected"] else "no"),
        }
        return "\n".join(f"{name}: {value}" for name, value in values.items())

    async def check_network_mode_preference(self) -> str:
        """Shows which networks the phone prefers."""
        return f"network mode preference: {self._device_record['network_mode_preference']}"

    async def run_speed_test(self) -> str:
        """Measures the download speed of mobile data."""
        speed, grade = self._measure_speed()
        return f"speed: {speed:.2f} Mbit/s ({grade})" if grade else "speed test failed: no mobile data connection"

    async def check_sim_status(self) -> str:
        """Shows whether the SIM card is active, missing, or locked with a PIN or PUK code."""
        return f"SIM card: {self._sim_status()}"

    async def check_data_restriction_status(self) -> str:
        """Shows whether data saver mode limits mobile data."""
        return f"data saver mode: {_format_switch(self._device_record['data_saver_mode'])}"

    async def check_apn_settings(self) -> str:
        """Shows the name of the access point and the address for picture messages (MMSC)."""
        apn = self._device_record["active_apn_settings"]
        return f"APN: {apn['apn_name']}\nMMSC URL: {apn.get('mmsc_url') or 'not set'}"

    async def check_wifi_status(self) -> str:
        """Shows whether Wi-Fi is on, its network and signal."""
        phone = self._device_record
        network = phone.get("wifi_ssid") if phone["wifi_connected"] else "none"
        signal = phone["wifi_signal_strength"]
        return f"Wi-Fi: {_format_switch(phone['wifi_enabled'])}, network: {network}, signal: {signal}"

    async def check_wifi_calling_status(self) -> str:
        """Shows whether calls go over Wi-Fi."""
        return f"Wi-Fi calling: {_format_switch(self._device_record['wifi_calling_enabled'])}"

    async def check_vpn_status(self) -> str:
        """Shows whether a VPN is connected, and how it performs."""
        phone = self._device_record
        if not phone["vpn_connected"]:
            return "VPN: not connected"
        return f"VPN: connected, {', '.join(f'{key}: {value}' for key, value in phone['vpn_details'].items())}"

    async def check_installed_apps(self) -> str:
        """Lists the apps on the phone."""
        return f"apps: {', '.join(self._device_record['app_statuses'])}"

    async def check_app_status(self, app_name: App) -> str:
        """Shows an app and its permissions.

        Args:
            app_name: the app.
        """
        return f"app {app_name}, permissions: {self._list_permissions(app_name)}"

    async def check_app_permissions(self, app_name: App) -> str:
        """Shows the permissions of an app.

        Args:
            app_name: the app.
        """
        return f"permissions of {app_name}: {self._list_permissions(app_name)}"

    async def can_send_mms(self) -> str:
        """Tries whether the messaging app can send picture messages (MMS)."""
        return f"the messaging app {'can' if self._has_mms() else 'cannot'} send MMS"

    async def check_payment_request(self) -> str:
        """Shows whether the desk has asked for a payment."""
        request = self._surroundings_record["payment_request"]
        return (
            f"payment request: bill {request['bill_id']}, {request['amount_due']} dollars"
            if request
            else ("there is no payment request")
        )

    # Changing.

    async def set_network_mode_preference(self, mode: Mode) -> str:
        """Chooses the networks that the phone prefers.

        Args:
            mode: the networks.
        """
        self._change_device(network_mode_preference=mode)
        return self._after_search(f"network mode preference: {mode}")

    async def toggle_airplane_mode(self) -> str:
        """Switches airplane mode on or off. It turns off mobile network, Wi-Fi and VPN."""
        is_on = not self._device_record["airplane_mode"]
        self._change_device(airplane_mode=is_on)
        if is_on or self._device_record["wifi_enabled"]:
            self._change_device(**_NO_WIFI)
        if is_on:
            self._change_device(vpn_connected=False, vpn_details=None)
        return self._after_search(f"airplane mode: {_format_switch(is_on)}")

    async def reseat_sim_card(self) -> str:
        """Takes the SIM card out and puts it in again."""
        self._change_device(sim_card_missing=False)
        return self._after_search("the SIM card is in its place")

    async def toggle_data(self) -> str:
        """Switches mobile data on or off."""
        return self._after_search(self._toggle_setting("data_enabled", "mobile data"))

    async def toggle_roaming(self) -> str:
        """Switches data roaming on or off, which is mobile data in networks of other carriers."""
        return self._after_search(self._toggle_setting("roaming_enabled", "data roaming"))

    async def toggle_data_saver_mode(self) -> str:
        """Switches data saver mode on or off, which slows mobile data."""
        return f"{self._toggle_setting('data_saver_mode', 'data saver mode')}\n{self._status_bar()}"

    async def set_apn_settings(self, apn_settings: ApnSettings) -> str:
        """Sets the access point of the carrier.

        Args:
            apn_settings: all settings; those that are left out get their defaults.
        """
        self._change_device(active_apn_settings={**_APN, **apn_settings})
        return self._after_search("the APN settings are set")

    async def reset_apn_settings(self) -> str:
        """Resets the access point to its defaults at the next reboot."""
        self._change_device(active_apn_settings={**self._device_record["active_apn_settings"], "reset_at_reboot": True})
        return self._after_search("the APN settings will be reset at the next reboot")

    async def toggle_wifi(self) -> str:
        """Switches Wi-Fi on or off."""
        if self._device_record["airplane_mode"]:
            raise RefusedError("Wi-Fi cannot be changed in airplane mode")
        report = self._toggle_setting("wifi_enabled", "Wi-Fi")
        if not self._device_record["wifi_enabled"]:
            self._change_device(**_NO_WIFI)
        return f"{report}\n{self._status_bar()}"

    async def toggle_wifi_calling(self) -> str:
        """Switches calls over Wi-Fi on or off."""
        return f"{self._toggle_setting('wifi_calling_enabled', 'Wi-Fi calling')}\n{self._status_bar()}"

    async def connect_vpn(self) -> str:
        """Connects the VPN."""
        if self._device_record["vpn_connected"]:
            return "the VPN is connected already"
        self._change_device(vpn_connected=True, vpn_details=dict(_VPN))
        return f"the VPN is connected\n{self._status_bar()}"

    async def disconnect_vpn(self) -> str:
        """Disconnects the VPN."""
        if not self._device_record["vpn_connected"]:
            return "there is no VPN connection"
        self._change_device(vpn_connected=False, vpn_details=None)
        return f"the VPN is disconnected\n{self._status_bar()}"

    async def grant_app_permission(self, app_name: App, permission: Permission) -> str:
        """Gives an app a permission.

        Args:
            app_name: the app.
            permission: the permission.
        """
        self._set_permission(app_name, permission, is_granted=True)
        return f"{app_name} has the permission {permission}"

    async def reboot_device(self) -> str:
        """Restarts the phone. It applies waiting settings and searches the network again."""
        if self._device_record["active_apn_settings"].get("reset_at_reboot"):
            self._change_device(active_apn_settings=dict(_APN))
        return self._after_search("the phone has restarted")

    async def make_payment(self) -> str:
        """Pays the bill that the desk has asked for."""
        request = self._surroundings_record["payment_request"]
        if request is None:
            return "there is no payment request"
        self._change_surroundings(payment_request={**request, "paid": True})
        return f"paid {request['amount_due']} dollars for bill {request['bill_id']}"

    # The initial state of a task.

    def set_user_info(self, name: str, phone_number: str) -> None:
        """Sets the owner and the number of the phone."""
        self._change_surroundings(name=name, phone_number=phone_number)

    def set_user_location(self, abroad: bool) -> None:
        """Puts the customer abroad or at home."""
        self._change_surroundings(is_abroad=abroad)

    def turn_roaming_on(self) -> None:
        """Allows data roaming on the phone."""
        self._change_device(roaming_enabled=True)
        self.simulate_network_search()

    def turn_roaming_off(self) -> None:
        """Forbids data roaming on the phone."""
        self._change_device(roaming_enabled=False)
        self.simulate_network_search()

    def turn_data_off(self) -> None:
        """Turns mobile data off."""
        self._change_device(data_enabled=False)
        self.simulate_network_search()

    def turn_data_saver_mode_on(self) -> None:
        """Turns data saver mode on."""
        self._change_device(data_saver_mode=True)

    def turn_airplane_mode_on(self) -> None:
        """Turns airplane mode on."""
        self._change_device(airplane_mode=True, vpn_connected=False, vpn_details=None, **_NO_WIFI)
        self.simulate_network_search()

    def unseat_sim_card(self) -> None:
        """Takes the SIM card out."""
        self._change_device(sim_card_missing=True)
        self.simulate_network_search()

    def lock_sim_card(self, mode: Literal["pin", "puk"]) -> None:
        """Locks the SIM card, which no tool can undo."""
        self._change_device(sim_card_status=f"locked_{mode}")
        self.simulate_network_search()

    def break_apn_settings(self) -> None:
        """Sets a wrong access point."""
        self._change_device(active_apn_settings={**self._device_record["active_apn_settings"], "apn_name": "broken"})
        self.simulate_network_search()

    def break_apn_mms_setting(self) -> None:
        """Removes the address for picture messages."""
        self._change_device(active_apn_settings={**self._device_record["active_apn_settings"], "mmsc_url": None})

    def break_vpn(self) -> None:
        """Connects a slow VPN."""
        self._change_device(vpn_connected=True, vpn_details={**_VPN, "server_performance": "poor"})

    def set_wifi_calling(self, enabled: bool, mms_over_wifi: bool | None = None) -> None:
        """Sets calls, and picture messages, over Wi-Fi."""
        self._change_device(wifi_calling_enabled=enabled)
        if mms_over_wifi is not None:
            self._change_device(wifi_calling_mms_over_wifi=mms_over_wifi)

    def remove_app_permission(self, app_name: str, permission: str) -> None:
        """Takes a permission from an app."""
        self._set_permission(app_name, permission, is_granted=False)

    def simulate_network_search(self) -> None:
        """Searches the network: decides service, technology and signal."""
        phone, around = self._device_record, self._surroundings_record
        is_reachable = around["line_active"] and phone["active_apn_settings"]["apn_name"] != "broken"
        if self._sim_status() != "active" or phone["airplane_mode"] or not is_reachable:
            self._change_device(**_NO_SERVICE)
            return
        signals = around["signal_strength"]
        mode = phone["network_mode_preference"]
        best = "5G" if signals.get("5G", "none") != "none" else "4G"
        technology = best if mode == "4g_5g_preferred" else mode[:2].upper()
        self._change_device(
            network_connection_status="connected",
            network_technology_connected=technology,
            network_signal_strength=signals.get(technology, "none"),
        )

    # Assertions about the final state.

    def assert_mobile_data_status(self, expected_status: bool) -> bool:
        """Returns whether mobile data works, or does not, as expected."""
        return self._has_data() == expected_status

    def assert_internet_speed(self, expected_speed: float, expected_desc: str | None = None) -> bool:
        """Returns whether mobile data has at least a speed, in Mbit/s, and a grade."""
        speed, grade = self._measure_speed()
        return speed >= expected_speed and expected_desc in (None, grade)

    def assert_service_status(self, expected_status: str) -> bool:
        """Returns whether the connection has a status."""
        return self._device_record["network_connection_status"] == expected_status

    def assert_can_send_mms(self, expected_status: bool) -> bool:
        """Returns whether picture messages can be sent, or not, as expected."""
        return self._has_mms() == expected_status

    # The state.

    @property
    def _device_record(self) -> Record:
        return self._find_record("phone", "device")

    @property
    def _surroundings_record(self) -> Record:
        return self._find_record("phone", "surroundings")

    def _change_device(self, **values: Any) -> None:
        self.database.edit("phone", "device").update(values)

    def _change_surroundings(self, **values: Any) -> None:
        self.database.edit("phone", "surroundings").update(values)

    def _toggle_setting(self, key: str, name: str) -> str:
        self._change_device(**{key: not self._device_record[key]})
        return f"{name}: {_format_switch(self._device_record[key])}"

    def _after_search(self, report: str) -> str:
        self.simulate_network_search()
        return f"{report}\n{self._status_bar()}"

    def _sim_status(self) -> str:
        return "missing" if self._device_record["sim_card_missing"] else self._device_record["sim_card_status"]

    def _set_permission(self, app_name: str, permission: str, *, is_granted: bool) -> None:
        self.database.edit("phone", "device")["app_statuses"][app_name]["permissions"][permission] = is_granted

    def _list_permissions(self, app_name: str) -> str:
        granted = self._device_record["app_statuses"][app_name]["permissions"]
        return ", ".join(name for name, is_granted in granted.items() if is_granted) or "none"

    def _has_data(self) -> bool:
        phone, around = self._device_record, self._surroundings_record
        may_roam = phone["roaming_enabled"] and around["roaming_allowed"]
        has_service = phone["network_connection_status"] != "no_service" and phone["network_signal_strength"] != "none"
        is_usable = phone["data_enabled"] and not around["mobile_data_usage_exceeded"]
        return has_service and not phone["airplane_mode"] and is_usable and (may_roam or not around["is_abroad"])

    def _has_mms(self) -> bool:
        phone = self._device_record
        if not self._has_data() or phone["network_technology_connected"] == "2G":
            return False
        if phone["wifi_calling_enabled"] and phone["wifi_calling_mms_over_wifi"]:  # the carrier does not support it
            return False
        permissions = phone["app_statuses"]["messaging"]["permissions"]
        return bool(phone["active_apn_settings"].get("mmsc_url")) and permissions["storage"] and permissions["sms"]

    def _measure_speed(self) -> tuple[float, str]:
        """Returns the speed of mobile data in Mbit/s and its grade; without data 0 and an empty text."""
        if not self._has_data():
            return 0.0, ""
        phone = self._device_record
        slowest, fastest = _SPEEDS.get(phone["network_technology_connected"], (0.0, 0.0))
        factor = _SIGNALS.get(phone["network_signal_strength"], 0.0)
        if phone["vpn_connected"] and (phone["vpn_details"] or {}).get("server_performance") == "poor":
            factor *= 0.1
        if phone["data_saver_mode"]:
            factor *= 0.2
        speed = round((slowest + fastest) / 2 * factor, 2)
        return speed, next(grade for limit, grade in _GRADES if speed < limit)

    def _status_bar(self) -> str:
        phone = self._device_record
        if phone["airplane_mode"]:
            symbols = ["airplane mode"]
        else:
            technology = phone["network_technology_connected"]
            has_data = phone["data_enabled"] and technology != "none"
            signal = phone["network_signal_strength"]
            symbols = [
                "no signal" if signal == "none" else f"signal {signal}",
                *([technology] * (technology != "none")),
            ]
            symbols += [
                "data on" if has_data else "data off",
                *(["data saver"] * (has_data and phone["data_saver_mode"])),
            ]
        symbols += ["Wi-Fi"] * bool(phone["wifi_enabled"] and phone["wifi_connected"])
        symbols += ["VPN"] * bool(phone["vpn_connected"])
        symbols.append(f"battery {phone['battery_level']} %")
        return f"status bar: {' | '.join(symbols)}"


def _format_switch(is_on: bool) -> str:
    return "on" if is_on else "off"
