"""Four rollouts on the running fleet, whose right ends are known beforehand.

`stage` brings a model of its own, with replicas, a tenant and traffic, and takes everything
away again; `traffic` sends the requests; `scenes` are the four; `manage.py verify_rollout`
plays them.
"""
