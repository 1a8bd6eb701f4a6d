"""A realm for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kerberos.realm import Realm


@pytest.fixture
def realm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Realm]:
    """A KDC that serves, and an environment that leads to it."""
    found = Realm(tmp_path)
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    try:
        found.start()
        yield found
    finally:
        found.stop()
