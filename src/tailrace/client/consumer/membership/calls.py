"""`Call`: a commit or an OffsetFetch that has no outcome yet, with its deadline and its pauses."""

from random import Random

from tailrace.client.consumer.membership.errors import GroupTimeoutError
from tailrace.client.consumer.membership.interface import NEVER, MembershipSettings
from tailrace.client.nodes import Backoff
from tailrace.values import dataclass


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """A call that has no outcome yet."""

    deadline: float | None
    """When it fails; None: after the first try."""
    failures: int = 0
    retry_at: float = -NEVER
    error: Exception | None = None
    """Why the last try failed."""

    def is_late(self, now: float) -> bool:
        """Whether its time is up."""
        return self.deadline is not None and self.deadline <= now


class Retries:
    """The pauses of calls of one group, and the error of those whose time is up."""

    def __init__(self, settings: MembershipSettings, *, chance: Random) -> None:
        self._group_id = settings.group_id
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, chance)

    def pause(self, call: Call, error: Exception, now: float) -> None:
        """Have a call wait before it is tried again."""
        call.error = error
        call.retry_at = now + self._backoff.pause_s(call.failures)
        call.failures += 1

    def timed_out(self, call: Call, *, what: str, trouble: str) -> GroupTimeoutError:
        """The error of a call whose time is up; `trouble` says why there is no coordinator."""
        why = trouble if call.error is None else str(call.error)
        return GroupTimeoutError(
            f"group {self._group_id!r}: {what} got no result in time: {why}; raise "
            "default.api.timeout.ms or the timeout of the call, or look at the brokers"
        )
