"""Questions that only a gateway can answer, asked from the web process on behalf of a person.

Decision records of the recent past live in gateways' memory. The dashboard asks the gateways
it knows of (`HALCYON_GATEWAY_URL`, several separated by commas); on one machine they trust
the loopback address, elsewhere `HALCYON_GATEWAY_TOKEN` carries an operator's access token.
"""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from django.conf import settings

ASK_TIMEOUT_S = 2.0
LONGEST_ANSWER = 4 * 1024 * 1024


@dataclass(slots=True, frozen=True)
class Answer:
    """What came back. `status` is 0 where nobody answered; `text` then says why."""

    status: int
    body: Any
    text: str
    headers: dict[str, str]


def addresses(listed: str | None = None) -> list[str]:
    """The gateways to ask, in order: those of HALCYON_GATEWAY_URL, unless others are listed."""
    listed = settings.HALCYON_GATEWAY_URL if listed is None else listed
    return [url.strip().rstrip("/") for url in listed.split(",") if url.strip()]


def explain(request_id: str, listed: str | None = None) -> Any | None:
    """The decision record from whichever gateway remembers it; None where none does."""
    for address in addresses(listed):
        answer = ask(f"{address}/v1/control/requests/{quote(request_id, safe='')}")
        if answer.status == 200:
            return answer.body
    return None


def ask(
    url: str,
    *,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    timeout_s: float = ASK_TIMEOUT_S,
) -> Answer:
    """One HTTP question. Errors are answers: nothing is raised."""
    given = {"accept": "application/json", **(headers or {})}
    token = getattr(settings, "HALCYON_GATEWAY_TOKEN", "")
    if token and body is None:
        given["authorization"] = f"Bearer {token}"
    if body is not None:
        given["content-type"] = "application/json"
    request = urllib.request.Request(url, data=body, headers=given)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            return _read(response.status, response)
    except urllib.error.HTTPError as error:
        with error:
            return _read(error.code, error)
    except (OSError, ValueError) as error:
        return Answer(0, None, f"{url.split('/v1')[0]} does not answer: {error}", {})


def _read(status: int, response: Any) -> Answer:
    text = response.read(LONGEST_ANSWER).decode("utf-8", errors="replace")
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    return Answer(status, body, text, {k.lower(): v for k, v in response.headers.items()})
