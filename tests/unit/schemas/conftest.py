"""A registry for each test of this folder that asks for one."""

from collections.abc import Iterator

import pytest

from tailrace.schemas import SchemaRegistry
from tests.unit.schemas.double import RegistryDouble, serving


@pytest.fixture
def double() -> Iterator[RegistryDouble]:
    """An empty registry."""
    with serving() as found:
        yield found


@pytest.fixture
def registry(double: RegistryDouble) -> Iterator[SchemaRegistry]:
    """A client of it."""
    with SchemaRegistry(schema_registry_url=double.url, max_retries=0) as client:
        yield client
