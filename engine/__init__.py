"""The scheduling engine: pure Python, no I/O, no clock and no randomness of its own.

It answers four questions about each request and returns the answers as data:
may it come in (`admission`), which version serves it (`rollout`), which batch does it
ride in and when does that batch leave (`batching`), which replica runs it (`routing`).
`scheduler` composes them. The gateway and the simulator are two interpreters of the
same decisions.
"""
