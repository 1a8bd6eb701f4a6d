"""What all tests share: how many inputs a fuzz target gets."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--fuzz-inputs`."""
    parser.addoption(
        "--fuzz-inputs", type=int, default=500, help="mutated inputs for each fuzz target"
    )
