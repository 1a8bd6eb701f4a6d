"""Work on items in groups: all are done, in order, and each caller hears of its own group."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from tailrace.runtime.coalescing import Coalesced


class Device:
    """Takes groups of numbers, the first one only when it is let go; refuses a group with 13."""

    def __init__(self, weight_max: int) -> None:
        self.groups: list[list[int]] = []
        self.is_busy = threading.Event()
        self.may_go_on = threading.Event()
        self.coalesced = Coalesced(self.work, threading.Lock(), weight_max=weight_max)

    def work(self, items: Sequence[int]) -> None:
        """Note a group."""
        self.groups.append(list(items))
        self.is_busy.set()
        self.may_go_on.wait()
        if 13 in items:
            raise OSError("refused")


def done_beside_each_other(device: Device, *items: int, weight: int = 1) -> list[str]:
    """Work on 0, and on the items while that takes its time; returns what the callers heard."""
    with ThreadPoolExecutor(len(items) + 1) as pool:
        calls = [pool.submit(device.coalesced.run, 0)]
        device.is_busy.wait()
        for item in items:
            calls.append(pool.submit(device.coalesced.run, item, weight=weight))
            while device.coalesced.waiting_count < len(calls) - 1:
                pass
        device.may_go_on.set()
        wait(calls)
        return [str(call.exception()) for call in calls[1:]]


def test_items_that_wait_are_worked_on_together() -> None:
    """In the order of their calls, in one group."""
    device = Device(weight_max=100)
    assert done_beside_each_other(device, 1, 2, 3) == ["None"] * 3
    assert device.groups == [[0], [1, 2, 3]]


@pytest.mark.parametrize(("weight", "groups"), [(2, [[1, 2], [3]]), (9, [[1], [2], [3]])])
def test_a_group_has_a_largest_weight(weight: int, groups: list[list[int]]) -> None:
    """An item that is heavier than that goes alone."""
    device = Device(weight_max=5)
    done_beside_each_other(device, 1, 2, 3, weight=weight)
    assert device.groups == [[0], *groups]


def test_an_error_is_that_of_each_item_of_its_group() -> None:
    """And of no item of another group."""
    device = Device(weight_max=2)
    assert done_beside_each_other(device, 1, 13, 3) == ["refused", "refused", "None"]
