"""What the gateway answers: one module an endpoint, each a `begin(call)` for the table."""
