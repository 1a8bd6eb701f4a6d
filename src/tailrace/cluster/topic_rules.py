"""Rules that a new topic has to keep: its name, its number of partitions, what may exist beside it.

Pure; `controller` asks before it plans a change.
"""

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from tailrace.errors import FatalError

TOPIC_NAME_BYTES_MAX: Final = 249
"""Kafka's limit: 255 less a dash, a partition number of four digits, and one byte."""

# Kafka's controller refuses more in one request, too.
PARTITIONS_MAX = 10_000
"""Most partitions of a new topic, so that one request cannot fill a disk."""

GROUPS_MAX = 1_000
"""Most groups with settings of their own: they need not exist, and are kept in memory."""

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


class NewTopic(NamedTuple):
    """A topic that a broker needs, or that a client asks for by its name alone."""

    name: str
    partition_count: int = -1
    """-1: the default of the cluster."""
    replication_factor: int = -1
    """-1: the default of the cluster."""
    configs: Mapping[str, str] = MappingProxyType({})


class InvalidTopicNameError(FatalError, ValueError):
    """A topic name that Kafka does not allow."""


class ReservedTopicError(FatalError, ValueError):
    """The name is reserved for Kafka's metadata log."""


class TopicExistsError(FatalError, ValueError):
    """A topic with that name exists already."""


class InvalidPartitionsError(FatalError, ValueError):
    """A number of partitions that is not allowed."""


class TooManyPartitionsError(FatalError, ValueError):
    """More partitions than a topic may have, so that one request cannot fill a disk."""


class TooManyGroupsError(FatalError, ValueError):
    """More groups with settings of their own than there may be."""


class InvalidReplicationError(FatalError, ValueError):
    """A replication factor above the number of brokers, or below 1."""


def check_topic_name(name: str) -> None:
    """Check a name against Kafka's rules.

    Raises:
        InvalidTopicNameError: it is empty, too long, `.` or `..`, or has other characters than
            letters, digits, dot, underscore and dash.
    """
    if not name or len(name) > TOPIC_NAME_BYTES_MAX or name in (".", ".."):
        raise InvalidTopicNameError(
            f"{name[:40]!r} is no topic name: a name has 1 to {TOPIC_NAME_BYTES_MAX} characters, "
            "and . and .. are not allowed"
        )
    if _LEGAL_NAME.fullmatch(name) is None:
        raise InvalidTopicNameError(
            f"{name[:40]!r} is no topic name: letters, digits, dot, underscore and dash are allowed"
        )


def folded_name(name: str) -> str:
    """The name of a topic with dots as underscores, as metrics have it: only one topic may."""
    # Kafka's metrics turn dots into underscores, so `a.b` and `a_b` would be one metric.
    return name.replace(".", "_")


class TakenNames:
    """The names of the topics that exist, against which new ones are checked."""

    def __init__(self) -> None:
        self._names: Collection[str] = ()
        self._folded: Mapping[str, str] = {}
        """These names by their `folded_name`, made when a name is checked that may collide."""
        self._added: dict[str, str] = {}
        """Other names by theirs."""

    def check_is_free(self, name: str, taken: Collection[str]) -> None:
        """Check a name against those that exist; of many calls with the same ones the first looks.

        Raises:
            TopicExistsError: it is one of them.
            InvalidTopicNameError: it differs from one only in dots and underscores.
        """
        if name in taken:
            # Programs look for Kafka's words, which these are.
            raise TopicExistsError(f"Topic '{name}' already exists.")
        if "." not in name and "_" not in name:
            return
        # By identity: the image is replaced whole, so equal objects are the same topics.
        if self._names is not taken:
            self._names, self._folded = taken, {folded_name(each): each for each in taken}
        folded = folded_name(name)
        other = self._folded.get(folded) or self._added.get(folded)
        if other is not None:
            raise InvalidTopicNameError(f"Topic '{name}' collides with existing topic: {other}")

    def add(self, name: str) -> None:
        """Have names collide with this one, too, which does not exist yet."""
        self._added[folded_name(name)] = name


def check_partition_limit(count: int) -> None:
    """Check the number of partitions of a topic.

    Raises:
        TooManyPartitionsError: more than `PARTITIONS_MAX`.
    """
    if count > PARTITIONS_MAX:
        raise TooManyPartitionsError(
            f"{count} partitions; a topic may have {PARTITIONS_MAX} at most"
        )


def check_group_limit(group_id: str, known: Collection[str]) -> None:
    """Check that a group may have settings of its own, beside those that are `known` to have some.

    Raises:
        TooManyGroupsError: `GROUPS_MAX` other groups have some.
    """
    if group_id not in known and len(known) >= GROUPS_MAX:
        raise TooManyGroupsError(
            f"{len(known)} groups have settings of their own, {GROUPS_MAX} may; remove those "
            "of groups that are not used any more"
        )
