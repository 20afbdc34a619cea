"""What a load balancer asks the web process: is it alive, and can it do its job?

`/healthz` says that the process answers. `/readyz` asks the database, and 503 means that
pages and the control API would fail; inference goes on without either.
"""

from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse


def healthz(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "ok"})


def readyz(request: HttpRequest) -> JsonResponse:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return JsonResponse({"ready": False, "database": reason}, status=503)
    return JsonResponse({"ready": True, "database": "ok"})
