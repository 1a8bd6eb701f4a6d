"""Compiled kernels, once per session."""

import pytest

from tailrace import kernels


@pytest.fixture(scope="session", autouse=True)
def compiled_kernels() -> None:
    """Loads Numba; plain code stays at hand as `Kernel.run_plain`."""
    kernels.load()
