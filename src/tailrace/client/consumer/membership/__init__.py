"""Membership of a consumer in a group, assignors, and commits, without thread, loop or clock.

Membership                  interface: what the consumer's engine calls
├── ClassicMembership       classic: JoinGroup, SyncGroup, Heartbeat, LeaveGroup
└── ConsumerMembership      consumer_protocol: ConsumerGroupHeartbeat (KIP-848)
Commits                     commits: OffsetCommit and OffsetFetch; NoMembership: `assign` only
AutoCommit                  commits: when offsets are committed by themselves
"""

from tailrace.client.consumer.membership.classic import ClassicMembership
from tailrace.client.consumer.membership.commits import AutoCommit, Commits, NoMembership
from tailrace.client.consumer.membership.consumer_protocol import ConsumerMembership
from tailrace.client.consumer.membership.group_coordinator import GroupCoordinator
from tailrace.client.consumer.membership.interface import (
    NEVER,
    GroupIdentity,
    GroupRequest,
    Membership,
    MetadataWish,
    RebalanceStep,
    RequestSource,
    StepKind,
    TopicShape,
)
from tailrace.client.group_offsets import OffsetAndMetadata

__all__ = [
    "NEVER",
    "AutoCommit",
    "ClassicMembership",
    "Commits",
    "ConsumerMembership",
    "GroupCoordinator",
    "GroupIdentity",
    "GroupRequest",
    "Membership",
    "MetadataWish",
    "NoMembership",
    "OffsetAndMetadata",
    "RebalanceStep",
    "RequestSource",
    "StepKind",
    "TopicShape",
]
