"""Where no gateway ever connects to: link-local addresses, and what only wraps or equals one.

Registration asks before an address is written down (`fleet/addresses.py`); the gateway asks
again once a *name* has led it somewhere, because a name may lead elsewhere later.
"""

import ipaddress
from collections.abc import Iterator

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

METADATA = {
    ipaddress.ip_address(ip)
    for ip in (
        "fd00:ec2::254",  # AWS
        "fd20:ce::254",  # Google
        "168.63.129.16",  # Azure
        "192.0.0.192",  # Oracle
        "100.100.100.200",  # Alibaba
    )
}
NAT64 = ipaddress.ip_network("64:ff9b::/96")


def forbidden(ip: IPAddress) -> IPAddress | None:
    """The address that is link-local, multicast, unspecified or a cloud's metadata service:
    `ip` itself or what it stands for. None where nothing is wrong with it."""
    for each in (ip, *_wrapped(ip)):
        if each.is_link_local or each.is_multicast or each.is_unspecified or each in METADATA:
            return each
    return None


def is_forbidden(host: str) -> bool:
    """The same for an address in text, as a socket names its peer."""
    return forbidden(ipaddress.ip_address(host.split("%", 1)[0])) is not None


def _wrapped(ip: IPAddress) -> Iterator[IPAddress]:
    """The IPv4 addresses that an IPv6 address stands for: mapped, compatible, 6to4, NAT64."""
    if not isinstance(ip, ipaddress.IPv6Address):
        return
    if ip.ipv4_mapped is not None:
        yield ip.ipv4_mapped
    if ip.sixtofour is not None:
        yield ip.sixtofour
    if ip in NAT64 or 1 < int(ip) < 2**32:
        yield ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
