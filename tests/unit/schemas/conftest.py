"""A registry for each test of this folder that asks for one."""

from collections.abc import Iterator

import pytest

from tailrace.schemas import SchemaRegistry
from tailrace.testing.registry import TestRegistry


@pytest.fixture
def double() -> Iterator[TestRegistry]:
    """An empty registry."""
    with TestRegistry() as found:
        yield found


@pytest.fixture
def registry(double: TestRegistry) -> Iterator[SchemaRegistry]:
    """A client of it."""
    with SchemaRegistry(schema_registry_url=double.url, max_retries=0) as client:
        yield client
