"""The records of `__consumer_offsets`, from bytes written by hand after the format's drawing."""

import re
import uuid
from pathlib import Path

import pytest

from tailrace.records.group_records import (
    CorruptGroupRecordError,
    GroupKey,
    GroupMember,
    OffsetCommitKey,
    UnknownGroupRecordError,
    decode_group,
    decode_key,
    decode_offset_commit,
)

TIME = 1_700_000_000_000
TIME_HEX = "0000018bcfe56800"
OFFSET_HEX = "00000000000000aa"
"""170."""
TOPIC_ID = uuid.UUID("a829d7bb-f68b-4b3b-a7cc-9af2da2f3df4")

COMMIT_KEY = bytes.fromhex("0001 0007 72656164657273 0007 666c6967687473 00000003")
COMMITS = {
    0: f"0000 {OFFSET_HEX} 0001 6d {TIME_HEX}",
    1: f"0001 {OFFSET_HEX} 0001 6d {TIME_HEX} {TIME_HEX}",
    2: f"0002 {OFFSET_HEX} 0001 6d {TIME_HEX}",
    3: f"0003 {OFFSET_HEX} 00000007 0001 6d {TIME_HEX}",
    4: f"0004 {OFFSET_HEX} 00000007 02 6d {TIME_HEX} 01 00 10 {TOPIC_ID.hex}",
}
MEMBER = "0002 6d31 {instance} 0001 63 0002 2f68 {rebalance} 00002710 00000001 73 00000001 61"
GROUPS = {
    0: "0000 0008 636f6e73756d6572 00000002 0005 72616e6765 0002 6d31 00000001 "
    + MEMBER.format(instance="", rebalance=""),
    1: "0001 0008 636f6e73756d6572 00000002 0005 72616e6765 0002 6d31 00000001 "
    + MEMBER.format(instance="", rebalance="00007530"),
    2: f"0002 0008 636f6e73756d6572 00000002 0005 72616e6765 0002 6d31 {TIME_HEX} 00000001 "
    + MEMBER.format(instance="", rebalance="00007530"),
    3: f"0003 0008 636f6e73756d6572 00000002 0005 72616e6765 0002 6d31 {TIME_HEX} 00000001 "
    + MEMBER.format(instance="0001 69", rebalance="00007530"),
    4: f"0004 09 636f6e73756d6572 00000002 06 72616e6765 03 6d31 {TIME_HEX} 02 "
    "03 6d31 02 69 02 63 03 2f68 00007530 00002710 02 73 02 61 00 00",
}


@pytest.mark.parametrize("version", COMMITS)
def test_each_version_of_an_offset_commit_is_read(version: int) -> None:
    """Every field of the version has its value, and None stands for those it lacks."""
    commit = decode_offset_commit(bytes.fromhex(COMMITS[version]))
    assert (commit.version, commit.offset, commit.metadata) == (version, 170, "m")
    assert commit.commit_timestamp == TIME
    assert commit.expire_timestamp == (TIME if version == 1 else None)
    assert commit.leader_epoch == (7 if version >= 3 else None)
    assert commit.topic_id == (TOPIC_ID if version == 4 else None)


@pytest.mark.parametrize("version", GROUPS)
def test_each_version_of_a_group_is_read_with_its_members(version: int) -> None:
    """Every field of the version has its value, and None stands for those it lacks."""
    group = decode_group(bytes.fromhex(GROUPS[version]))
    assert (group.version, group.protocol_type, group.generation) == (version, "consumer", 2)
    assert (group.protocol, group.leader) == ("range", "m1")
    assert group.state_timestamp == (TIME if version >= 2 else None)
    assert group.members == (
        GroupMember(
            member_id="m1",
            instance_id="i" if version >= 3 else None,
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=30_000 if version >= 1 else None,
            session_timeout_ms=10_000,
            subscription=b"s",
            assignment=b"a",
        ),
    )


def test_keys_say_what_a_record_is_about() -> None:
    """Types 0 and 1 are the same key of an offset commit, and type 2 is a group's."""
    commit = OffsetCommitKey(group="readers", topic="flights", partition=3)
    assert decode_key(COMMIT_KEY) == commit
    assert decode_key(b"\0\0" + COMMIT_KEY[2:]) == commit
    assert decode_key(bytes.fromhex("0002 0002 6731")) == GroupKey(group="g1")


