"""Every API by clients with and without each right that it needs, to Kafka and to our broker.

    python -m compat.acl_answers     writes tests/unit/broker/acl_answers.tsv anew, from what Kafka
                                     answers

The table is `tests.unit.broker.acl_answers`. Each cell logs in to Kafka as a user of its own, by
PLAIN. Then one directory goes from Kafka to our broker and back, and entries that either has made
count for both: there all clients are `User:ANONYMOUS`, which is no super user.

Invariant: no answer in the file was worked out by Tailrace.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self
from uuid import UUID

from compat import ours
from compat.artifacts import KAFKA, class_path
from compat.kafka import NODE_ID, Kafka
from compat.processes import free_ports
from compat.report import Report
from compat.topics import create_topics
from compat.transaction_answers import Connection
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tailrace.protocol.messages.describe_acls import DescribeAclsRequest
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tailrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tailrace.security.acls import AclBinding, AclOperation, AclResource
from tailrace.security.authorizer_config import STANDARD_AUTHORIZER
from tailrace.spark.java import find_java
from tests.unit.broker.acl_answers import (
    ANSWERS,
    GROUP,
    HEADER,
    HIDDEN,
    SECRET,
    TOPIC,
    cells,
    line,
)

CREATED_PER_REQUEST = 200
ANONYMOUS = "User:ANONYMOUS"
_JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule"
_USERS = [f"c{number}" for number in range(1000)]
_SECURED = {"authorizer.class.name": STANDARD_AUTHORIZER}

_Entry = tuple[int, str, int, str, str, int, int]


def check(report: Report, kafka: Kafka) -> None:
    """Compare the file with Kafka, and entries of both on one directory; `kafka` is new."""
    theirs = _answers_of_kafka(kafka)
    report.check(
        "the answers to clients without rights to which make test holds our broker are Kafka's",
        [*_differences(ANSWERS.read_text().splitlines()[1:], theirs)],
    )
    _check_directory(report, kafka.moved_to(kafka.directory / "handed-over"))


def _differences(due: Sequence[str], found: Sequence[str]) -> Iterator[str]:
    known = {each.rpartition("\t")[0]: each for each in found}
    for each in due:
        answer = known.get(each.rpartition("\t")[0])
        if answer != each:
            yield f"{each!r} is due, and it is {answer!r}"


def _answers_of_kafka(kafka: Kafka) -> list[str]:
    plain, sasl, controller = (f"127.0.0.1:{port}" for port in free_ports(3))
    public = f"PLAINTEXT://{plain},SASL_PLAINTEXT://{sasl}"
    passwords = " ".join(f'user_{each}="{each}"' for each in _USERS)
    kafka.settings |= {
        **_SECURED,
        "super.users": ANONYMOUS,
        "listeners": f"{public},CONTROLLER://{controller}",
        "advertised.listeners": public,
        "controller.quorum.voters": f"{NODE_ID}@{controller}",
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{_JAAS} required {passwords};",
    }
    with kafka, Connection(plain) as admin:
        ids = _prepare(admin, plain)
        asked = list(cells(ids))
        _create(admin, [binding for each in asked for binding in each.bindings])
        lines = []
        for each in asked:
            with _LoggedIn(sasl, each.principal.partition(":")[2]) as user:
                try:
                    answer = user.ask(each.question.request, each.question.version)
                except EOFError:
                    answer = None
            lines.append(line(each, answer))
        return lines


class _LoggedIn(Connection):
    """A connection of a user, whose password is the name."""

    def __init__(self, servers: str, name: str) -> None:
        super().__init__(servers)
        self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = b"\0".join((b"", name.encode(), name.encode()))
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert answer.error_code == ErrorCode.NONE, answer

    def __enter__(self) -> Self:
        return self


def _prepare(admin: Connection, servers: str) -> dict[str, UUID]:
    """Make the topics and groups that questions name; returns the ids of the topics."""
    create_topics(servers, {TOPIC: {}, SECRET: {}})
    admin.wait_for_coordinators()
    offset = (OffsetCommitRequestPartition(partition_index=0, committed_offset=0),)
    for group in (GROUP, HIDDEN):
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=tuple(
                OffsetCommitRequestTopic(name=each, partitions=offset) for each in (TOPIC, SECRET)
            ),
        )
        answer = admin.ask(request, 8)
        codes = {part.error_code for each in answer.topics for part in each.partitions}
        assert codes == {ErrorCode.NONE}, answer
    named = tuple(MetadataRequestTopic(name=each) for each in (TOPIC, SECRET))
    topics = admin.ask(MetadataRequest(topics=named), 12).topics
    return {each.name: each.topic_id for each in topics}


def _create(admin: Connection, bindings: Sequence[AclBinding]) -> None:
    creations = [
        AclCreation(
            resource_type=each.resource,
            resource_name=each.name,
            resource_pattern_type=each.pattern,
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission_type=each.permission,
        )
        for each in bindings
    ]
    for at in range(0, len(creations), CREATED_PER_REQUEST):
        request = CreateAclsRequest(creations=tuple(creations[at : at + CREATED_PER_REQUEST]))
        answer = admin.ask(request, 3)
        assert {each.error_code for each in answer.results} <= {ErrorCode.NONE}, answer


def _check_directory(report: Report, kafka: Kafka) -> None:
    """Entries made by one count for the other, on the same directory."""
    describe, alter = (
        AclBinding(AclResource.CLUSTER, "kafka-cluster", ANONYMOUS, each)
        for each in (AclOperation.DESCRIBE, AclOperation.ALTER)
    )
    readable = AclBinding(AclResource.TOPIC, TOPIC, ANONYMOUS, AclOperation.DESCRIBE)
    with kafka, Connection(kafka.bootstrap_servers) as admin:
        _create(admin, [describe, alter, readable])
        made = _entries(admin)
    with (
        ours.serving(kafka.logs, settings=_SECURED) as servers,
        Connection(servers) as client,
    ):
        report.check("our broker has the entries that Kafka has made", _equal(made, client))
        report.check("and decides by them", _expected(client, {TOPIC: _NONE, SECRET: _REFUSED}))
        more = AclBinding(AclResource.TOPIC, SECRET, ANONYMOUS, AclOperation.DESCRIBE)
        _create(client, [more])
        made = _entries(client)
    with kafka, Connection(kafka.bootstrap_servers) as admin:
        report.check("Kafka has the entries that our broker has made", _equal(made, admin))


_NONE, _REFUSED = ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _entries(admin: Connection) -> set[_Entry]:
    request = DescribeAclsRequest(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
        principal_filter=None, host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    answer = admin.ask(request, 3)
    assert answer.error_code == ErrorCode.NONE, answer
    return {
        (
            resource.resource_type, resource.resource_name, resource.pattern_type, acl.principal,
            acl.host, acl.operation, acl.permission_type,
        )
        for resource in answer.resources
        for acl in resource.acls
    }  # fmt: skip


def _equal(made: set[_Entry], admin: Connection) -> list[str]:
    return [f"{each} is on one side only" for each in sorted(made ^ _entries(admin))]


def _expected(client: Connection, codes: Mapping[str, ErrorCode]) -> list[str]:
    latest = (ListOffsetsPartition(partition_index=0, timestamp=-1),)
    request = ListOffsetsRequest(
        topics=tuple(ListOffsetsTopic(name=each, partitions=latest) for each in codes)
    )
    answer = client.ask(request, 7)
    found = {each.name: ErrorCode(each.partitions[0].error_code) for each in answer.topics}
    return [] if found == codes else [f"{found} where {codes} is due"]


def main() -> None:
    """Write the file."""
    java, jars = find_java(os.environ).home / "bin" / "java", class_path(KAFKA, os.environ)
    with tempfile.TemporaryDirectory(prefix="tailrace-answers-", dir="/var/tmp") as directory:
        lines = _answers_of_kafka(Kafka(java, jars, Path(directory) / "kafka"))
    ANSWERS.write_text("\n".join([HEADER, *lines]) + "\n")
    print(f"{ANSWERS}: {len(lines)} answers", file=sys.stderr)


if __name__ == "__main__":
    main()
