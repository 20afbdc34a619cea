"""The data plane's I/O shell around the engine: sockets in, sockets out, no decisions.

    client -> wire / app -> endpoints -> driver -> Scheduler (engine) -> transports -> replica

`gateway` assembles one process; `main` and `supervisor` start several on one port.
Configuration comes from Postgres through `loader` and `listener` as an immutable snapshot,
evidence and usage go back through `recorder`. Nothing on the request path touches either.
"""
