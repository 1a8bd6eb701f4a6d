"""Certificates of tests: an authority, and what it signs."""

from datetime import UTC, datetime, timedelta
from functools import cache

from tailrace.testing.certificates import Party, name_of

__all__ = ["DAY", "NOW", "Party", "authority", "name_of", "party", "renewed"]

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
HOSTS = ("memory", "localhost", "127.0.0.1")


@cache
def authority(name: str = "Authority") -> Party:
    """One that signs the others; the same for the whole run."""
    return Party(name_of(name))


@cache
def party(name: str, *units: str) -> Party:
    """One that the authority has signed."""
    return renewed(name, *units)


def renewed(name: str, *units: str) -> Party:
    """Another one at each call, for the same hosts."""
    return Party(name_of(name, *units), signed_by=authority(), hosts=HOSTS)
