"""Everything on one machine, in one terminal: what `manage.py up` runs.

    plan.py        which processes, with which command, port and readiness
    child.py       one process: its log, its restarts, its end
    leftovers.py   children that a killed `up` left behind
    seeding.py     migrations, the fleet file, users, tokens
    supervisor.py  the life of them all: start, watch, restart, stop
    traffic.py     the light load
    screen.py      what a terminal shows; plain lines elsewhere

It lives in the project, not in `fleet`, because it composes every part.
"""
