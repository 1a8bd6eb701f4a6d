"""Errors of a consumer, by what the caller should do.

    RetriableError    the same call may succeed later; positions are as they were
    FatalError        a setting, an offset or the caller's code must change
    CorruptionError   records are damaged: seek past them, or read another replica

Every message says which partition or topic, and which call or setting changes it.

An error of a connection is raised as the class of that name with `Consumer` before it, so that both
`except ConsumerError` and `except DisconnectedError` (of `tailrace.client.nodes`) catch it.
"""

from collections.abc import Callable, Collection

from tailrace.client.errors import (
    AuthenticationError,
    DisconnectedError,
    MalformedAnswerError,
    RequestTimedOutError,
    UnsupportedVersionError,
    error_words,
)
from tailrace.errors import CorruptionError, FatalError, RetriableError, TailraceError
from tailrace.model import TopicPartition


class ConsumerError(TailraceError):
    """Base of a consumer's errors; each is also one of the three kinds above."""


# Where a builtin exception fits, it is a base, too, so programs need not import ours.
class ConsumerTimeoutError(ConsumerError, RetriableError, TimeoutError):
    """A call did not end within its timeout (`default.api.timeout.ms` if none was given)."""


class ClosedConsumerError(ConsumerError, FatalError):
    """The consumer was closed, or this process is a fork of the one that created it."""


class WakeupError(ConsumerError, FatalError):
    """`wakeup` was called: the program wants to do something else than to read."""

    def __init__(self) -> None:
        super().__init__("the reading call was ended by wakeup()")


class ConcurrentCallError(ConsumerError, FatalError, RuntimeError):
    """Two calls that return records, or wait, were made at the same time.

    One thread or task reads; any other may call `close`, `pause`, `metrics` and the rest.
    """


class SubscriptionError(ConsumerError, FatalError, ValueError):
    """The call does not fit the subscription: nothing is assigned, or topics and partitions mix."""


class NoOffsetForPartitionError(ConsumerError, FatalError, LookupError):
    """Partitions have no committed offset, and `auto.offset.reset` is `none`."""

    def __init__(self, partitions: frozenset[TopicPartition]) -> None:
        self.partitions = partitions
        super().__init__(
            f"{_named(partitions)}: there is no committed offset to begin at, and "
            "auto.offset.reset is none; call seek, or set auto.offset.reset to earliest or latest"
        )


class PositionOutOfRangeError(ConsumerError, FatalError, LookupError):
    """The position of a partition is not in its log, and `auto.offset.reset` is `none`."""

    def __init__(self, offsets: dict[TopicPartition, int]) -> None:
        self.offsets = offsets
        """The position of each partition."""
        places = ", ".join(f"offset {offset} of {each}" for each, offset in offsets.items())
        super().__init__(
            f"the log does not have {places}: it was deleted, or was never there, and "
            "auto.offset.reset is none; seek to an offset that the log has"
        )


class LogTruncationError(ConsumerError, FatalError, LookupError):
    """A log was cut below the position: records that were read are not there any more."""

    def __init__(
        self,
        offsets: dict[TopicPartition, int],
        divergent: dict[TopicPartition, tuple[int, int] | None],
    ) -> None:
        self.offsets = offsets
        """The position of each partition."""
        self.divergent = divergent
        """By partition: the first offset that differs, and its leader epoch; None: not known."""
        found = []
        for each, offset in offsets.items():
            place = divergent.get(each)
            differs = "" if place is None else f", the log differs from offset {place[0]} on"
            found.append(f"{each} (position {offset}{differs})")
        places = ", ".join(found)
        super().__init__(
            f"the log was truncated below the position, after an unclean election of a leader: "
            f"{places}; seek to the offset from which it differs, and undo what was done for the "
            "records after it"
        )


class TopicAuthorizationError(ConsumerError, FatalError, PermissionError):
    """The user may not read these topics."""

    def __init__(self, topics: Collection[str], *, during: str = "records") -> None:
        self.topics = frozenset(topics)
        """Their names."""
        super().__init__(
            f"{during}: no right to read topic {', '.join(sorted(topics))} "
            "(TOPIC_AUTHORIZATION_FAILED); have Read and Describe granted to the user"
        )


