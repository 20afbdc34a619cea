"""The live feed: gateways speak once a second, web processes listen, browsers see it move.

    gateway -> publisher -> channel layer -> listener -> store -> merge -> topics -> browser

`publisher` runs in the gateway, everything after the channel layer in a web process.
The browser gets numbered `deltas`. `merge`, `topics` and `deltas` are pure.
"""
