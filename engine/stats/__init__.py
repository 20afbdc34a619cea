"""What the engine remembers of the past: averages, histograms, windows and fitted lines.

Everything here is fed `now_ms` and answers None where it has seen nothing: absent is not zero.
"""
