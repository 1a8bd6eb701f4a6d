"""`Pending`: the outcome of a call that waits for brokers, for a thread or a task to wait on."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Pending(Generic[T]):
    """Not done at first; then a value or an error, once."""

    __slots__ = ("_value", "error", "is_abandoned", "is_done", "reason")

    def __init__(self) -> None:
        self.is_done = False
        self.is_abandoned = False
        """Whether nobody waits any more, so that no further request is sent for it."""
        self.error: Exception | None = None
        self.reason = ""
        """The thing that it waits for, for the error of a timeout; empty: the first answer."""
        self._value: T | None = None

    def settle(self, value: T) -> None:
        """Note the value; a second outcome is ignored."""
        if not self.is_done:
            self._value, self.is_done = value, True

    def fail(self, error: Exception) -> None:
        """Note the error; a second outcome is ignored."""
        if not self.is_done:
            self.error, self.is_done = error, True

    def result(self) -> T:
        """The value, or the error raised; it must be done."""
        assert self.is_done, "the outcome is not there yet"
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]
