"""The project's own settings, on servers of the test run's own.

Where DATABASE_URL or VALKEY_URL are unset, the run gets a private directory: the embedded
servers start there with the first test that needs them (tests/conftest.py) and stop with
the run. It is set here, before the project's settings are read, so that every child process
of a test finds the same servers through HALCYON_VAR. Workers of pytest-xdist inherit it.
"""

import os
import tempfile

if "HALCYON_TEST_VAR" not in os.environ:
    os.environ["HALCYON_TEST_VAR"] = tempfile.mkdtemp(prefix="halcyon-test-")
    os.environ["HALCYON_TEST_OWNER"] = str(os.getpid())
os.environ["HALCYON_VAR"] = os.environ["HALCYON_TEST_VAR"]
os.environ.setdefault("HALCYON_SECRET_KEY", "only-for-tests")
os.environ.setdefault("HALCYON_LOG_LEVEL", "WARNING")

from halcyon_site.settings import *  # noqa: F403
from halcyon_site.settings import ALLOWED_HOSTS

ALLOWED_HOSTS += ["testserver"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# Tests of more than one connection empty their database by TRUNCATE, which history forbids.
_options: dict[str, object] = DATABASES["default"]["OPTIONS"]  # noqa: F405  # type: ignore[assignment]
_options["options"] = "-c halcyon.may_truncate=on"
