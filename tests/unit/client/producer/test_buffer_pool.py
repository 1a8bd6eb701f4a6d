"""The account of buffer.memory: who gets what, in which order, and that nothing is lost."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tailrace.client.producer.errors import ClosedProducerError
from tailrace.client.producer.queue.memory import BufferPool, Waiter
from tailrace.errors import RecordTooLargeError


def noting(into: list[object], name: object) -> Callable[[Exception | None], None]:
    """A callback that notes its name, or the error it was given."""
    return lambda error: into.append(name if error is None else error)


def test_bytes_taken_and_given_back_add_up() -> None:
    """Taken bytes are not available until they are returned."""
    pool = BufferPool(64 * 1024, 1024)
    assert pool.allocate(1024)
    assert pool.available == 63 * 1024
    pool.deallocate(1024)
    assert pool.available == 64 * 1024


def test_only_blocks_of_the_block_size_are_kept() -> None:
    """A block comes back from the free list; one of another size is dropped."""
    pool = BufferPool(4096, 1024)
    block = pool.take_block()
    assert len(block) == 1024
    pool.give_block(block)
    pool.give_block(bytearray(2048))
    assert pool.take_block() is block
    assert len(pool.take_block()) == 1024


def test_free_blocks_take_no_more_than_the_pool() -> None:
    """The free list is bounded by buffer.memory, however many blocks are given."""
    pool = BufferPool(4096, 1024)
    given = [bytearray(1024) for _ in range(10)]
    for block in given:
        pool.give_block(block)
    taken = [pool.take_block() for _ in given]
    assert sum(any(each is block for block in given) for each in taken) == 4


def test_more_than_the_pool_is_refused_by_the_settings_name() -> None:
    """The whole pool can be taken; one byte more is an error that names buffer.memory."""
    pool = BufferPool(1024, 512)
    with pytest.raises(RecordTooLargeError, match=r"1025 bytes; buffer\.memory allows 1024"):
        pool.allocate(1025)
    with pytest.raises(RecordTooLargeError, match=r"buffer\.memory"):
        pool.wait(1025, noting([], "never"))
    assert pool.allocate(1024)


def test_a_waiter_is_served_once_there_is_enough() -> None:
    """Returned bytes are granted to the waiter as soon as there are enough of them."""
    pool = BufferPool(5 * 1024, 1024)
    served: list[object] = []
    assert pool.allocate(1024)
    assert pool.allocate(1024)
    assert not pool.allocate(5 * 1024)
    pool.wait(5 * 1024, noting(served, "all"))
    pool.deallocate(1024)
    assert not served
    pool.deallocate(1024)
    assert served == ["all"]
    assert pool.available == 0


def test_a_waiter_is_served_at_once_if_there_is_enough() -> None:
    """A waiter that finds enough bytes is served within the call."""
    pool = BufferPool(10, 1)
    served: list[object] = []
    pool.wait(10, noting(served, "a"))
    assert served == ["a"]
    assert pool.waiting == 0


def test_a_full_pool_says_so() -> None:
    """A full pool gives out no memory."""
    pool = BufferPool(2, 1)
    assert pool.allocate(1)
    assert not pool.allocate(2)
    assert pool.available == 1


def test_a_waiter_that_gives_up_leaves_nothing_behind() -> None:
    """After it, the line is empty and all bytes that were there still are."""
    pool = BufferPool(2, 1)
    assert pool.allocate(1)
    waiter = pool.wait(2, noting([], "late"))
    assert pool.cancel(waiter)
    assert pool.waiting == 0
    assert pool.available == 1
    assert pool.allocate(1)


def test_small_requests_do_not_overtake_a_large_one() -> None:
    """While there is a waiter, no other caller gets memory, however little."""
    pool = BufferPool(10, 1)
    served: list[object] = []
    assert pool.allocate(8)
    pool.wait(9, noting(served, "large"))
    assert not pool.allocate(1)
    pool.wait(1, noting(served, "small"))
    pool.deallocate(8)
    assert served == ["large", "small"]


def test_the_line_keeps_its_order_when_one_in_it_leaves() -> None:
    """When a waiter cancels, the next one is served, at once if there are enough bytes."""
    pool = BufferPool(2, 1)
    served: list[object] = []
    assert pool.allocate(1)
    first = pool.wait(2, noting(served, "first"))
    pool.wait(1, noting(served, "second"))
    pool.wait(2, noting(served, "third"))
    assert pool.cancel(first)
    assert served == ["second"]
    pool.deallocate(1)
    pool.deallocate(1)
    assert served == ["second", "third"]


def test_giving_up_too_late_is_told() -> None:
    """A waiter that was served in the same moment keeps its bytes and has to give them back."""
    pool = BufferPool(2, 1)
    assert pool.allocate(2)
    waiter = pool.wait(2, noting([], "served"))
    pool.deallocate(2)
    assert not pool.cancel(waiter)
    assert pool.available == 0
    pool.deallocate(2)
    assert pool.available == 2


def test_sizes_beyond_four_gigabytes_are_counted() -> None:
    """The account is of numbers, not of memory that is there."""
    pool = BufferPool(20_000_000_000, 2_000_000_000)
    assert pool.allocate(2_000_000_000)
    assert pool.allocate(2_000_000_000)
    assert pool.available == 16_000_000_000
    pool.deallocate(2_000_000_000)
    assert pool.available == 18_000_000_000


def test_giving_back_more_than_was_taken_is_noticed() -> None:
    """A fault in the account is found where it happens."""
    with pytest.raises(AssertionError, match="more was given back"):
        BufferPool(10, 1).deallocate(1)


def test_a_closed_pool_gives_out_nothing_and_takes_back() -> None:
    """After close no memory is granted, but taken memory can be returned."""
    pool = BufferPool(10, 1)
    assert pool.allocate(1)
    pool.close()
    with pytest.raises(ClosedProducerError):
        pool.allocate(1)
    with pytest.raises(ClosedProducerError):
        pool.wait(1, noting([], "never"))
    pool.deallocate(1)
    assert pool.available == 10


def test_closing_ends_all_waiting() -> None:
    """All waiters get a ClosedProducerError."""
    pool = BufferPool(1, 1)
    told: list[object] = []
    assert pool.allocate(1)
    pool.wait(1, noting(told, "first"))
    pool.wait(1, noting(told, "second"))
    pool.close()
    assert [type(each) for each in told] == [ClosedProducerError, ClosedProducerError]
    assert pool.waiting == 0
    pool.deallocate(1)


TOTAL = 100


class PoolLife(RuleBasedStateMachine):
    """Any interleaving of taking, waiting, giving up and giving back."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BufferPool(TOTAL, 10)
        self.out: list[int] = []
        self.line: list[tuple[Waiter, int]] = []
        self.served: list[int] = []
        self.number = 0

    @rule(size=st.integers(1, TOTAL))
    def allocate(self, size: int) -> None:
        """Take at once; it succeeds exactly if nobody waits and there is enough."""
        may = not self.pool.waiting and size <= self.pool.available
        assert self.pool.allocate(size) == may
        if may:
            self.out.append(size)

    @rule(size=st.integers(1, TOTAL))
    def wait(self, size: int) -> None:
        """Get in line."""
        self.number += 1
        number = self.number

        def granted(error: Exception | None) -> None:
            assert error is None
            self.served.append(number)
            self.out.append(size)

        self.line.append((self.pool.wait(size, granted), number))

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Leave the line; it is possible exactly as long as one was not served."""
        if self.line:
            waiter, number = self.line.pop(data.draw(st.integers(0, len(self.line) - 1)))
            was_served = number in self.served
            assert self.pool.cancel(waiter) != was_served

    @rule(data=st.data())
    def deallocate(self, data: st.DataObject) -> None:
        """Give something back."""
        if self.out:
            self.pool.deallocate(self.out.pop(data.draw(st.integers(0, len(self.out) - 1))))

    @invariant()
    def nothing_is_lost(self) -> None:
        """The memory in use and the available memory make up the whole."""
        assert self.pool.available + sum(self.out) == TOTAL

    @invariant()
    def order_is_kept(self) -> None:
        """Waiters are served in the order they came."""
        assert all(first < second for first, second in pairwise(self.served))

    @invariant()
    def nobody_waits_in_vain(self) -> None:
        """The first in line waits only while there is not enough."""
        left = [waiter for waiter, number in self.line if number not in self.served]
        assert self.pool.waiting == len(left)
        assert not left or left[0].size > self.pool.available


def test_no_interleaving_loses_bytes_or_the_order() -> None:
    """In any order of calls bytes add up, the order is fair, and every waiter is served."""
    run_state_machine_as_test(PoolLife)
