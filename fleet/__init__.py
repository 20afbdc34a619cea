"""What exists (models, versions, replicas, tenants) and how requests reach it."""
