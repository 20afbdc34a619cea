"""The scheduler's inner rooms, in the order a request walks them.

`configure` lays the rooms out from a snapshot; `admit` lets a request in or refuses it;
`pool` queues it beside others for the same version; `dispatch` sends batches, fires hedges
and enforces deadlines; `settle` turns the end of an attempt into answers or retries;
`describe` tells what happened. `state` is what they share. `engine.scheduler` is the door.
"""
