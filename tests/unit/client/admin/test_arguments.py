"""Arguments that an operation cannot take: a TypeError that names them, before anything is sent."""

import re
from typing import Any

import pytest

from tailrace.client.admin import Admin, CommittedOffset, ConfigResource, OffsetAt, Place
from tailrace.model import TopicPartition
from tests.unit.client.admin.stage import ask, on_stage

T0 = TopicPartition("t", 0)
END = {"to": OffsetAt(Place.LATEST)}

WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("create_topics", ("t",), {}, "topics is a str; give a list"),
    ("create_topics", (["t"],), {}, "topics has a str; each has to be a NewTopic"),
    ("delete_topics", (3,), {}, "topics is an int; give a list"),
    ("delete_topics", ([3],), {}, "topics has an int; each has to be a name or a UUID"),
    ("describe_topics", ("t",), {}, "topics is a str; give a list"),
    ("create_partitions", (3,), {}, "counts is an int; give a mapping"),
    ("create_partitions", (["t"],), {}, "counts is a list; give a mapping"),
    ("create_partitions", ({"t": "3"},), {}, "counts has a str for 't'; give int or NewPart"),
    ("create_partitions", ({3: 3},), {}, "counts has an int; each has to be a str"),
    ("delete_records", ([T0],), {}, "before is a list; give a mapping"),
    ("delete_records", ({"t": 3},), {}, "before has a str ('t'); give TopicPartition(topic, "),
    ("delete_records", ({T0: "3"},), {}, "before has a str for TopicPartition("),
    ("describe_configs", (["t"],), {}, "resources has a str; each has to be a ConfigResource"),
    ("incremental_alter_configs", (3,), {}, "resources is an int; give a list"),
    ("incremental_alter_configs", ({"t": {}},), {}, "resources has a str; each has to be a"),
    (
        "incremental_alter_configs",
        ({ConfigResource(2, "t"): 3},),
        {},
        "the changes of topic t is",
    ),
    ("list_offsets", (3,), {}, "questions is an int; give a mapping"),
    ("list_offsets", ({"t": 3},), {}, "questions has a str ('t'); give TopicPartition(topic, "),
    ("list_offsets", ({T0: "latest"},), {}, "questions has a str for TopicPartition("),
    ("describe_groups", ("g",), {}, "groups is a str; give a list"),
    ("delete_groups", ([3],), {}, "groups has an int; each has to be a str"),
    ("list_group_offsets", (3,), {}, "group is an int (3); give its name as a str"),
    ("list_group_offsets", ("g", "t"), {}, "partitions is a str; give a list"),
    ("list_group_offsets", ("g", T0), {}, "partitions is one partition ("),
    ("list_group_offsets", ("g", [3]), {}, "partitions has an int (3); give TopicPartition("),
    ("alter_group_offsets", (3, {T0: 1}), {}, "group is an int (3); give its name as a str"),
    ("alter_group_offsets", ("g", 3), {}, "offsets is an int; give a mapping"),
    ("alter_group_offsets", ("g", {"t": 1}), {}, "offsets has a str ('t'); give TopicPartition("),
    ("alter_group_offsets", ("g", {T0: "1"}), {}, "give int or CommittedOffset"),
    ("delete_group_offsets", (3, [T0]), {}, "group is an int (3); give its name as a str"),
    ("delete_group_offsets", ("g", T0), {}, "partitions is one partition ("),
    ("reset_group_offsets", ("g", 3), END, "partitions is an int; give a list"),
    ("reset_group_offsets", ("g", [T0]), {"to": 3}, "to is an int; give an OffsetAt"),
    ("remove_members_from_group", ("g", 3), {}, "instance_ids is an int; give a list"),
    ("describe_transactions", ("x",), {}, "transactional_ids is a str; give a list"),
    ("fence_producers", ([3],), {}, "transactional_ids has an int; each has to be a str"),
    (
        "end_transactions",
        (["x"],),
        {"commit": True},
        "transactions has a str; each has to be a PreparedTransaction",
    ),
    ("describe_producers", (["t"],), {}, "partitions has a str ('t'); give TopicPartition("),
    ("create_acls", ([3],), {}, "bindings has an int; each has to be a AclBinding"),
    ("describe_acls", (3,), {}, "matching has an int; each has to be a AclFilter"),
    ("delete_acls", ([3],), {}, "filters has an int; each has to be a AclFilter"),
    ("describe_client_quotas", (3,), {}, "matching is an int; give a mapping"),
    ("alter_client_quotas", (3,), {}, "changes is an int; give a mapping"),
    ("alter_client_quotas", ({"u": {}},), {}, "changes has a str; each has to be a QuotaEntity"),
    ("describe_user_scram_credentials", ("u",), {}, "users is a str; give a list"),
    ("alter_user_scram_credentials", ([3],), {}, "changes has an int; each has to be a Scram"),
    ("elect_leaders", (3,), {}, "partitions is an int; give a list"),
    ("alter_partition_reassignments", ({"t": [1]},), {}, "replicas has a str ('t'); give"),
    ("alter_partition_reassignments", ({T0: 3},), {}, "replicas has an int for TopicPartition("),
    ("list_partition_reassignments", (3,), {}, "partitions is an int; give a list"),
    ("describe_log_dirs", (["1"],), {}, "brokers has a str; each has to be a int"),
    ("alter_replica_log_dirs", (3,), {}, "moves is an int; give a mapping"),
    ("update_features", (3,), {}, "updates is an int; give a mapping"),
    ("update_features", ({"f": 3},), {}, "updates has an int for 'f'; give FeatureUpdate"),
]


@pytest.mark.parametrize("offset", [-1, -5])
def test_a_negative_offset_is_refused_before_anything_is_sent(offset: int) -> None:
    """A broker would take it, and the group would have none there any more."""
    for given in (offset, CommittedOffset(offset=offset)):
        with pytest.raises(ValueError, match="is negative; delete_group_offsets removes one"):
            on_stage(ask("alter_group_offsets", "g", {T0: given}))


@pytest.mark.parametrize(
    ("method", "given", "named", "sentence"),
    WRONG,
    ids=lambda each: each if isinstance(each, str) and each.isidentifier() else "",
)
def test_a_wrong_argument_is_named_before_anything_is_sent(
    method: str, given: tuple[Any, ...], named: dict[str, Any], sentence: str
) -> None:
    """It is one sentence for both clients, and no node was asked."""
    with pytest.raises(TypeError, match=re.escape(sentence)) as caught:
        on_stage(ask(method, *given, **named))
    assert "\n" not in str(caught.value)
    with Admin(bootstrap_servers="localhost:1") as admin, pytest.raises(TypeError) as same:
        getattr(admin, method)(*given, **named)
    assert str(same.value) == str(caught.value)
