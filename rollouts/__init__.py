"""Policy and history: how a new version earns its traffic, and who did what, when and why.

A rollout is a policy that changes a model's traffic split, which is fleet state; the
gateways know nothing of it. The verdicts come from `engine.rollout` and nowhere else:
`evaluation` gathers the evidence, asks the judge, and writes the decision and the split it
changes in one transaction. `audit` chains every change of anything into one history.
"""
