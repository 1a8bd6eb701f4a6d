"""`Heartbeats`: when each broker was heard of last, and how far it has read the metadata log.

    note      a heartbeat: the session begins or continues
    expired   a broker whose session has ended, one at a time

Not in the log: a controller that takes over knows nothing of it, and gives each broker that serves
a new session. Whether a broker is fenced is in the image.

Kafka's `BrokerHeartbeatManager` and `BrokerHeartbeatTracker`.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from tailrace.values import dataclass

NO_OFFSET: Final = -1


class BrokerEpoch(NamedTuple):
    """One registration of a broker."""

    broker_id: int
    epoch: int


@dataclass(slots=True)
class _Reader:
    """A registered broker, as a reader of the metadata log."""

    registered_at: int
    """Offset of its RegisterBrokerRecord: with that it has seen itself."""
    applied: int = NO_OFFSET
    """The last offset that it has applied, as its last heartbeat says."""
    shutdown_at: int = NO_OFFSET
    """Offset that the others must have applied before it may stop; -1: it does not shut down."""


class Heartbeats:
    """Sessions and read offsets of all registered brokers."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._heard_ms: dict[BrokerEpoch, int] = {}
        self._readers: dict[int, _Reader] = {}

    # -- sessions -----------------------------------------------------------------------------

    def note(self, broker_id: int, epoch: int, *, now_ms: int) -> None:
        """A heartbeat has come."""
        self._heard_ms[BrokerEpoch(broker_id, epoch)] = now_ms

    def has_session(self, broker_id: int, epoch: int, *, now_ms: int) -> bool:
        """Whether this registration was heard of in time."""
        heard_ms = self._heard_ms.get(BrokerEpoch(broker_id, epoch))
        return heard_ms is not None and not self._is_expired(heard_ms, now_ms)

    def take_expired(self, *, now_ms: int) -> BrokerEpoch | None:
        """Remove one session that has ended, and return whose it was."""
        for broker, heard_ms in self._heard_ms.items():
            if self._is_expired(heard_ms, now_ms):
                del self._heard_ms[broker]
                return broker
        return None

    def end_session(self, broker_id: int, epoch: int) -> None:
        """Forget when this registration was heard of."""
        self._heard_ms.pop(BrokerEpoch(broker_id, epoch), None)

    def prolong(self, by_ms: int) -> None:
        """Let all sessions end later."""
        for broker in self._heard_ms:
            self._heard_ms[broker] += by_ms

    def _is_expired(self, heard_ms: int, now_ms: int) -> bool:
        return heard_ms + self._session_timeout_ms < now_ms

    # -- offsets ------------------------------------------------------------------------------

    def register(self, broker_id: int, *, offset: int, is_fenced: bool) -> None:
        """A broker has registered in the record at `offset`; what it has read is not known."""
        known = self._readers.get(broker_id)
        self._readers[broker_id] = reader = _Reader(offset)
        # Only an amended registration is not fenced, and a shutdown that has begun lasts.
        if known is not None and not is_fenced:
            reader.shutdown_at = known.shutdown_at

    def forget(self, broker_id: int) -> None:
        """A broker is not registered any more."""
        self._readers.pop(broker_id, None)

    def registered_at(self, broker_id: int) -> int | None:
        """The offset of a broker's RegisterBrokerRecord; None: it is not registered."""
        reader = self._readers.get(broker_id)
        return None if reader is None else reader.registered_at

    def note_applied(self, broker_id: int, offset: int) -> None:
        """A heartbeat says that the broker has applied the log up to this offset."""
        self._readers[broker_id].applied = offset

    def changed(self, broker_id: int, *, is_fenced: bool) -> None:
        """The registration of a broker has changed."""
        reader = self._readers[broker_id]
        # Not known until its next heartbeat, as in Kafka: a broker that shuts down waits until this
        # one has seen the change too.
        reader.applied = NO_OFFSET
        if is_fenced:
            # Fenced, it may stop at once: the answer to its next heartbeat says so.
            reader.shutdown_at = NO_OFFSET

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        """The records that take leadership from a broker end at `offset`; the first call counts."""
        # A later heartbeat may bring more changes, and the broker would never be done waiting.
        reader = self._readers[broker_id]
        if reader.shutdown_at == NO_OFFSET:
            reader.shutdown_at = offset

    def is_shutting_down(self, broker_id: int) -> bool:
        """Whether a broker waits for its controlled shutdown."""
        reader = self._readers.get(broker_id)
        return reader is not None and reader.shutdown_at != NO_OFFSET

    def may_stop(self, broker_id: int, others: Iterable[int]) -> bool:
        """Whether all `others` know that the broker leads nothing any more."""
        applied = (self._readers[each].applied for each in others)
        return self._readers[broker_id].shutdown_at <= min(applied, default=1 << 63)
