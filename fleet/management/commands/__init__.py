"""`manage.py COMMAND --help`."""
