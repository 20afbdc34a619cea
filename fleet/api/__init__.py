"""The control API: what operators and replicas say to the control plane, under `/v1`."""
