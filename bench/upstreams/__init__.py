"""Servers that stand behind the gateway in benchmarks and tests: real sockets, scripted faults."""
