"""Which version serves a request, and whether the new one has earned more traffic.

`splitter` decides per request; `evidence` counts what came of it; everything else judges
the counts, window by window, and is composed by `controller.judge`.
"""
