"""May this request come in? Quotas per tenant, an adaptive limit per model, graded priorities.

Order: the tenant's reservation (`Gate.reserve`), feasibility (the batching side), then the
adaptive limit (`Gate.admit`). A refusal at any step returns what the earlier ones took.
"""
