"""Offsets of consumer groups expire some time after no member subscribes to their topic."""

from functools import partial

from tailrace.coordinator.groups.consumer_groups import ConsumerGroups
from tailrace.coordinator.groups.consumer_offsets import EXPIRED_MAX, expired_records
from tailrace.coordinator.groups.deadlines import Deadlines, Records
from tailrace.coordinator.groups.offsets import Offsets
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.coordinator.machine import Decision, Propose


class ConsumerExpiry:
    """Looks for expired offsets of all consumer groups of a shard, again and again."""

    def __init__(
        self,
        settings: GroupSettings,
        deadlines: Deadlines,
        groups: ConsumerGroups,
        *,
        offsets: Offsets,
    ) -> None:
        self._settings = settings
        self._deadlines = deadlines
        self._groups = groups
        self._offsets = offsets

    def start(self, propose: Propose) -> None:
        """Look for the first time when the interval has passed."""
        self._deadlines.set(
            "expiry", self._settings.expiry_interval_ms, partial(self._look, propose)
        )

    def _look(self, propose: Propose, _: int) -> Records:
        self.start(propose)
        for group_id in tuple(self._groups.by_id):
            propose(partial(self._expire, propose, group_id))
        return ()

    def _expire(self, propose: Propose, group_id: str, now_ms: int) -> Decision[None]:
        group = self._groups.by_id.get(group_id)
        if group is None:
            return Decision(reply=None)
        retention_ms = self._settings.retention_ms
        records = expired_records(self._offsets, group, retention_ms=retention_ms, now_ms=now_ms)
        if len(records) >= EXPIRED_MAX:
            propose(partial(self._expire, propose, group_id))
        return Decision(reply=None, records=records)
