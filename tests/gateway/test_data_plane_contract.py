"""The data plane answers as its own OpenAPI document says, whatever is thrown at it."""

import asyncio
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.gateway.conftest import Stack
from tests.gateway.gateway_process import GatewayProcess

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


def explore(gateway: GatewayProcess, document: dict[str, Any]) -> int:
    """Run schemathesis over every operation. Returns how many calls it made."""
    calls = 0

    def examine(case: schemathesis.Case) -> None:
        nonlocal calls
        calls += 1
        response = case.call(base_url=gateway.url, headers={"x-api-key": gateway.key})
        case.validate_response(response, checks=CHECKS)

    for found in schemathesis.openapi.from_dict(document).get_all_operations():
        bounded = settings(
            max_examples=20,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        bounded(given(case=found.ok().as_strategy())(examine))()
    return calls


async def test_the_data_plane_keeps_its_contract(stack: Stack) -> None:
    stack.rows.model()
    await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant())
    document = (await gateway.get("/openapi.json")).json
    assert await asyncio.to_thread(explore, gateway, document) > 50
    assert (await gateway.infer()).status == 200
    headers = {"x-api-key": gateway.key, "idempotency-key": "one"}
    for text, status in (("a", 200), ("b", 409)):
        body = {"model": "m", "input": text}
        answer = await gateway.request("POST", "/v1/infer", json=body, headers=headers)
        assert answer.status == status
        assert str(status) in document["paths"]["/v1/infer"]["post"]["responses"]
    page = (await gateway.get("/metrics")).body.decode()
    assert 'code="500"' not in page
