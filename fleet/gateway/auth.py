"""Whose key is this? A digest, a table look-up, and an expiry; no database.

Keys are random (`hk_<8>_<32>`), so a plain SHA-256 is as good as a slow hash and costs
0.6 us. Revoked keys are not in the snapshot at all. Every failure says the same words:
whether a key is unknown, revoked or expired is nobody's business but its owner's, who can
see it in the admin. Keys that were used are noted for the recorder, which tells Postgres.

A connection that sends the same head again (`known_head`) sends the same key: what it opened
is remembered there, for as long as the keys in force are the ones that opened it. The key
itself is kept nowhere but in the head that came with it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fleet.gateway.errors import Problem
from fleet.gateway.snapshot import KeyEntry, Snapshot

if TYPE_CHECKING:
    from fleet.gateway.call import Call

_CHALLENGE = ((b"www-authenticate", b'Bearer realm="halcyon"'),)
_sha256 = hashlib.sha256


class Opened:
    """What the key of a connection opened last, and in which snapshot (`Snapshot.keyring`)."""

    __slots__ = ("digest", "entry", "keyring")

    def __init__(self) -> None:
        self.digest = b""
        self.entry: KeyEntry | None = None
        self.keyring = 0


def authenticate(call: Call, snapshot: Snapshot) -> KeyEntry:
    """The entry of the key in `x-api-key` or `Authorization: Bearer`. Raises `Problem`."""
    opened = call.opened or Opened()
    if opened.keyring != snapshot.keyring:
        opened.digest = _sha256(_key_of(call.headers)).digest()
        opened.entry = snapshot.keys.get(opened.digest)
        opened.keyring = snapshot.keyring
    entry = opened.entry
    if entry is None or (entry.expires_at is not None and entry.expires_at <= time.time()):
        raise Problem(
            "unauthorized", "this API key is unknown, expired or revoked", headers=_CHALLENGE
        )
    snapshot.used.add(opened.digest)
    return entry


def _key_of(headers: Mapping[bytes, bytes]) -> bytes:
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
    return key.strip()
