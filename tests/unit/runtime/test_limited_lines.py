"""Log lines that clients can cause: the first ones, and counts of the others."""

import logging

import pytest

from tailrace.runtime.limited_lines import COUNTS_MAX, WINDOW_S, LimitedLines
from tailrace.testing import Outside

logger = logging.getLogger("tailrace.test")


async def test_a_flood_of_many_addresses_has_a_bounded_number_of_lines(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """A thousand have a line and a count each, and all others have one together."""
    caplog.set_level("INFO", "tailrace.test")
    lines = LimitedLines()
    for number in range(3 * COUNTS_MAX):
        peer = f"10.0.{number // 256}.{number % 256}:{number}"
        for _ in range(2):
            lines.log(logger, logging.INFO, "refused peer=%s", peer=peer)
    assert len(caplog.messages) == COUNTS_MAX + 1
    caplog.clear()
    await outside.pass_time(WINDOW_S)
    assert len(caplog.messages) == COUNTS_MAX + 1
    assert "repeated name=refused address=10.0.0.7 count=2 seconds=10" in caplog.messages
    others = f"repeated name=refused address=others count={4 * COUNTS_MAX} seconds=10"
    assert others in caplog.messages


async def test_events_of_an_address_are_counted_apart_and_again_in_each_window(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """Another event has a line of its own, and so has the same one ten seconds later."""
    caplog.set_level("INFO", "tailrace.test")
    lines = LimitedLines()
    for message in ("refused peer=%s", "idle peer=%s", "refused peer=%s"):
        lines.log(logger, logging.INFO, message, peer="a:1")
    await outside.pass_time(WINDOW_S)
    lines.log(logger, logging.INFO, "refused peer=%s", peer="a:2")
    lines.log(logger, logging.INFO, "refused peer=%s", peer="a:3")
    lines.close()
    assert caplog.messages == [
        "refused peer=a:1",
        "idle peer=a:1",
        "repeated name=refused address=a count=2 seconds=10",
        "refused peer=a:2",
        "repeated name=refused address=a count=2 seconds=10",
    ]
