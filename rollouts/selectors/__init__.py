"""Every read of rollouts and history that more than one door needs.

`rollouts` says where each is and why, `page` all that one rollout's page shows, `explain`
what a policy means beforehand and what would change a verdict afterwards, `history` the
audit, `live` what the dashboard's feed and charts ask once a second.
"""

from rollouts.selectors.explain import Change, Preview, preview, what_would_change
from rollouts.selectors.history import audit_events
from rollouts.selectors.live import markers, summaries
from rollouts.selectors.page import RolloutPage, rollout_page
from rollouts.selectors.status import (
    Status,
    active_rollouts,
    recent_rollouts,
    status_of,
    stored_decision,
)

__all__ = [
    "Change",
    "Preview",
    "RolloutPage",
    "Status",
    "active_rollouts",
    "audit_events",
    "markers",
    "preview",
    "recent_rollouts",
    "rollout_page",
    "status_of",
    "stored_decision",
    "summaries",
    "what_would_change",
]
