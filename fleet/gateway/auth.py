"""Whose key is this? A digest, a table look-up, and an expiry; no database.

Keys are random (`hk_<8>_<32>`), so a plain SHA-256 is as good as a slow hash and costs
0.6 us. Revoked keys are not in the snapshot at all. Every failure says the same words:
whether a key is unknown, revoked or expired is nobody's business but its owner's, who can
see it in the admin. Keys that were used are noted for the recorder, which tells Postgres.
"""

import hashlib
import time
from collections.abc import Mapping

from fleet.gateway.errors import Problem
from fleet.gateway.snapshot import KeyEntry, Snapshot

_CHALLENGE = ((b"www-authenticate", b'Bearer realm="halcyon"'),)
_sha256 = hashlib.sha256


def authenticate(headers: Mapping[bytes, bytes], snapshot: Snapshot) -> KeyEntry:
    """The entry of the key in `x-api-key` or `Authorization: Bearer`. Raises `Problem`."""
    key = headers.get(b"x-api-key")
    if key is None:
        sent = headers.get(b"authorization")
        if sent is None:
            raise Problem(
                "unauthorized",
                "an API key is needed: send it as x-api-key or as Authorization: Bearer",
                headers=_CHALLENGE,
            )
        scheme, _, key = sent.partition(b" ")
        if scheme.lower() != b"bearer":
            raise Problem(
                "unauthorized", "authorization: must be 'Bearer <key>'", headers=_CHALLENGE
            )
    digest = _sha256(key.strip()).digest()
    entry = snapshot.keys.get(digest)
    if entry is None or (entry.expires_at is not None and entry.expires_at <= time.time()):
        raise Problem(
            "unauthorized", "this API key is unknown, expired or revoked", headers=_CHALLENGE
        )
    snapshot.used.add(digest)
    return entry
