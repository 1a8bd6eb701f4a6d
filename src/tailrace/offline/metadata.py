"""The records of `__cluster_metadata` as named fields, for people and for JSON.

The bytes are read by `tailrace.protocol.metadata_log`.

Invariant: no field has a secret. A SCRAM credential has its iterations and a fingerprint, which
shows that a password has changed and nothing about it; a setting that is a password has `SECRET`.
"""

import hashlib
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

from tailrace.config.settings import is_secret_name
from tailrace.protocol.errors import MalformedRecordError, UnknownRecordError
from tailrace.protocol.fields import Message, fields_in, tagged_fields_in
from tailrace.protocol.metadata_log import VersionedRecord, decode_control, decode_data
from tailrace.storage.checkpoints import format_topic_id

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import ConfigRecord, UserScramCredentialRecord

Fields = dict[str, object]

SECRET: Final = "(secret)"  # noqa: S105 - a placeholder
"""Shown in place of the value of a setting that is a password."""


def decode_metadata_record(
    key: bytes | None, value: bytes | None, *, is_control: bool
) -> Fields | None:
    """The type, the version and the fields, or None where they are not known.

    A tagged field that has its default is left out, as it is in the bytes. Ids are in Kafka's
    base64, bytes are hexadecimal digits.
    """
    try:
        found = decode_control(key, value) if is_control else decode_data(value)
    except (MalformedRecordError, UnknownRecordError):
        return None
    return _fields(found)


def record_fields(record: Message) -> Fields:
    """The fields of a record in its newest version, as those of `decode_metadata_record`."""
    return _struct(record, record.last_version)


def credential_fields(record: "UserScramCredentialRecord") -> Fields:
    """The fields of a SCRAM credential that may be shown: iterations and a fingerprint."""
    # Salt and stored key let anybody guess the password offline. A digest of both only shows
    # whether two credentials are the same.
    digest = hashlib.sha256(
        b"".join(len(each).to_bytes(4) + each for each in (record.salt, record.stored_key))
    )
    return {"iterations": record.iterations, "fingerprint": digest.hexdigest()[:16]}


def shown_setting(name: str, value: str | None) -> str | None:
    """The value of a setting, or `SECRET` for one that is a password."""
    return SECRET if value is not None and is_secret_name(name) else value


def _fields(found: VersionedRecord) -> Fields:
    version, record = found
    named = _struct(record, version)
    named.pop("version", None)
    match type(record).__name__:
        case "UserScramCredentialRecord":
            user = cast("UserScramCredentialRecord", record)
            named = {"name": user.name, "mechanism": user.mechanism} | credential_fields(user)
        case "ConfigRecord":
            config = cast("ConfigRecord", record)
            named["value"] = shown_setting(config.name, config.value)
    return {
        "type": type(record).__name__.removesuffix("Record").removesuffix("Message"),
        "version": version,
        **named,
    }


def _struct(struct: object, version: int) -> Fields:
    kind = type(struct)
    shown = {each.name: getattr(struct, each.name) for each in fields_in(kind, version)}
    for each in tagged_fields_in(kind, version):
        value = getattr(struct, each.name)
        # A tagged field with its default is not on the wire (KIP-482).
        if value != each.default:
            shown[each.name] = value
    return {name: _shown(value, version) for name, value in shown.items()}


def _shown(value: object, version: int) -> object:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case UUID():
            return format_topic_id(value)
        case bytes() | memoryview():
            return value.hex()
        case tuple():
            return [_shown(each, version) for each in value]
        case _:
            return _struct(value, version)
