"""Which replica runs it: who may (`eligibility`), who is best (`p2c`), what is learned after.

replica_state   one replica: its counters, its breaker, its latency; hands out leases
roster          who is free, kept current so that choosing costs O(1) in the fleet's size
router          the choice itself, by strategy, as a decision with its numbers
hedge, budget   a second try for what is late, and how many of those there may be
"""
