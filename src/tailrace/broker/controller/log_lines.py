"""The lines of a controller's log about brokers and leaders: how one state differs from the last.

Invariant: one line for each broker that has changed, and three more for all partitions, however
many a broker has led.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.cluster.metadata.image import ImageChange, MetadataImage
from tailrace.cluster.partition_change import NO_LEADER

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import PartitionRecord

logger = logging.getLogger(__name__)

NAMED_MAX: Final = 5
"""Most partitions that a line names, beside the number of all."""


class _Moved(NamedTuple):
    """A partition whose leader is another one than before."""

    name: str
    before: "PartitionRecord"
    after: "PartitionRecord"

    @property
    def has_leader(self) -> bool:
        return self.after.leader != NO_LEADER

    @property
    def is_clean(self) -> bool:
        """Whether no other replica can have acknowledged records that the new leader lacks."""
        eligible = self.before.eligible_leader_replicas or ()
        is_alone = self.after.replicas == (self.after.leader,)
        return is_alone or self.after.leader in (*self.before.isr, *eligible)


def log_changes(before: MetadataImage, after: MetadataImage, change: ImageChange) -> None:
    """Write the lines about a state that has come after another one."""
    if change.brokers:
        _log_brokers(before, after)
    moved = list(_moved(before, after, change))
    if elected := [each for each in moved if each.has_leader and each.is_clean]:
        logger.info("leaders_elected partitions=%d named=%s", len(elected), _named(elected))
    if unclean := [each for each in moved if each.has_leader and not each.is_clean]:
        logger.warning(
            "leaders_elected_unclean partitions=%d named=%s consequence=%s",
            len(unclean), _named(unclean),
            "records that were acknowledged are lost where the new leader lacks them",
        )  # fmt: skip
    if missing := [each for each in moved if not each.has_leader]:
        logger.warning(
            "leaders_missing partitions=%d named=%s consequence=%s next=%s",
            len(missing), _named(missing), "they are not served until one of these brokers is back",
            "start the brokers that tailrace topic describe --unavailable-partitions has as isr "
            "or eligible",
        )  # fmt: skip


def _log_brokers(before: MetadataImage, after: MetadataImage) -> None:
    for broker_id in sorted(before.brokers.keys() | after.brokers.keys()):
        old, new = before.brokers.get(broker_id), after.brokers.get(broker_id)
        if old is new:
            continue
        if new is None:
            continue  # By a request, which the audit log has.
        is_known = old is not None and old.broker_epoch == new.broker_epoch
        if not is_known:
            logger.info(
                "broker_registered broker=%d epoch=%d addresses=%s",
                broker_id, new.broker_epoch,
                ",".join(f"{each.host}:{each.port}" for each in new.end_points),
            )  # fmt: skip
        # A new registration is fenced.
        was_fenced = old is None or old.fenced or not is_known
        if new.fenced and not was_fenced:
            logger.warning("broker_fenced broker=%d", broker_id)
        elif was_fenced and not new.fenced:
            logger.info("broker_unfenced broker=%d", broker_id)
        elif new.in_controlled_shutdown and not (old and old.in_controlled_shutdown):
            logger.info("broker_hands_over broker=%d", broker_id)


def _moved(before: MetadataImage, after: MetadataImage, change: ImageChange) -> Iterator[_Moved]:
    # None is said of snapshots, and an active controller applies none.
    for topic_id in change.topics or ():
        old, new = before.topics.get(topic_id), after.topics.get(topic_id)
        if old is None or new is None:
            continue
        for number, partition in new.partitions.items():
            known = old.partitions.get(number)
            # Partitions that have not changed are the same objects in both.
            if known is None or known is partition or known.leader == partition.leader:
                continue
            yield _Moved(f"{new.name}-{number}", known, partition)


def _named(moved: Sequence[_Moved]) -> str:
    """The first partitions, each with its leaders before and after."""
    first = (f"{each.name}:{each.before.leader}>{each.after.leader}" for each in moved[:NAMED_MAX])
    return ",".join((*first, "...") if len(moved) > NAMED_MAX else first)
