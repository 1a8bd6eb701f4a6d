"""The topics of the cluster, as far as groups have to know them, and expressions that select some.

An expression comes from any client, and runs on the broker's one event loop. Python's `re`
backtracks: `(a+)+b` would hold the loop for a day on a topic of 40 letters, and nothing interrupts
it. RE2 cannot, and its syntax is what Kafka's clients write, as Kafka's brokers use its Java port.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from tailrace.coordinator.errors import RefusedError
from tailrace.protocol.errors import ErrorCode


class Topic(NamedTuple):
    """A topic that can be consumed."""

    name: str
    topic_id: UUID
    partition_count: int
    racks: tuple[tuple[str, ...], ...] = ()
    """The racks of each partition's replicas, one for each that has one; empty: no broker has."""


class Topics(Protocol):
    """All topics, at one version."""

    @property
    def version(self) -> int:
        """Grows with every change of a topic; Kafka's is an offset of the metadata log."""
        ...

    def by_name(self, name: str) -> Topic | None: ...

    def by_id(self, topic_id: UUID) -> Topic | None: ...

    def names(self) -> Iterable[str]: ...


# A group's members have the same few expressions, and send them again with each new session.
@lru_cache(256)
def compile_pattern(regex: str) -> Any:  # noqa: ANN401 - the package has no types
    """A compiled pattern.

    Raises:
        RefusedError: it is not of RE2's syntax, or would take too much memory.
    """
    import re2  # Optional, and not at the start: `modules` has it imported on a thread.

    options = re2.Options()
    # The client gets the reason; RE2 would print it to the broker's standard error too.
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "unknown"
        text = reason.decode() if isinstance(reason, bytes) else str(reason)
        raise RefusedError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {text}.",
        ) from error


def matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """The names that match from their first to their last character.

    Raises:
        RefusedError: as `compile_pattern`.
    """
    matches = compile_pattern(regex).fullmatch
    return frozenset([name for name in names if matches(name)])
