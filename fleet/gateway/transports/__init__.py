"""How a dispatch reaches a replica: one module per protocol, chosen by `ReplicaSpec.protocol`."""
