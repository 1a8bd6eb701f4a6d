"""`SlowRequests`: a line for a request that took longer than `tailrace.slow.request.ms`.

    received ─ queue ─► handler ─ local ─► it waits ─ remote ─► answer ─ send ─► the kernel has it

The stages are those of Kafka's `RequestMetrics`, but there are no queues between threads: `queue`
is the time for which a request waits for memory, or for others of its connection. `remote` is all
after the first step of a handler: followers, records, a coordinator, the device. `throttle` comes
after the answer (KIP-219), and is in no total.

A Fetch that waits for records, and a member that waits for the others of its group, are not slow:
that time is not in the total either.

A request that is answered at once is not measured by itself, since a clock costs as much as a part
of it: its connection reads one for the slice of the loop, and looks here if that was long.
"""

import logging
from math import inf
from struct import Struct
from struct import error as struct_error
from typing import Final

from tailrace.protocol.apis import APIS, BETWEEN_NODES, ApiKey
from tailrace.protocol.errors import MalformedMessageError
from tailrace.protocol.frames import Caller, read_request_header
from tailrace.runtime.limited_lines import LimitedLines

logger = logging.getLogger(__name__)

HEAD_BYTES: Final = 512
"""Bytes of a request that are kept while it waits: its header, and how long a Fetch may wait."""

_START: Final = Struct(">hhi")
_WAIT_MS: Final = Struct(">i")
_REPLICA_ID_UNTIL: Final = 14
"""The last version of Fetch that has four bytes in front of the time (KIP-903)."""
_FOR_MEMBERS: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})


class WaitingRequest:
    """A request whose answer is not with its client yet; times are of the loop's clock."""

    __slots__ = ("answered_at", "begun_at", "head", "local_s", "since", "throttle_ms")

    def __init__(self, head: bytes, *, begun_at: float, since: float, local_s: float) -> None:
        """`head` are its first bytes, without the size; empty: it is part of a login.

        It was received at `begun_at`, and has waited for something since `since`.
        """
        self.head = head
        self.begun_at = begun_at
        self.since = self.answered_at = since
        self.local_s = local_s
        self.throttle_ms = 0


class SlowRequests:
    """The lines of one server."""

    def __init__(self, limit_ms: int, lines: LimitedLines) -> None:
        """`limit_ms` below 0: no request is slow."""
        self.limit_s = inf if limit_ms < 0 else limit_ms / 1000
        self._lines = lines

    def look_at(self, request: WaitingRequest, caller: Caller, *, send_s: float = 0.0) -> None:
        """Log a request that was answered, if it was slow; `send_s` is the time of its send."""
        total_s = request.answered_at - request.begun_at + send_s
        if total_s <= self.limit_s or len(request.head) < _START.size:
            return
        key, version, correlation_id = _START.unpack_from(request.head)
        api = APIS.get(key) or BETWEEN_NODES.get(key)
        remote_s = request.answered_at - request.since
        client_id, wait_s = read_head(request.head)
        total_s -= min(remote_s, wait_s)
        # Another key is that of a login without requests.
        if total_s <= self.limit_s or api is None:
            return
        queue_s = request.since - request.begun_at - request.local_s
        self._lines.log(
            logger, logging.WARNING,
            "slow_request peer=%s api=%s version=%d client_id=%s principal=%s listener=%s "
            "correlation_id=%d total_ms=%d queue_ms=%d local_ms=%d remote_ms=%d send_ms=%d "
            "throttle_ms=%d",
            api.key.title, version, client_id, caller.principal, caller.listener, correlation_id,
            *(1000 * max(each, 0.0) for each in
              (total_s, queue_s, request.local_s, remote_s, send_s)),
            request.throttle_ms, peer=caller.peer, api=api.key.title,
        )  # fmt: skip


def read_head(head: bytes) -> tuple[str | None, float]:
    """The client id of a request, and the seconds for which it may wait on purpose.

    `head` has at least eight bytes. What is not a request, or longer than what was kept, has no id.
    """
    key, version, _ = _START.unpack_from(head)
    may_wait = key == ApiKey.FETCH or key in _FOR_MEMBERS
    try:
        header, position = read_request_header(memoryview(head))
        if key != ApiKey.FETCH:
            return header.client_id, inf if may_wait else 0.0
        position += 4 if version <= _REPLICA_ID_UNTIL else 0
        [wait_ms] = _WAIT_MS.unpack_from(head, position)
    except (MalformedMessageError, struct_error):
        return None, inf if may_wait else 0.0
    return header.client_id, max(wait_ms, 0) / 1000
