"""Who uses the site in tests: one person a role, each signed in from the beginning."""

PASSWORD_FOR_TESTS = "a-password-for-tests"
PEOPLE = {"vera": "Viewer", "otto": "Operator", "ada": "Admin"}


def session_key(name: str) -> str:
    """The key of the session in which a person is signed in."""
    return f"{name}-is-signed-in-for-tests"
