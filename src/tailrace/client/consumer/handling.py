"""`Handling`: which of the returned records the program has handled.

    fetched -> ahead (taken by an iteration) -> in hand (handed out last) -> handled
    fetched -> returned by `poll` ----------------------------------------> handled

A record counts as handled when the program asks for more: for the next record of an iteration, or
by another poll. Offsets that are committed by themselves are those after handled records, so an
exception, a cancelled task or a killed process costs no record.

Not here: when offsets are committed (`group`).

Invariant: a record is in hand before it leaves those ahead. One thread iterates without the
engine's lock, and all else here happens under it; so offsets are computed from a copy of those
ahead first and the record in hand second, and are never too high.
"""

import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from tailrace.client.consumer.subscription import Position, SubscriptionState
from tailrace.client.group_offsets import OffsetAndMetadata
from tailrace.model import TopicPartition

if TYPE_CHECKING:
    from tailrace.client.consumer.records import ConsumerRecord

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Handling:
    """The records that were returned, and how far they are handled."""

    def __init__(self, subscription: SubscriptionState, *, rescan: Callable[[], None]) -> None:
        """`rescan` has the positions looked at again, after they were put back."""
        self._subscription = subscription
        self._rescan = rescan
        self.ahead: deque[ConsumerRecord] = deque()
        """Records that an iteration has taken and not handed out; the positions are after them.
        Replaced and not changed by others than the iterating thread, which may be popping one."""
        self.in_hand: ConsumerRecord | None = None
        """The record that an iteration has handed out last, until the next is asked for."""
        self.taken_at = 0.0
        """When that was, in monotonic seconds."""
        self.must_poll = False
        """Whether an iteration has to look at the group, or to end, before the next record."""
        self.is_woken = False
        """Whether `wakeup` was called, and no reading call has ended by it yet."""
        self._processed: Offsets = {}
        """The offsets after all that was returned before the present or last poll."""
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        """Offsets that the program has committed since then."""
        self._loop: Callable[[], object] = _no_loop
        self._mark: tuple[object, object] = (None, self._processed)
        self._noted: Offsets = {}
        """The offsets that `progress` has given last."""
        self.is_taking = False
        """Whether a reading call has begun, and has not returned its records."""
        self.is_waiting = False
        """Whether a reading call waits for records, so that the program is not at work."""

    # -- the caller ----------------------------------------------------------------------------

    def begin_loop(self, loop: object) -> None:
        """An iteration begins; while `loop` lives, the record in hand is being handled."""
        self._loop = weakref.ref(loop)

    def hand_out(self, now: float) -> "ConsumerRecord | None":
        """The next record ahead; None if there is none, or the group comes first."""
        ahead = self.ahead
        if self.must_poll or not ahead:
            return None
        # In hand first: see the invariant.
        record = self.in_hand = ahead[0]
        ahead.popleft()
        self.taken_at = now
        return record

    @property
    def is_in_loop(self) -> bool:
        """Whether a `for` loop is at work on the record in hand."""
        return self.in_hand is not None and self._loop() is not None

    def polled(self) -> None:
        """More is asked for: all that was returned is handled."""
        self._processed, self.in_hand = self.returned(), None
        self._committed.clear()
        self._subscription.begin_call()
        self.is_taking = True

    def passed(self) -> None:
        """The present call has returned nothing yet, and may have passed over markers."""
        positions = self._subscription.consumed()
        if positions != self._processed:
            self._processed = positions
            self._subscription.begin_call()

    def committed(self, offsets: Offsets) -> None:
        """The program has committed these offsets: records before them are handled."""
        self._committed.update(offsets)

    # -- offsets -------------------------------------------------------------------------------

    def returned(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets after all records that were returned."""
        places = self._subscription.consumed()
        for each in self.ahead.copy():
            _lower(places, each)
        return places

    def handled(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets after all records that are handled, of the partitions that are assigned."""
        assigned = self._subscription.assigned
        places = self.returned()
        if self.in_hand is not None:
            _lower(places, self.in_hand)
        else:
            places = {each: at for each, at in self._processed.items() if each in assigned}
        for each, at in self._committed.items():
            if each in places and places[each].offset < at.offset:
                places[each] = at
        return places

    def progress(self) -> Offsets | None:
        """The offsets after handled records, unless the last call has given the same."""
        in_hand, processed = self._mark
        if in_hand is self.in_hand and processed is self._processed:
            return None
        self._mark = (self.in_hand, self._processed)
        handled, before = self.handled(), self._noted
        self._noted = handled
        return None if handled == before else handled

    # -- records that were taken and not handed out --------------------------------------------

    def put_back(self, places: Collection[TopicPartition] | None = None) -> None:
        """Set the positions of these partitions, or of all, before their first record ahead."""
        firsts: dict[TopicPartition, int] = {}
        for each in self.ahead.copy():
            if places is None or each.topic_partition in places:
                # Records ahead are in the order of offsets, so the first one of a partition is the
                # lowest.
                firsts.setdefault(each.topic_partition, each.offset)
        if firsts:
            self.hold_back(firsts)
            self.drop(firsts)

    def drop(self, places: Collection[TopicPartition]) -> None:
        """Forget the records ahead of these partitions."""
        if self.ahead:
            self.ahead = deque(
                each for each in self.ahead.copy() if each.topic_partition not in places
            )

    def hold_back(self, positions: Mapping[TopicPartition, int]) -> None:
        """Put positions back to records that were taken and not handed to the program."""
        for each, offset in positions.items():
            state = self._subscription.assigned.get(each)
            if state is not None and state.position is not None:
                state.seek(Position(offset, leader=state.position.leader))
        self._rescan()

    def take_back(self) -> None:
        """Read again what an interrupted call has taken and not returned."""
        if self.is_taking:
            self.put_back()
            self.hold_back(self._subscription.read_from())


def _lower(places: dict[TopicPartition, OffsetAndMetadata], record: "ConsumerRecord") -> None:
    """Put the offset of a record's partition before that record."""
    place = record.topic_partition
    if place in places and record.offset < places[place].offset:
        places[place] = OffsetAndMetadata(record.offset)


def _no_loop() -> None:
    """No iteration has begun."""
