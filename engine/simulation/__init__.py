"""Virtual time: workloads, devices and whole fleets, driving the same `Scheduler`."""
