"""From where a change comes: the caller's address, for whatever the request will change.

Behind a proxy it is the proxy's, unless the server in front of Django sets REMOTE_ADDR from
a header that it trusts: an address that callers can write themselves is no evidence.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from rollouts.audit import origin


@sync_and_async_middleware
def note_origin(
    get_response: Callable[[HttpRequest], Any],
) -> Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]:
    if iscoroutinefunction(get_response):

        async def asynchronous(request: HttpRequest) -> HttpResponseBase:
            with origin(str(request.META.get("REMOTE_ADDR") or "")):
                response: HttpResponseBase = await get_response(request)
            return response

        return asynchronous

    def synchronous(request: HttpRequest) -> HttpResponseBase:
        with origin(str(request.META.get("REMOTE_ADDR") or "")):
            response: HttpResponseBase = get_response(request)
        return response

    return synchronous
