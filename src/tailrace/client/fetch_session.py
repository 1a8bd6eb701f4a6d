"""`FetchSession`: which partitions a broker knows already that this client fetches (KIP-227).

    full request        all partitions; the broker may answer with the id of a new session
    incremental         only partitions that are new, have changed, or are to be forgotten

Invariant: a request that was not answered, or whose answer does not fit the session, is followed by
a full one, so that both sides agree on the partitions.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from tailrace.model import NO_LEADER_EPOCH, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.messages.fetch import (
    FetchPartition,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

_NO_SESSION = 0
_FIRST_EPOCH = 0
_EPOCH_MAX = 2**31 - 1


class Wanted(NamedTuple):
    """The fields of a partition in a request."""

    topic_id: UUID
    """All zeros if it is not known."""
    offset: int
    leader_epoch: int
    size_max: int
    last_epoch: int = NO_LEADER_EPOCH
    """The leader epoch of the last record that a follower has (KIP-595)."""
    log_start: int = -1
    """The first offset that a follower has."""


class SessionRequest(NamedTuple):
    """The fields of a Fetch request that depend on the session."""

    session_id: int
    session_epoch: int
    topics: tuple[FetchTopic, ...]
    forgotten: tuple[ForgottenTopic, ...]
    partitions: tuple[TopicPartition, ...]
    """All partitions of the session, those that are not sent too."""
    has_ids: bool
    """Whether topics can be named by their ids, which v13 and later versions do."""


class FetchSession:
    """The session with one broker."""

    def __init__(self) -> None:
        self._id = _NO_SESSION
        self._epoch = _FIRST_EPOCH
        self._known: dict[TopicPartition, Wanted] = {}
        self._had_ids = False

    @property
    def is_open(self) -> bool:
        return self._id != _NO_SESSION

    def plan(self, wanted: Mapping[TopicPartition, Wanted]) -> SessionRequest:
        """The next request, for exactly these partitions."""
        has_ids = all(each.topic_id != NO_UUID for each in wanted.values())
        if has_ids != self._had_ids and self._epoch != _FIRST_EPOCH:
            # A session has names or ids; the old one ends with the request that opens the new.
            self._epoch = _FIRST_EPOCH
        self._had_ids = has_ids
        if self._epoch == _FIRST_EPOCH:
            self._known = {}
        changed: dict[TopicPartition, Wanted | None] = {
            each: None for each in self._known if each not in wanted
        }
        changed.update(wanted)
        plan = self.plan_changes(changed)
        return plan._replace(partitions=tuple(self._known), has_ids=has_ids)

    def plan_changes(self, changed: Mapping[TopicPartition, Wanted | None]) -> SessionRequest:
        """The next request, where only these have changed since the last; None leaves the session.

        For a follower: it costs nothing for its other partitions, of which there may be thousands.
        The topics of all have ids, and `partitions` of the result is empty.
        """
        sent: dict[TopicPartition, Wanted] = {}
        forgotten: dict[TopicPartition, UUID] = {}
        for each, new in changed.items():
            old = self._known.get(each)
            if new is not None and old == new:
                continue
            # A topic that was deleted and made again has the same name, and another id (KIP-516).
            if old is not None and (new is None or new.topic_id != old.topic_id):
                forgotten[each] = old.topic_id
            # After the others, as the broker does, which fills its answers from the front.
            self._known.pop(each, None)
            if new is not None:
                self._known[each] = sent[each] = new
        if self._epoch == _FIRST_EPOCH:
            sent, forgotten = self._known, {}
        return SessionRequest(
            self._id,
            self._epoch,
            _fetch_topics(sent),
            _forgotten_topics(forgotten),
            partitions=(),
            has_ids=True,
        )

    def is_answer(self, answer: FetchResponse, partitions: Iterable[TopicPartition | None]) -> bool:
        """Take an answer; False if its partitions are not those of the session.

        `partitions` are those of the answer; None for a topic id that nobody knows.
        """
        if answer.error_code:
            if answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = _NO_SESSION
            self._epoch = _FIRST_EPOCH
            return False
        found = list(partitions)
        is_full = self._epoch == _FIRST_EPOCH
        # A full answer has all partitions; one to an incremental request only those with news.
        is_sound = all(each in self._known for each in found) and len(set(found)) == len(found)
        if not is_sound or (is_full and len(found) != len(self._known)):
            self._id = _NO_SESSION if is_full else self._id
            self._epoch = _FIRST_EPOCH
            return False
        if answer.session_id == _NO_SESSION:
            # The broker has no room for the session, or had to evict it.
            self._id, self._epoch = _NO_SESSION, _FIRST_EPOCH
        elif is_full or answer.session_id == self._id:
            self._id = answer.session_id
            # 0 would ask for a new session.
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        else:
            self._epoch = _FIRST_EPOCH
            return False
        return True

    def failed(self) -> None:
        """The request was not answered: restart with a full one."""
        self._epoch = _FIRST_EPOCH

    def restart(self) -> None:
        """Forget all partitions: the next request is a full one, of those that it adds."""
        self._epoch = _FIRST_EPOCH
        self._known = {}

    def closing(self) -> SessionRequest | None:
        """The request that ends the session, or None if there is none."""
        if not self.is_open:
            return None
        return SessionRequest(self._id, -1, (), (), (), self._had_ids)


def _fetch_topics(wanted: Mapping[TopicPartition, Wanted]) -> tuple[FetchTopic, ...]:
    """The partitions in their order; neighbours of one topic together."""
    topics = []
    for (topic, topic_id), group in groupby(
        wanted.items(), key=lambda item: (item[0].topic, item[1].topic_id)
    ):
        parts = tuple(
            FetchPartition(
                partition=partition.partition,
                current_leader_epoch=each.leader_epoch,
                fetch_offset=each.offset,
                last_fetched_epoch=each.last_epoch,
                log_start_offset=each.log_start,
                partition_max_bytes=each.size_max,
            )
            for partition, each in group
        )
        topics.append(FetchTopic(topic=topic, topic_id=topic_id, partitions=parts))
    return tuple(topics)


def _forgotten_topics(partitions: Mapping[TopicPartition, UUID]) -> tuple[ForgottenTopic, ...]:
    numbers: dict[tuple[str, UUID], list[int]] = {}
    for each, topic_id in partitions.items():
        numbers.setdefault((each.topic, topic_id), []).append(each.partition)
    return tuple(
        ForgottenTopic(topic=topic, topic_id=topic_id, partitions=tuple(sorted(found)))
        for (topic, topic_id), found in numbers.items()
    )
