"""`BoundedCache`: values by key, of which the one that was put in first is forgotten when full."""

from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """At most `capacity` values; for any number of threads."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: dict[K, V] = {}
        self._lock = Lock()
        # Without the lock: one look-up in a dictionary is atomic. An order by last use would need
        # the lock for each record, hence the order of coming.
        self.get = self._values.get
        """The value of a key, or None."""

    def put(self, key: K, value: V) -> None:
        """Keep a value, in place of the oldest if there is no room."""
        with self._lock:
            # A key that is put again goes to the end, so that a renewed value is not the next to
            # go.
            self._values.pop(key, None)
            while len(self._values) >= self._capacity:
                del self._values[next(iter(self._values))]
            self._values[key] = value

    def discard(self, key: K) -> None:
        """Forget a key, if it is there."""
        with self._lock:
            self._values.pop(key, None)

    def __len__(self) -> int:
        return len(self._values)
