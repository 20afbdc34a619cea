"""The web process: HTTP by Django, websockets by Channels, both behind the session.

Daphne has no ASGI lifespan, so nothing here waits for a startup event: whatever must run
beside the requests starts with the first connection that needs it.
"""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "halcyon_site.settings")

from django.core.asgi import get_asgi_application

# Django must be set up before a consumer imports a model: hence the order.
http_application = get_asgi_application()

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.security.websocket import AllowedHostsOriginValidator  # noqa: E402

from fleet.live.routing import WithPulse, websocket_urlpatterns  # noqa: E402

application = WithPulse(
    ProtocolTypeRouter(
        {
            "http": http_application,
            "websocket": AllowedHostsOriginValidator(
                AuthMiddlewareStack(URLRouter(websocket_urlpatterns))
            ),
        }
    )
)
