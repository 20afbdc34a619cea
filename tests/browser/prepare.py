"""Fill a scratch database with the fixed past: run as a script, so that no ORM call is made in
the test process, where Playwright's event loop runs.

`prepare.py people` makes the people alone; `prepare.py everything [ISO time]` all of it.
"""

import os
import random
import secrets
import sys
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "halcyon_site.settings")

import django

django.setup()

from django.utils import timezone  # noqa: E402

from fleet.models import Replica  # noqa: E402
from tests.browser import past  # noqa: E402


def main(what: str, at: str = "") -> None:
    if at:
        moment = datetime.fromisoformat(at)
        timezone.now = lambda: moment
        chance = random.Random(1)  # keys, salts and so digests: the same in every picture
        secrets.token_bytes = lambda n=None: chance.randbytes(n or 32)
        secrets.choice = chance.choice
        secrets.randbelow = chance.randrange
    past.people()
    if what != "everything":
        return
    now = timezone.now()
    past.configuration()
    Replica.objects.update(heartbeat_at=None)  # written down by hand: nobody awaits a heartbeat
    past.windows(now)
    past.usage(now)
    past.processes(now)
    past.rollout(now)


if __name__ == "__main__":
    main(*sys.argv[1:])
