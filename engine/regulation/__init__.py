"""How a replica keeps its own promise: its latency under its objective, on the hardware it has.

semaphore.py   how many batches run at once, resizable with work in flight
fair_queue.py  who goes next: weighted fair queueing over priorities, bounded queues
forecast.py    how long a request that enters now will take
meters.py      what is measured, over time, and since the last move
gate.py        admission control of the lower classes, with a trickle that ends it
controller.py  the four rules that move the limits, every two seconds
station.py     all of these as one object: the live replica and the simulator drive it
"""
