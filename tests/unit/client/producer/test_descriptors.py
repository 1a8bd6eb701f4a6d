"""A producer that could not be made, or reached nobody, gives back every descriptor."""

import os
from pathlib import Path
from typing import Any

import pytest

from tailrace.client.producer.errors import MetadataTimeoutError
from tailrace.client.producer.producer import Producer
from tailrace.errors import ConfigError

TIMES = 10
NOWHERE = "127.0.0.1:1"
"""Address on which nobody listens."""

WRONG: dict[str, dict[str, Any]] = {
    "an unknown setting": {"nonsense": 1},
    "a value out of range": {"linger_ms": -1},
    "an authority that is none": {"security_protocol": "SSL", "ssl_truststore_location": __file__},
    "a certificate that is not there": {
        "security_protocol": "SSL",
        "ssl_keystore_location": "/nowhere",
    },
    "a user that cannot travel": {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_username": "\ud800",
        "sasl_password": "p",
    },
    "interceptors that are none": {"interceptors": 5},
    "hooks that are none": {"hooks": 5},
}


def opened() -> int:
    """Count the descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("case", WRONG)
def test_a_producer_that_cannot_be_made_leaves_no_descriptor(case: str) -> None:
    """After ten failures as many are open as before."""
    before = opened()
    for _ in range(TIMES):
        with pytest.raises((ConfigError, TypeError)):
            Producer(bootstrap_servers=NOWHERE, **WRONG[case])
    assert opened() <= before


def test_a_producer_that_reaches_no_broker_leaves_no_descriptor() -> None:
    """Ten producers that were refused and closed leave no file descriptor open."""
    before = opened()
    for _ in range(TIMES):
        with Producer(bootstrap_servers=NOWHERE, max_block_ms=5) as producer:
            error = producer.send("t", b"v").exception()
            assert isinstance(error, MetadataTimeoutError)
    assert opened() <= before


@pytest.mark.parametrize("spare", [1, 2])
def test_a_producer_without_a_descriptor_to_spare_says_so_and_keeps_none(spare: int) -> None:
    """With fewer descriptors left than the three that it needs, it gives back those it got."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    first = os.open("/dev/null", os.O_RDONLY)
    os.close(first)
    before = opened()
    for _ in range(TIMES):
        resource.setrlimit(resource.RLIMIT_NOFILE, (first + spare, limits[1]))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                Producer(bootstrap_servers=NOWHERE)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert opened() <= before
