"""The control API of rollouts and of the audit, under `/v1/control`."""
