"""Keys and tokens: `<kind>_<8 characters>_<32 characters>`, of which only a digest is kept.

The 32 characters carry 190 random bits, so a plain SHA-256 is as safe as a slow hash and
the gateway can afford it on every request. The 8 in front are stored in the clear: they
tell keys apart in a list and find the row.

`derived_secret` makes the same secret again from the installation's SECRET_KEY: that is how
a demo prints the same keys after each restart without keeping any of them.
"""

import hashlib
import hmac
import secrets
import string
from dataclasses import dataclass

from django.conf import settings

ALPHABET = string.ascii_letters + string.digits
PREFIX_LENGTH = 8
SECRET_LENGTH = 32

API_KEY = "hk"
USER_TOKEN = "ht"
FLEET_TOKEN = "hf"


@dataclass(slots=True, frozen=True)
class Secret:
    """A secret while it can still be shown."""

    text: str

    @property
    def prefix(self) -> str:
        """What is stored and listed: kind and the first 8 characters."""
        return self.text.rsplit("_", 1)[0]

    @property
    def digest(self) -> str:
        return digest_of(self.text)


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def matches(text: str, digest: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(digest_of(text), digest)


def prefix_of(text: str) -> str | None:
    """The stored part of a presented secret, or None where it has not the right form."""
    kind, _, rest = text.partition("_")
    head, _, tail = rest.partition("_")
    if kind not in {API_KEY, USER_TOKEN, FLEET_TOKEN}:
        return None
    if len(head) != PREFIX_LENGTH or len(tail) != SECRET_LENGTH:
        return None
    return f"{kind}_{head}"


def new_secret(kind: str) -> Secret:
    characters = "".join(secrets.choice(ALPHABET) for _ in range(PREFIX_LENGTH + SECRET_LENGTH))
    return _assemble(kind, characters)


def derived_secret(kind: str, purpose: str) -> Secret:
    """The secret that belongs to `purpose` on this installation: always the same one."""
    material = b""
    block = 0
    while len(material) < 2 * (PREFIX_LENGTH + SECRET_LENGTH):
        message = f"halcyon:{kind}:{purpose}:{block}".encode()
        material += hmac.digest(settings.SECRET_KEY.encode(), message, "sha512")
        block += 1
    numbers = (int.from_bytes(material[at : at + 2]) for at in range(0, len(material) - 1, 2))
    characters = "".join(ALPHABET[number % len(ALPHABET)] for number in numbers)
    return _assemble(kind, characters[: PREFIX_LENGTH + SECRET_LENGTH])


def _assemble(kind: str, characters: str) -> Secret:
    return Secret(f"{kind}_{characters[:PREFIX_LENGTH]}_{characters[PREFIX_LENGTH:]}")
