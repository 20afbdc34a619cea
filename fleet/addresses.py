"""Which addresses a replica may have: the gateways will connect to whatever is written down.

So an address is `http(s)://host[:port]` and every IP that the host resolves to lies in
HALCYON_REPLICA_NETWORKS. Link-local addresses (169.254.0.0/16 and fe80::/10), multicast and
unspecified ones, and those where clouds keep their metadata service are refused whatever the
networks say, also where an IPv6 address only wraps them. A host is judged by what it resolves
to, so that 2852039166, 0251.0376.0251.0376 or a name are no way around. What breaks without
it: a registration that makes the gateway fetch secrets.
"""

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from django.conf import settings

from engine.errors import InvalidInput
from fleet.forbidden import IPAddress, forbidden


def valid_address(address: str, networks: Iterable[str] | None = None) -> str:
    """The address in its plain form, or `InvalidInput` that says what is wrong with it."""
    address = address.strip().rstrip("/")
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        raise InvalidInput("address", address, f"is not a URL ({error})") from None
    if parts.scheme not in {"http", "https"}:
        raise InvalidInput("address", address, "must begin with http:// or https://")
    if not parts.hostname:
        raise InvalidInput("address", address, "names no host: use http://host:port")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("address", address, "must not carry a user or a password")
    if parts.query or parts.fragment:
        raise InvalidInput("address", address, "must not carry a query or a fragment")
    if parts.path:
        raise InvalidInput("address", address, "must not carry a path: use http://host:port")
    if port == 0 or any(character.isspace() for character in address):
        raise InvalidInput("address", address, "is not a usable URL: use http://host:port")
    allowed = [
        ipaddress.ip_network(network, strict=False)
        for network in (settings.HALCYON_REPLICA_NETWORKS if networks is None else networks)
    ]
    for ip in _resolve(address, parts.hostname):
        _require_allowed(address, ip, allowed)
    return address


def _resolve(address: str, host: str) -> list[IPAddress]:
    try:
        return [ipaddress.ip_address(host.split("%", 1)[0])]
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InvalidInput("address", address, f"its host does not resolve ({error})") from None
    return [ipaddress.ip_address(str(entry[4][0]).split("%", 1)[0]) for entry in found]


def _require_allowed(
    address: str, ip: IPAddress, allowed: list[ipaddress.IPv4Network | ipaddress.IPv6Network]
) -> None:
    if (never := forbidden(ip)) is not None:
        raise InvalidInput(
            "address",
            address,
            f"{never} is link-local, multicast, unspecified or a metadata service: never allowed",
        )
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if not any(ip.version == network.version and ip in network for network in allowed):
        raise InvalidInput(
            "address",
            address,
            f"{ip} lies outside HALCYON_REPLICA_NETWORKS "
            f"({', '.join(str(network) for network in allowed) or 'empty'})",
        )
