"""A child of the supervisor: `python -m fleet.gateway`, told by its environment."""

import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "halcyon_site.settings")

from fleet.gateway.config import CHILD_VARIABLE
from fleet.gateway.main import run_child

if __name__ == "__main__":
    if CHILD_VARIABLE not in os.environ:
        sys.exit("started by the gateway's supervisor; to start a gateway: manage.py gateway")
    sys.exit(run_child())
