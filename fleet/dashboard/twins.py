"""The command-line and API twin of each page: what to type to see the same.

Shown in the footer, ready to copy. A page that cannot be had without a browser would be a
page that cannot be scripted, alarmed on or pasted into an incident.
"""

from dataclasses import dataclass

from django.conf import settings

GATEWAY = "$GATEWAY"


@dataclass(slots=True, frozen=True)
class Twin:
    command: str
    api: str  # a path of the control API, or of a gateway where it begins with GATEWAY

    @property
    def curl(self) -> str:
        if self.api.startswith(GATEWAY):
            url = self.api.replace(GATEWAY, settings.HALCYON_GATEWAY_URL.split(",")[0].rstrip("/"))
            return f'curl -H "x-api-key: $HALCYON_KEY" {url}'
        base = settings.HALCYON_WEB_URL.rstrip("/")
        return f'curl -H "Authorization: Bearer $HALCYON_TOKEN" {base}{self.api}'


OVERVIEW = Twin("manage.py status", "/v1/control/state")