def test_a_null_string_and_a_null_topic_id_are_none() -> None:
    """Old clients commit without metadata, and transactional commits have no topic id."""
    commit = decode_offset_commit(bytes.fromhex(f"0003 {OFFSET_HEX} ffffffff ffff {TIME_HEX}"))
    assert (commit.metadata, commit.leader_epoch) == (None, -1)
    value = bytes.fromhex(f"0004 {OFFSET_HEX} ffffffff 01 {TIME_HEX} 00")
    assert (decode_offset_commit(value).metadata, decode_offset_commit(value).topic_id) == (
        "",
        None,
    )


def test_unknown_tagged_fields_are_passed_over() -> None:
    """A newer broker may add some under the same version."""
    value = bytes.fromhex(f"0004 {OFFSET_HEX} 00000007 02 6d {TIME_HEX} 01 05 03 010203")
    assert decode_offset_commit(value).offset == 170


@pytest.mark.parametrize(
    ("decode", "data", "what"),
    [
        (decode_key, "0003 0001 67", "key type 3 is not known"),
        (decode_offset_commit, "0005", "offset commit version 5 is not known"),
        (decode_offset_commit, "ffff", "offset commit version -1 is not known"),
        (decode_group, "0005", "group version 5 is not known"),
    ],
)
def test_unknown_types_and_versions_have_an_error_of_their_own(
    decode: object, data: str, what: str
) -> None:
    """It says what is not known, so that a reader can count it and go on."""
    with pytest.raises(UnknownGroupRecordError, match=what):
        decode(bytes.fromhex(data))  # type: ignore[operator]


def test_the_examples_of_the_page_are_read_as_it_says() -> None:
    """docs/formats/group-records.md has a key, and commits of two versions."""
    page = Path(__file__).parents[3] / "docs" / "formats" / "group-records.md"
    found = re.findall(r"^((?:[0-9a-f]+ )+) +(key|commit \d): ", page.read_text(), re.MULTILINE)
    examples = {name: bytes.fromhex(data) for data, name in found}
    assert examples.keys() == {"key", "commit 3", "commit 4"}
    assert examples["key"] == COMMIT_KEY
    for version in (3, 4):
        commit = decode_offset_commit(examples[f"commit {version}"])
        assert (commit.version, commit.offset, commit.leader_epoch) == (version, 170, 7)
        assert (commit.metadata, commit.commit_timestamp) == ("m", TIME)


def test_no_prefix_of_a_record_is_read() -> None:
    """The error says so, whatever is missing at the end."""
    commits = [bytes.fromhex(each) for each in COMMITS.values()]
    groups = [bytes.fromhex(each) for each in GROUPS.values()]
    for whole in [COMMIT_KEY]:
        for size in range(len(whole)):
            with pytest.raises(CorruptGroupRecordError):
                decode_key(whole[:size])
    for whole in commits:
        for size in range(len(whole)):
            with pytest.raises(CorruptGroupRecordError):
                decode_offset_commit(whole[:size])
    for whole in groups:
        # The tagged fields at the very end hold nothing, so nobody looks whether they are there.
        is_compact = whole[1] == 4
        for size in range(len(whole) - is_compact):
            with pytest.raises(CorruptGroupRecordError):
                decode_group(whole[:size])


@pytest.mark.parametrize(
    "value",
    [
        f"0003 {OFFSET_HEX} 00000007 0002 fffe {TIME_HEX}",
        f"0004 {OFFSET_HEX} 00000007 ffffffffffff {TIME_HEX} 00",
        f"0004 {OFFSET_HEX} 00000007 02 6d {TIME_HEX} 01 00 02 0102",
    ],
)
def test_text_that_is_none_and_sizes_that_do_not_fit_are_refused(value: str) -> None:
    """Text that is no UTF-8, a varint without an end, and a topic id of two bytes."""
    with pytest.raises(CorruptGroupRecordError):
        decode_offset_commit(bytes.fromhex(value))
