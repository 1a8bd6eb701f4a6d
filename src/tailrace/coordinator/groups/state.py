"""The groups of one shard, with their offsets and deadlines: what the parts of its machine share.

    classic     JoinGroup, SyncGroup, Heartbeat; `classic_groups` and `rebalancing`
    consumer    ConsumerGroupHeartbeat (KIP-848); `consumer_heartbeat`, and `classic_members` for
                members of the classic protocol in such a group

Invariant: an id has one group, of one protocol.
"""

import base64
import random
from collections import Counter
from collections.abc import Callable

from tailrace.coordinator.deadlines import Deadlines
from tailrace.coordinator.groups.classic_group import ClassicGroup
from tailrace.coordinator.groups.consumer_group import ConsumerGroup
from tailrace.coordinator.groups.offsets import Offsets
from tailrace.coordinator.groups.settings import ConsumerSettings, GroupSettings
from tailrace.coordinator.groups.topics import Topics
from tailrace.coordinator.machine import Propose
from tailrace.coordinator.statistics import GroupCounts
from tailrace.runtime.ids import random_uuid
from tailrace.values import dataclass, field


@dataclass(slots=True, kw_only=True)
class Groups:
    """The state of one shard, and what its parts need of the broker."""

    settings: GroupSettings
    topics: Topics
    consumer_settings: Callable[[str], ConsumerSettings]
    """The settings of a consumer group, by its id."""
    chance: random.Random
    counts: GroupCounts
    """Totals; shared by the shards of a broker."""
    # One table for both protocols: a group that changes its protocol is replaced in one step.
    by_id: dict[str, ClassicGroup | ConsumerGroup] = field(default_factory=dict)
    offsets: Offsets = field(default_factory=Offsets)
    deadlines: Deadlines = field(default_factory=Deadlines)
    propose: Propose | None = None
    """None: the log is being replayed, and records do not come from requests."""

    def states(self) -> tuple[Counter[str], Counter[str]]:
        """Classic and consumer groups by their states; looks at each member of each group."""
        classic: Counter[str] = Counter()
        consumer: Counter[str] = Counter()
        for group in self.by_id.values():
            states = classic if isinstance(group, ClassicGroup) else consumer
            states[group.state.value] += 1
        return classic, consumer

    def new_member_id(self) -> str:
        """A UUID as Kafka prints it."""
        while True:
            made = random_uuid(self.chance)
            text = base64.urlsafe_b64encode(made.bytes).decode().rstrip("=")
            # Kafka's tools would take one that begins with a dash for an option.
            if not text.startswith("-"):
                return text

    def classic(self, group_id: str) -> ClassicGroup | None:
        """The group, if it is there and of the classic protocol."""
        group = self.by_id.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        """The group, if it is there and of the consumer protocol."""
        group = self.by_id.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None
