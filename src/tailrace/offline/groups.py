"""The records of `__consumer_offsets` as named fields, for people and for JSON.

What the bytes mean is `tailrace.protocol.coordinator_records`; what the groups have committed in
the end, `tailrace.offline.commits`.
"""

from tailrace.offline.commits import decode_group_key
from tailrace.protocol.coordinator_records import decode_value
from tailrace.protocol.errors import MalformedRecordError, UnknownRecordError
from tailrace.protocol.fields import fields_in
from tailrace.protocol.records import GroupMetadataKey, GroupMetadataValue, OffsetCommitValue

Fields = dict[str, object]


def decode_group_record(key: bytes | None, value: bytes | None) -> Fields | None:
    """The fields by name, or None where this is no record of a known type and version."""
    try:
        return _decode(key, value)
    except (MalformedRecordError, UnknownRecordError):
        return None


def _decode(key: bytes | None, value: bytes | None) -> Fields:
    found = decode_group_key(key)
    fields: Fields
    if isinstance(found, GroupMetadataKey):
        fields = {"type": "group", "group": found.group}
    else:
        fields = {
            "type": "offset-commit",
            "group": found.group,
            "topic": found.topic,
            "partition": found.partition,
        }
    if value is None:
        return {**fields, "tombstone": True}
    if isinstance(found, GroupMetadataKey):
        group = decode_value(GroupMetadataValue, value).value
        return {**fields, "protocol_type": group.protocol_type, "generation": group.generation}
    version, commit = decode_value(OffsetCommitValue, value)
    names = [field.name for field in fields_in(OffsetCommitValue, version)]
    return {**fields, **{name: getattr(commit, name) for name in names}}
