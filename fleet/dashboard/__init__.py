"""The operators' dashboard: server-rendered pages that a websocket keeps true.

    panels/   what a page says, as plain data: pure functions of the live scene
    pages/    the views: one first paint each, complete without JavaScript
    charts/   figure skeletons, built once, and the arrays that fill them
    history   windows from PostgreSQL, downsampled there

A panel's text is formatted once, here in Python. The first paint and every later message
carry the same strings, so the page cannot disagree with itself.
"""
