"""The OpenAPI document is true: whatever fits it is answered as it says, and never with a 500."""

from collections.abc import Iterator

import pytest
import schemathesis
from django.contrib.auth.models import User
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fleet import services
from fleet.models import AccessToken


@pytest.fixture
def one_connection(db: None) -> Iterator[None]:
    """Keep the test's connection open from request to request, as Django's test client does."""
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    yield
    for signal in signals:
        signal.connect(close_old_connections)


@pytest.fixture
def token(one_connection: None) -> str:
    user = User.objects.create_superuser("root", password="correct horse")
    services.create_tenant("acme", actor="test")
    return services.issue_token("schemathesis", user=user, actor="test").secret


schema = schemathesis.openapi.from_dict(
    SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
)
schema.app = get_wsgi_application()


@schema.parametrize()
@settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_what_fits_the_document_is_answered_as_the_document_says(
    case: schemathesis.Case, token: str
) -> None:
    AccessToken.objects.update(revoked_at=None)  # an example may have revoked its own
    case.call_and_validate(
        headers={"Authorization": f"Bearer {token}"},
        checks=[
            not_a_server_error,
            status_code_conformance,
            content_type_conformance,
            response_schema_conformance,
        ],
    )
