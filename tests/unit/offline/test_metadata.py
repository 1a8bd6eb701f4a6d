"""Tests of showing the records of the metadata log."""

import dataclasses
import uuid

import pytest

from tailrace.offline.metadata import SECRET, decode_metadata_record
from tailrace.protocol.metadata_log import encode_data
from tailrace.protocol.metadata_records import (
    BrokerEndpoint,
    ConfigRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UserScramCredentialRecord,
)

ID = uuid.UUID(int=1)
ID_TEXT = "AAAAAAAAAAAAAAAAAAAAAQ"


def test_a_change_has_only_the_fields_that_change() -> None:
    """Tagged fields that have their defaults are left out, and ids are as Kafka prints them."""
    record = PartitionChangeRecord(partition_id=3, topic_id=ID, isr=(1, 2))
    assert decode_metadata_record(None, encode_data(record, 2), is_control=False) == {
        "type": "PartitionChange",
        "version": 2,
        "partition_id": 3,
        "topic_id": ID_TEXT,
        "isr": [1, 2],
    }


def test_structs_and_ids_are_values_of_json() -> None:
    """A struct is an object, an array a list, an id is text."""
    listener = BrokerEndpoint(name="L", host="h", port=9092)
    broker = RegisterBrokerRecord(broker_id=1, end_points=(listener,), log_dirs=(ID,))
    found = decode_metadata_record(None, encode_data(broker, 3), is_control=False)
    assert found is not None
    assert found["end_points"] == [{"name": "L", "host": "h", "port": 9092, "security_protocol": 0}]
    assert found["log_dirs"] == [ID_TEXT]


def test_no_secret_is_a_value() -> None:
    """A credential has a fingerprint for its salt and keys, and a password says that it is one."""
    user = UserScramCredentialRecord(
        name="ann", mechanism=1, salt=b"\x01\xff", stored_key=b"\2", server_key=b"\3", iterations=9
    )
    shown = decode_metadata_record(None, encode_data(user, 0), is_control=False)
    assert shown is not None
    fingerprint = shown.pop("fingerprint")
    assert shown == {
        "type": "UserScramCredential", "version": 0, "name": "ann", "mechanism": 1, "iterations": 9
    }  # fmt: skip
    other = dataclasses.replace(user, stored_key=b"\4")
    changed = decode_metadata_record(None, encode_data(other, 0), is_control=False)
    assert changed is not None
    assert changed["fingerprint"] != fingerprint
    for name, value in (
        ("listener.name.a.ssl.keystore.password", SECRET),
        ("sasl.jaas.config", SECRET),
        ("ssl.keystore.type", "v"),
    ):
        setting = ConfigRecord(resource_type=4, resource_name="1", name=name, value="v")
        shown = decode_metadata_record(None, encode_data(setting, 0), is_control=False)
        assert shown is not None
        assert shown["value"] == value, name


def test_a_control_record_is_decoded_by_its_key() -> None:
    """The version of the quorum's protocol, without the version of its record twice."""
    found = decode_metadata_record(b"\0\0\0\5", bytes.fromhex("0000 0001 00"), is_control=True)
    assert found == {"type": "KRaftVersion", "version": 0, "kraft_version": 1}


@pytest.mark.parametrize("value", [None, b"", b"\1\6\0\0", b"\1\2\0", b"\2\2\0\0"])
def test_what_is_not_known_is_not_decoded(value: bytes | None) -> None:
    """Other types, cut values and later frames are for the caller to show as bytes."""
    assert decode_metadata_record(None, value, is_control=False) is None
