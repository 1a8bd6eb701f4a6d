"""`AutoCommit`: when a consumer commits its positions by itself (`enable.auto.commit`).

    if auto_commit.is_due(now):
        auto_commit.started(now)
        commits.commit(positions, done=lambda error: auto_commit.finished(error, now), ...)

Before partitions are revoked and at `close`, a consumer commits whether or not it is due, and
waits; `restart` follows each new assignment.

Not here: the positions, and sending them (`commits`).
"""

from tailrace.client.consumer.membership.interface import NEVER, MembershipSettings
from tailrace.errors import RetriableError


class AutoCommit:
    """The time of the next commit; one is under way at a time."""

    def __init__(self, settings: MembershipSettings, now: float) -> None:
        self.is_enabled = settings.enable_auto_commit
        self._interval_s = settings.auto_commit_interval_ms / 1000
        self._retry_s = settings.retry_backoff_ms / 1000
        self._due_at = now + self._interval_s
        self._is_under_way = False

    def is_due(self, now: float) -> bool:
        """Whether to commit now."""
        return self.is_enabled and not self._is_under_way and now >= self._due_at

    def next_deadline(self) -> float:
        """When the next commit is due."""
        return NEVER if not self.is_enabled or self._is_under_way else self._due_at

    def started(self, now: float) -> None:
        """A commit was handed to `Commits`."""
        self._is_under_way = True
        self.restart(now)

    def finished(self, error: Exception | None, now: float) -> None:
        """The commit has its outcome; after a retriable error the next one is due soon."""
        self._is_under_way = False
        if isinstance(error, RetriableError):
            self._due_at = now + self._retry_s

    def restart(self, now: float) -> None:
        """Begin the interval anew."""
        self._due_at = now + self._interval_s