class InvalidTopicNameError(ConsumerError, FatalError, ValueError):
    """A topic's name is not one that Kafka allows."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        super().__init__(
            f"topic {', '.join(map(repr, sorted(topics)))} (INVALID_TOPIC_EXCEPTION): a name has "
            "1 to 249 letters, digits, dots, hyphens or underscores"
        )


class UnknownTopicError(ConsumerError, RetriableError, LookupError):
    """The topic or the partition does not exist."""


class BrokerRefusedError(ConsumerError, FatalError):
    """The broker answered with a permanent error; `code` says which."""

    def __init__(self, message: str, *, code: int = -1) -> None:
        self.code = code
        """The number on the wire."""
        super().__init__(message)


class DamagedRecordsError(ConsumerError, CorruptionError):
    """Fetched records break a rule of the format; the position is at the damaged batch."""

    def __init__(
        self,
        rule: str,
        *,
        path: str | None = None,
        position: int | None = None,
        offset: int | None = None,
        partition: TopicPartition | None = None,
        next_offset: int | None = None,
    ) -> None:
        self.partition = partition
        """The partition that has them."""
        self.next_offset = next_offset
        """The offset to seek to, to read on after the damage; None if that is not known."""
        super().__init__(rule, path=path, position=position, offset=offset)

    def __str__(self) -> str:
        # A position after the damage is a decision of the program: records are lost by it.
        advice = "" if self.next_offset is None else f"; seek to {self.next_offset} to skip it"
        return super().__str__() + advice


class RecordDeserializationError(ConsumerError, FatalError, ValueError):
    """A deserializer failed on a record; the position is at that record. The cause is chained."""

    def __init__(self, partition: TopicPartition, offset: int, *, part: str, reason: str) -> None:
        self.partition = partition
        self.offset = offset
        """The record's offset."""
        self.part = part
        """`key` or `value`."""
        super().__init__(
            f"{partition}, offset {offset}: {part}_deserializer failed: {reason}; seek to "
            f"{offset + 1} to skip the record"
        )


class ConsumerAuthenticationError(ConsumerError, AuthenticationError):
    """The login failed, or no broker's identity could be checked: SASL or TLS."""


class ConsumerDisconnectedError(ConsumerError, DisconnectedError):
    """The connection ended before the answer."""


class ConsumerRequestTimedOutError(ConsumerDisconnectedError, RequestTimedOutError):
    """No answer came within `request.timeout.ms`."""


class ConsumerMalformedAnswerError(ConsumerDisconnectedError, MalformedAnswerError):
    """The answer does not fit the request."""


class ConsumerUnsupportedVersionError(ConsumerError, UnsupportedVersionError):
    """The broker speaks no version of the request that has the needed fields."""


# By the exact class: a subclass has an entry of its own, or is no error for the program.
_OF_NODES: dict[type[Exception], type[ConsumerError]] = {
    AuthenticationError: ConsumerAuthenticationError,
    DisconnectedError: ConsumerDisconnectedError,
    RequestTimedOutError: ConsumerRequestTimedOutError,
    MalformedAnswerError: ConsumerMalformedAnswerError,
    UnsupportedVersionError: ConsumerUnsupportedVersionError,
}


def consumer_error(error: Exception) -> Exception:
    """The ConsumerError for an error of a connection; other errors are returned unchanged."""
    # The same arguments, so the same text.
    kind = _OF_NODES.get(type(error))
    return error if kind is None else kind(*error.args)


def refusal(code: int, *, about: str) -> Exception:
    """The error of a permanent refusal."""
    return BrokerRefusedError(f"{about}: {error_words(code)}", code=code)


class WaitingErrors:
    """Errors that came while no call was there to raise them; the next calls do, one each.

    Requests are repeated while the program works, and so are their errors: each waits once. An
    error that is no longer true is never raised, as of a position that the program has left.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Exception, Callable[[], bool]]] = []

    def add(self, error: Exception, *, is_true: Callable[[], bool] = lambda: True) -> None:
        """Have an error raised, as long as `is_true`; the same one is not added twice."""
        text = str(error)
        if not any(str(each) == text and still() for each, still in self._waiting):
            self._waiting.append((error, is_true))

    def __bool__(self) -> bool:
        if self._waiting:
            self._waiting = [each for each in self._waiting if each[1]()]
        return bool(self._waiting)

    def pop(self) -> Exception:
        """Remove and return the oldest; there must be one that is still true."""
        return self._waiting.pop(0)[0]


def _named(partitions: frozenset[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))
