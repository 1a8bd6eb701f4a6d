"""The columns of each view, and the rows of the views of a state; pure.

Numbers for which Kafka has words (`topic`, `SCRAM-SHA-256`, `READ`) are these words; one that is
not known here stays a number, as text.

Invariant: a row has no secret; see `tailrace.offline.metadata`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, TypeVar
from uuid import UUID

import pyarrow as pa

from tailrace.cluster.metadata.image import MetadataImage
from tailrace.offline.metadata import credential_fields, shown_setting
from tailrace.offline.metadata_state import MECHANISMS, RESOURCES
from tailrace.security.acls import AclOperation, AclResource, PatternType, Permission
from tailrace.spark.metadata.options import View
from tailrace.storage.checkpoints import format_topic_id

Row = dict[str, Any]
E = TypeVar("E", bound=IntEnum)

_TEXT, _INT, _LONG = pa.string(), pa.int32(), pa.int64()
_INTS, _TEXTS = pa.list_(_INT), pa.list_(_TEXT)
_TIME = pa.timestamp("us", tz="UTC")

_RECORD: Final = {
    "offset": _LONG,
    "timestamp": _TIME,
    "epoch": _INT,
    "type": _TEXT,
    "version": _INT,
    "record": _TEXT,
    "source": _TEXT,
}
_LISTENER: Final = pa.struct(
    {"name": _TEXT, "host": _TEXT, "port": _INT, "securityProtocol": _INT}.items()
)
_LEVELS: Final = pa.struct({"feature": _TEXT, "min": _INT, "max": _INT}.items())

_COLUMNS: Final[Mapping[View, Mapping[str, Any]]] = {
    View.RECORDS: _RECORD,
    View.SNAPSHOTS: _RECORD,
    View.TOPICS: {
        "topic": _TEXT,
        "topicId": _TEXT,
        "partitions": _INT,
        "replicas": _INT,
        "withoutLeader": _INT,
        "outOfSync": _INT,
    },
    View.PARTITIONS: {
        "topic": _TEXT,
        "topicId": _TEXT,
        "partition": _INT,
        "leader": _INT,
        "leaderEpoch": _INT,
        "partitionEpoch": _INT,
        "replicas": _INTS,
        "isr": _INTS,
        "addingReplicas": _INTS,
        "removingReplicas": _INTS,
        "eligibleLeaderReplicas": _INTS,
        "lastKnownElr": _INTS,
        "directories": _TEXTS,
    },
    View.CONFIGS: {"resourceType": _TEXT, "resource": _TEXT, "name": _TEXT, "value": _TEXT},
    View.BROKERS: {
        "broker": _INT,
        "epoch": _LONG,
        "rack": _TEXT,
        "isFenced": pa.bool_(),
        "isShuttingDown": pa.bool_(),
        "incarnationId": _TEXT,
        "listeners": pa.list_(_LISTENER),
        "features": pa.list_(_LEVELS),
        "directories": _TEXTS,
        "cordonedDirectories": _TEXTS,
    },
    View.FEATURES: {"feature": _TEXT, "level": _INT},
    View.USERS: {"user": _TEXT, "mechanism": _TEXT, "iterations": _INT, "fingerprint": _TEXT},
    View.ACLS: {
        "id": _TEXT,
        "resourceType": _TEXT,
        "resource": _TEXT,
        "pattern": _TEXT,
        "principal": _TEXT,
        "host": _TEXT,
        "operation": _TEXT,
        "permission": _TEXT,
    },
    View.QUOTAS: {"entity": pa.map_(_TEXT, _TEXT), "name": _TEXT, "value": pa.float64()},
}


def view_schema(view: View) -> pa.Schema:
    """The columns of a view; all may be null."""
    return pa.schema(_COLUMNS[view].items())


def describe_views() -> str:
    """A Markdown table of the views and their columns."""
    lines = ["| view | columns |", "|---|---|"]
    for view in View:
        columns = ", ".join(f"`{name}: {kind}`" for name, kind in _COLUMNS[view].items())
        lines.append(f"| `{view.value}` | {columns} |")
    return "\n".join(lines)


def state_rows(view: View, image: MetadataImage) -> Iterator[Row]:
    """The rows of a view of a state, in the order of their names or numbers."""
    return _ROWS[view](image)


def _topics(image: MetadataImage) -> Iterator[Row]:
    for name, topic_id in sorted(image.topic_ids.items()):
        found = image.topics[topic_id].partitions.values()
        yield {
            "topic": name,
            "topicId": format_topic_id(topic_id),
            "partitions": len(found),
            # While a reassignment runs, some partitions have more than others.
            "replicas": max((len(each.replicas) for each in found), default=0),
            # -1: no replica may lead (Kafka's NO_LEADER).
            "withoutLeader": sum(each.leader < 0 for each in found),
            "outOfSync": sum(len(each.replicas) - len(each.isr) for each in found),
        }


def _partitions(image: MetadataImage) -> Iterator[Row]:
    for name, topic_id in sorted(image.topic_ids.items()):
        for number, each in sorted(image.topics[topic_id].partitions.items()):
            yield {
                "topic": name,
                "topicId": format_topic_id(topic_id),
                "partition": number,
                "leader": each.leader,
                "leaderEpoch": each.leader_epoch,
                "partitionEpoch": each.partition_epoch,
                "replicas": each.replicas,
                "isr": each.isr,
                "addingReplicas": each.adding_replicas,
                "removingReplicas": each.removing_replicas,
                "eligibleLeaderReplicas": each.eligible_leader_replicas or (),
                "lastKnownElr": each.last_known_elr or (),
                "directories": _ids(each.directories),
            }


def _configs(image: MetadataImage) -> Iterator[Row]:
    for resource, settings in sorted(image.configs.items()):
        for name, value in sorted(settings.items()):
            yield {
                "resourceType": RESOURCES.get(resource.type, str(resource.type)),
                # Settings for all brokers have an empty name.
                "resource": resource.name or None,
                "name": name,
                "value": shown_setting(name, value),
            }


def _brokers(image: MetadataImage) -> Iterator[Row]:
    for number, each in sorted(image.brokers.items()):
        yield {
            "broker": number,
            "epoch": each.broker_epoch,
            "rack": each.rack,
            "isFenced": each.fenced,
            "isShuttingDown": each.in_controlled_shutdown,
            # Written as Kafka's tools write ids: in base64 for URLs, without padding.
            "incarnationId": format_topic_id(each.incarnation_id),
            "listeners": [
                {
                    "name": end.name,
                    "host": end.host,
                    "port": end.port,
                    "securityProtocol": end.security_protocol,
                }
                for end in each.end_points
            ],
            "features": [
                {
                    "feature": level.name,
                    "min": level.min_supported_version,
                    "max": level.max_supported_version,
                }
                for level in each.features
            ],
            "directories": _ids(each.log_dirs),
            "cordonedDirectories": _ids(each.cordoned_log_dirs),
        }


def _features(image: MetadataImage) -> Iterator[Row]:
    for name, level in sorted(image.features.items()):
        yield {"feature": name, "level": level}


def _users(image: MetadataImage) -> Iterator[Row]:
    # By user first, since that is what people look for. No salt and no key: see
    # `credential_fields`.
    for key, record in sorted(image.scram.items(), key=lambda entry: (entry[0].name, entry[0])):
        mechanism = MECHANISMS.get(key.mechanism, str(key.mechanism))
        yield {"user": key.name, "mechanism": mechanism, **credential_fields(record)}


def _acls(image: MetadataImage) -> Iterator[Row]:
    for entry_id, each in image.acls.items():
        yield {
            "id": format_topic_id(entry_id),
            "resourceType": _word(AclResource, each.resource_type),
            "resource": each.resource_name,
            "pattern": _word(PatternType, each.pattern_type),
            "principal": each.principal,
            "host": each.host,
            "operation": _word(AclOperation, each.operation),
            "permission": _word(Permission, each.permission_type),
        }


def _quotas(image: MetadataImage) -> Iterator[Row]:
    for entity, quotas in image.quotas.items():
        for name, value in sorted(quotas.items()):
            # Arrow takes pairs for a map. A null in one means the default of its type (KIP-546).
            yield {"entity": list(entity.parts), "name": name, "value": value}


def _word(kind: type[E], number: int) -> str:
    # Kafka adds types and operations; one that is not known here is no reason to fail.
    return kind(number).name if number in set(kind) else str(number)


def _ids(ids: Iterable[UUID] | None) -> Sequence[str] | None:
    return None if ids is None else [format_topic_id(each) for each in ids]


_ROWS: Final[Mapping[View, Callable[[MetadataImage], Iterator[Row]]]] = {
    View.TOPICS: _topics,
    View.PARTITIONS: _partitions,
    View.CONFIGS: _configs,
    View.BROKERS: _brokers,
    View.FEATURES: _features,
    View.USERS: _users,
    View.ACLS: _acls,
    View.QUOTAS: _quotas,
}
