"""Extras: packages that are looked for before something is begun."""

import pytest

from tailrace.errors import MissingExtraError
from tailrace.runtime.extras import check_extra


@pytest.mark.parametrize("name", ["no_such_package", "no_such_package.module", "email.no_such"])
def test_what_is_not_there_is_named_with_its_extra(name: str) -> None:
    """Also where the package is missing that a module would be in."""
    with pytest.raises(MissingExtraError, match=rf"{name}.*tailrace\[protobuf\]"):
        check_extra("protobuf", "a test", packages=[name])
