"""The replica: a process that serves one model version through a runtime.

    __main__.py      the command: `python -m fleet.replica --model llama-3-8b --version v1`
    options.py       every option and environment variable, checked at start
    server.py        one life: bind, load, register, serve, drain, exit
    app.py           HTTP: /execute /health /metrics /controller /simulate, and /predict alone
    wire.py          what goes over the wire, MessagePack or JSON
    workplace.py     the asyncio driver of `engine.regulation.station`
    regulator.py     the two-second loop: sensors -> decision -> limits
    monitoring.py    snapshots, history, Prometheus text
    registration.py  the upsert that is also the heartbeat
    faults.py        failure injection, only when enabled
    runtimes/        what computes; one file each

No Django here: the process starts in a few hundred milliseconds and needs no database.
"""
