"""Images of the metadata log as nested names and values, and the changes between two of them.

Values are those of JSON, and secrets are as in `tailrace.offline.metadata`: a new password of a
user is a change, one in a setting is not seen.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from tailrace.cluster.metadata.image import ConfigResource, MetadataImage, QuotaEntity, TopicState
from tailrace.offline.metadata import credential_fields, record_fields, shown_setting
from tailrace.offline.metadata_state import MetadataState
from tailrace.protocol.metadata_records import UserScramCredentialRecord
from tailrace.storage.checkpoints import format_topic_id

Tree = dict[str, Any]
Path = tuple[str, ...]

RESOURCES: Final = {2: "topic", 4: "broker", 8: "broker logger", 16: "client metrics", 32: "group"}
"""Kinds of resources that have settings, by Kafka's number."""
MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Mechanisms of credentials, by Kafka's number."""


class Change(NamedTuple):
    """A value that differs between two states."""

    path: Path
    """Names from the part of the image down to the value."""
    before: object
    """None: it was not there."""
    after: object
    """None: it is not there."""
    next_offset: int
    """The state of records below this offset was the first one after its last change; of an entry
    that is new or gone, the first one with it or without it."""
    timestamp: int
    """Time of that change, in milliseconds since 1970."""
    is_jump: bool
    """Whether it is the end of a gap in the log, somewhere in which the change was made."""


class _Part(NamedTuple):
    entries: Callable[[MetadataImage], Mapping[Any, Any]]
    title: Callable[[Any, Any], str]
    """The name of an entry from its key and its value."""
    plain: Callable[[Any], object]


def image_tree(image: MetadataImage) -> Tree:
    """All of an image: part, name of the entry, its fields."""
    return {
        name: {part.title(key, each): part.plain(each) for key, each in part.entries(image).items()}
        for name, part in _PARTS.items()
    }


def metadata_changes(states: Iterable[MetadataState]) -> list[Change]:
    """The values that differ between the first and the last state, each with its last change."""
    moments: dict[Path, MetadataState] = {}
    first: MetadataState | None = None
    last: MetadataState | None = None
    for each in states:
        if last is not None:
            moments |= dict.fromkeys((path for path, _, _ in _between(last, each)), each)
        first, last = first or each, each
    assert first is not None, "there is a first state"
    assert last is not None, "and a last one"
    return [
        Change(path, before, after, at.next_offset, at.timestamp, at.is_jump)
        for path, before, after in _between(first, last)
        for at in [_moment(moments, path)]
    ]


def _moment(moments: Mapping[Path, MetadataState], path: Path) -> MetadataState:
    """The last change of a value, or else of what is in it or around it."""
    if path in moments:
        return moments[path]
    near = (at for each, at in moments.items() if each[: len(path)] == path[: len(each)])
    return max(near, key=lambda at: at.next_offset)


def _between(before: MetadataState, after: MetadataState) -> Iterator[tuple[Path, object, object]]:
    for name, part in _PARTS.items():
        old, new = part.entries(before.image), part.entries(after.image)
        if old is not new:
            gone = {key: each for key, each in old.items() if new.get(key) is not each}
            come = {key: each for key, each in new.items() if old.get(key) is not each}
            yield from _differences(_named(part, gone), _named(part, come), (name,))


def _named(part: _Part, entries: Mapping[Any, Any]) -> Tree:
    return {part.title(key, each): part.plain(each) for key, each in entries.items()}


def _differences(before: Tree, after: Tree, path: Path) -> Iterator[tuple[Path, object, object]]:
    for name in [*before, *(each for each in after if each not in before)]:
        old, new = before.get(name), after.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, (*path, name))
        elif old != new:
            yield (*path, name), old, new


def _key(key: object, _: object) -> str:
    return str(key)


def _topic(topic: TopicState) -> Tree:
    left_out = {"topic_id", "partition_id"}
    parts = {
        str(number): {
            name: value for name, value in record_fields(each).items() if name not in left_out
        }
        for number, each in sorted(topic.partitions.items())
    }
    return {"topic_id": format_topic_id(topic.topic_id), "partitions": parts}


def _resource(key: ConfigResource, _: object) -> str:
    kind = RESOURCES.get(key.type, f"resource type {key.type}")
    return f"{kind} {key.name or '<default>'}"


def _settings(settings: Mapping[str, str]) -> Tree:
    return {name: shown_setting(name, value) for name, value in settings.items()}


def _entity(key: QuotaEntity, _: object) -> str:
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in key.parts)


def _user(_: object, record: UserScramCredentialRecord) -> str:
    mechanism = MECHANISMS.get(record.mechanism, f"mechanism {record.mechanism}")
    return f"{record.name} {mechanism}"


_PARTS: Final[dict[str, _Part]] = {
    "features": _Part(lambda image: image.features, _key, int),
    "brokers": _Part(lambda image: image.brokers, _key, record_fields),
    "controllers": _Part(lambda image: image.controllers, _key, record_fields),
    "topics": _Part(lambda image: image.topics, lambda _, each: each.name, _topic),
    "settings": _Part(lambda image: image.configs, _resource, _settings),
    "quotas": _Part(lambda image: image.quotas, _entity, dict),
    "producer_ids": _Part(
        lambda image: {} if image.next_producer_id is None else {"next": image.next_producer_id},
        _key,
        int,
    ),
    "acls": _Part(lambda image: image.acls, lambda key, _: format_topic_id(key), record_fields),
    "users": _Part(lambda image: image.scram, _user, credential_fields),
    "tokens": _Part(lambda image: image.tokens, _key, record_fields),
}
