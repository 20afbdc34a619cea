"""Every write of a rollout: start, what operators do, and what the judge's verdict does.

Each is one transaction: the rollout, the split it changes and the audit go together or not
at all. Impossible moves raise `Conflict` with the state; bad values `InvalidInput` with the
field. Repeating what already happened changes nothing and is no error.
"""

from rollouts.services.apply import apply_verdict, supersede
from rollouts.services.operate import abort, pause, promote, resume
from rollouts.services.start import start

__all__ = ["abort", "apply_verdict", "pause", "promote", "resume", "start", "supersede"]
