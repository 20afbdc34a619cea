#!/usr/bin/env python
"""The one door: `python manage.py COMMAND --help`."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "halcyon_site.settings")
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
        from django.db import OperationalError
    except ImportError:
        sys.exit(
            "Django is not installed in this Python. Run `make setup`, or use .venv/bin/python."
        )
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(f"settings: {error}")
    except OperationalError as error:
        if "--traceback" in sys.argv:
            raise
        reason = str(error).strip().splitlines()[0]
        sys.exit(
            f"the database does not answer ({reason}).\n"
            "Start everything with `manage.py up`, or name a server with DATABASE_URL."
        )


if __name__ == "__main__":
    main()
