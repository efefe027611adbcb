"""Addresses: as users write them, of this host, and which interface holds one."""

from __future__ import annotations

import fcntl
import ipaddress
import re
import socket
import struct
from pathlib import Path

from fourmin.base.mishaps import told

MOST_PORT = 65535
_SIOCGIFADDR = 0x8915
_BACKLOG = 4096  # all nodes may come at once
_ADDRESS = re.compile(r"(?:\[([^\[\]]+)\]|([^\s:/\[\]]*))(?::([0-9]{1,5}))?", re.ASCII)


def parse_address(text: str) -> tuple[str, int]:
    """Host and port (0: any) of `HOST`, `HOST:PORT`, `:PORT`; an IPv6 address has brackets where a
    port follows. Raises FourminError for anything else.
    """
    match = _ADDRESS.fullmatch(text)
    step = "--address HOST, HOST:PORT or [IPV6]:PORT"
    with told(f"--address {text!r} is no HOST:PORT", step, ValueError):
        host, port = (match[1] or match[2], int(match[3] or 0)) if match else (text, 0)
        if match is None or match[1]:
            ipaddress.IPv6Address(host.partition("%")[0])
        if port > MOST_PORT:
            raise ValueError(f"a port is a number up to {MOST_PORT}")
        return host, port


def require_resolved(host: str) -> None:
    """Raise FourminError for a name that has no address here."""
    step = "--address with this host's address, as other nodes reach it"
    with (
        told(f"the address {host} does not resolve", step),
        told(f"the address {host} is no name of a host", step, UnicodeError),
    ):
        socket.getaddrinfo(host, None)


def listen(port: int) -> socket.socket:
    """A listening socket for both families where the host has both, or for the one that it has.

    Raises FourminError where the port is taken, or not for this user.
    """
    step = "--address HOST:PORT with another port; without one any that is free is taken"
    with told(f"cannot listen on TCP port {port}", step):
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        return socket.create_server(
            ("", port), family=family, dualstack_ipv6=both, backlog=_BACKLOG
        )


def interface_addresses() -> dict[str, str]:
    """An address of each network interface, by the interface's name: IPv4 where it has one."""
    found = {}
    try:
        lines = Path("/proc/net/if_inet6").read_text().split("\n")
    except OSError:
        lines = []
    for words in (line.split() for line in lines):
        if len(words) == 6 and words[3] in ("00", "10"):  # global, or the host's own
            found[words[5]] = str(ipaddress.IPv6Address(bytes.fromhex(words[0])))
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
