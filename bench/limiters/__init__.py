"""The limit policies that the admission benchmark prints beside the engine's own.

Each is written from its source to the engine's `Limit` port, so that the same gate, the same
arrivals and the same devices judge them all. None is offered by the engine.
"""
