#!/usr/bin/env python
"""The one door: `python manage.py COMMAND --help`."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "halcyon_site.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError:
        sys.exit(
            "Django is not installed in this Python. Run `make setup`, or use .venv/bin/python."
        )
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
