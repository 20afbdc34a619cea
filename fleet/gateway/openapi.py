"""The data plane's contract as OpenAPI 3.1, made from the very types that decode requests."""

from typing import Any

import msgspec

from fleet.gateway.errors import ErrorEnvelope
from fleet.gateway.openai.document import BODIES, paths
from fleet.gateway.openapi_parts import (
    IDEMPOTENCY_KEY,
    ONLY_SOME,
    REF,
    VERSION,
    anything,
    in_path,
    operation,
    unguarded,
)
from fleet.gateway.schema import InferRequest, InferResponse, QuoteRequest


def document() -> dict[str, Any]:
    """The whole document."""
    types = (InferRequest, InferResponse, QuoteRequest, ErrorEnvelope, *BODIES)
    refs, components = msgspec.json.schema_components(types, ref_template=REF)
    infer, answer, quote, _, *openai_bodies = refs
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Halcyon data plane",
            "version": "1",
            "description": "Inference within a deadline, or a refusal that says when to come back.",
        },
        "components": {
            "schemas": components,
            "securitySchemes": {
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{"apiKey": []}, {"bearer": []}],
        "paths": {
            "/v1/infer": {
                "post": operation(
                    "infer",
                    "Run a model within a deadline.",
                    body=infer,
                    answer=answer,
                    parameters=[IDEMPOTENCY_KEY, VERSION],
                    also=ONLY_SOME,
                )
            },
            "/v1/quote": {
                "post": operation(
                    "quote", "Would this be served in time now?", body=quote, answer=anything()
                )
            },
            **paths(*openai_bodies),
            "/v1/requests/{id}/explain": {
                "get": operation(
                    "explain",
                    "Every decision made about a recent request.",
                    answer=anything(),
                    parameters=[in_path("id")],
                )
            },
            "/healthz": {"get": unguarded("healthz", "Alive.", {200})},
            "/readyz": {"get": unguarded("readyz", "Ready for work.", {200, 503})},
        },
    }
