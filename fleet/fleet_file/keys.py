"""The keys of a fleet file's tenants: derived from the installation, so never stored."""

from fleet.secret import API_KEY, Secret, derived_secret


def demo_key(tenant: str, key: str) -> Secret:
    """Always the same one on one installation, another on the next."""
    return derived_secret(API_KEY, f"{tenant}/{key}")
