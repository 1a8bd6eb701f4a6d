"""`ReplicationQuota`: whether the copies of throttled replicas exceed their rate (KIP-73).

    record ─► bytes by window ─► the rate ─► is_exceeded ─► a replica that is not in sync waits

Kafka's `ReplicationQuotaManager`, one for the leader's side and one for the follower's. It counts
what has been copied, and has nobody wait by itself: a leader answers without records, and a
follower leaves partitions out of its fetches. Which replicas are meant is in the topic's settings
`leader.replication.throttled.replicas` and `follower.…`, which the log has.

The rate is that of Kafka's `SimpleRate`: the bytes of the last windows by the time since the oldest
of them began. So after a rest as much may be copied at once as the rate allows for all windows.
"""

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from tailrace.config.settings import INT64_MAX
from tailrace.runtime.clock import Clock, elapsed_ms
from tailrace.runtime.rates import WindowedSum, Windows
from tailrace.storage.log import Log

logger = logging.getLogger(__name__)

UNLIMITED: Final = INT64_MAX
"""The rate where none is set."""

ALL_REPLICAS: Final = ("*",)


class ReplicationQuota:
    """The rate of a broker's throttled replicas on one side; on the event loop."""

    def __init__(
        self, role: str, clock: Clock, *, node_id: int, window_count: int, window_s: int
    ) -> None:
        """`role` is "leader" or "follower", as in the names of the settings."""
        self.bytes_per_second = UNLIMITED
        """A change counts at once, for what was copied before too."""
        self._role = role
        self._clock = clock
        self._node_id = node_id
        self._windows = Windows(window_count, window_s * 1000)
        self._sum = WindowedSum(self._windows)

    def configure(self, of_all: Mapping[str, str], of_this: Mapping[str, str]) -> None:
        """Take the rate from the changed settings of all brokers and of this one."""
        name = f"{self._role}.replication.throttled.rate"
        text = of_this.get(name, of_all.get(name))
        self.bytes_per_second = UNLIMITED
        if text is not None:
            try:
                self.bytes_per_second = int(text)
            except ValueError:
                # Controllers take any text; it must not end a broker.
                logger.warning("setting_not_used name=%s value=%.40r", name, text)

    def is_throttled(self, log: Log) -> bool:
        """Whether the settings of a log's topic name this broker's replica."""
        replicas = log.config.throttled_replicas[self._role]
        # Nearly always empty, and asked for each answer.
        if not replicas:
            return False
        if replicas == ALL_REPLICAS:
            return True
        return log.partition.partition in _partitions_of(replicas, self._node_id)

    def is_exceeded(self) -> bool:
        """Whether throttled replicas that are not in sync have to wait.

        One in sync never waits: it would leave the ISR, and the high watermark would wait for it.
        """
        # Without a rate there is nothing to measure, and each fetch of a follower asks.
        return self.bytes_per_second < UNLIMITED and self.rate() > self.bytes_per_second

    def record(self, size: int) -> None:
        """Count bytes of throttled replicas, also of those in sync: all share the rate."""
        self._sum.add(size, elapsed_ms(self._clock))

    def rate(self) -> float:
        """Bytes in a second, over the last windows."""
        size, time_ms = self._sum.measure(elapsed_ms(self._clock))
        # Never less than a window, or the first bytes would be any rate.
        return size * 1000 / max(time_ms, self._windows.size_ms)


# A reassignment of a large topic names thousands of replicas, and each fetch asks.
@lru_cache(maxsize=1024)
def _partitions_of(replicas: tuple[str, ...], node_id: int) -> frozenset[int]:
    """The partitions of a list of PARTITION:BROKER that it has for one broker."""
    pairs = (each.split(":") for each in replicas)
    return frozenset(int(number) for number, broker in pairs if int(broker) == node_id)
