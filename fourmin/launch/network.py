"""Addresses of this host, and which interface holds one."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct

_SIOCGIFADDR = 0x8915


def interface_addresses() -> dict[str, str]:
    """IPv4 address of each network interface that has one, by the interface's name."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def interface_of(address: str) -> str | None:
    return next((name for name, own in interface_addresses().items() if own == address), None)


def reachable_names() -> list[str]:
    """How other hosts may reach this one: its addresses, and its name; loopback last."""
    addresses = list(interface_addresses().values())
    outward = [address for address in addresses if not is_loopback(address)]
    return [*outward, socket.gethostname(), *(a for a in addresses if is_loopback(a))]


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
