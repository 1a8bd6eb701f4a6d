"""`Audit`: who has changed what, and who was refused, on the logger `tailrace.audit`.

    topic_deleted principal=User:alice host=10.0.0.7 client_id=cli listener=CLIENTS
        api=DeleteTopics topic=orders topic_id=...

Each event has the same fields first: the principal and the host of the client, its client id, the
listener, and the API. Where a broker has forwarded the request of a client, these are the client's,
and `forwarded_by` has the broker's client id and address.

Invariant: a change that was made has a line, or is counted by that of an equal one in the same ten
seconds. Denied accesses are what clients choose, so of those that differ some are counted together.

Not here: what is said of each API (`handlers.audit`), logins (`authenticator`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Final, TypeVar

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.frames import RequestHeader
from tailrace.runtime.limited_lines import LimitedLines

T = TypeVar("T")

AUDIT: Final = logging.getLogger("tailrace.audit")

ACCESSES_MAX: Final = 100
"""Most accesses that differ and have a line of their own in ten seconds."""

_UNLIMITED: Final = 2**31 - 1


class Audit:
    """The events of one node, on its event loop."""

    def __init__(self) -> None:
        # Each was made by a client with rights, and most are on the device: nothing may be missing.
        self._changes = LimitedLines(counts_max=_UNLIMITED)
        self._accesses = LimitedLines(counts_max=ACCESSES_MAX)
        self._requests: set[asyncio.Future[Any]] = set()

    def changed(self, header: RequestHeader, event: str, fields: Mapping[str, Hashable]) -> None:
        """Log a change that the request has made."""
        _log(self._changes, header, event, fields=fields, level=logging.INFO)

    def accessed(
        self, header: RequestHeader, event: str, fields: Mapping[str, Hashable], *, level: int
    ) -> None:
        """Log an access that was allowed or denied."""
        _log(self._accesses, header, event, fields=fields, level=level)

    async def whole(self, answer: Awaitable[T], note: Callable[[T], None]) -> T:
        """The answer, which `note` gets too, also if the client does not wait for it.

        The request of a client that disconnects is carried out to its end, as in Kafka: else some
        of its topics would be deleted, and nobody would know by whom.
        """
        request = asyncio.ensure_future(answer)
        self._requests.add(request)

        def done(_: object) -> None:
            self._requests.discard(request)
            if not request.cancelled() and request.exception() is None:
                note(request.result())

        request.add_done_callback(done)
        return await asyncio.shield(request)

    def close(self) -> None:
        """Cancel the requests that are under way, and log the counts that are due later."""
        for each in self._requests:
            each.cancel()
        self._changes.close()
        self._accesses.close()


def _log(
    lines: LimitedLines,
    header: RequestHeader,
    event: str,
    *,
    fields: Mapping[str, Hashable],
    level: int,
) -> None:
    caller = header.caller
    found: dict[str, Hashable] = {
        "principal": str(caller.principal),
        "host": caller.host,
        "client_id": header.client_id,
        "listener": caller.listener,
        "api": ApiKey(header.api_key).title,
    }
    if caller.forwarder:
        found["forwarded_by"] = caller.forwarder
    found |= fields
    names = " ".join(f"{name}=%s" for name in found)
    lines.log_equal(AUDIT, level, f"{event} {names}", *found.values())
