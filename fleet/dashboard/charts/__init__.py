"""Figures as skeletons and data apart.

Building and serialising a Plotly figure costs some 30 ms; its numbers cost a tenth of one.
So each skeleton is built once per process, with a `meta` on every trace that names its
series, and pages carry skeleton and arrays side by side. Colours are CSS custom properties,
which the browser resolves: one skeleton serves the dark and the light theme.
"""
