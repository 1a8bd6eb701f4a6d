"""The records of `__consumer_offsets` as named fields, for people and for JSON.

What the bytes mean is `tailrace.records.group_records`; what the groups have committed in the end,
`tailrace.offline.commits`.
"""

from tailrace.records.group_records import (
    CorruptGroupRecordError,
    OffsetCommitKey,
    UnknownGroupRecordError,
    decode_group,
    decode_key,
    decode_offset_commit,
)

Fields = dict[str, object]


def decode_group_record(key: bytes | None, value: bytes | None) -> Fields | None:
    """The fields by name, or None where this is no record of a known type and version."""
    try:
        return _decode(key, value)
    except (CorruptGroupRecordError, UnknownGroupRecordError):
        return None


def _decode(key: bytes | None, value: bytes | None) -> Fields:
    found = decode_key(key)
    fields: Fields
    if isinstance(found, OffsetCommitKey):
        fields = {
            "type": "offset-commit",
            "group": found.group,
            "topic": found.topic,
            "partition": found.partition,
        }
    else:
        fields = {"type": "group", "group": found.group}
    if value is None:
        return {**fields, "tombstone": True}
    if isinstance(found, OffsetCommitKey):
        return {**fields, **_commit(value)}
    group = decode_group(value)
    return {**fields, "protocol_type": group.protocol_type, "generation": group.generation}


def _commit(value: bytes) -> Fields:
    commit = decode_offset_commit(value)
    fields: Fields = {"offset": commit.offset}
    if commit.leader_epoch is not None:
        fields["leader_epoch"] = commit.leader_epoch
    fields["metadata"] = commit.metadata
    fields["commit_timestamp"] = commit.commit_timestamp
    if commit.expire_timestamp is not None:
        fields["expire_timestamp"] = commit.expire_timestamp
    return fields
