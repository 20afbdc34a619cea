"""How to reach the database without the ORM: for LISTEN, COPY and asynchronous writers.

The address comes from Django's live connection settings, not from DATABASE_URL, so that
under tests it names the test database.
"""

from psycopg.conninfo import make_conninfo

LIBPQ_OPTIONS = ("connect_timeout", "sslmode", "sslrootcert", "application_name")


def conninfo(alias: str = "default") -> str:
    """A libpq connection string for psycopg."""
    from django.db import connections

    given = connections[alias].settings_dict
    options = {
        name: value for name, value in given.get("OPTIONS", {}).items() if name in LIBPQ_OPTIONS
    }
    parts = {
        "dbname": given["NAME"],
        "user": given["USER"],
        "password": given["PASSWORD"],
        "host": given["HOST"],
        "port": given["PORT"],
    }
    return make_conninfo(**{k: str(v) for k, v in parts.items() if v}, **options)
