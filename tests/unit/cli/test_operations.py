"""Each operation of the admin client has a command, or a reason why it has none."""

from pathlib import Path
from typing import Final

import click
import pytest

import tailrace.cli
from tailrace.cli import commands
from tailrace.client.admin.operations import BaseAdmin
from tailrace.client.drive.operation import Operation

COMMANDS: Final = {
    "create_topics": "topic create",
    "delete_topics": "topic delete",
    "list_topics": "topic list",
    "describe_topics": "topic describe",
    "create_partitions": "topic alter",
    "delete_records": "topic delete-records",
    "describe_configs": "broker describe",
    "incremental_alter_configs": "broker alter",
    "log_ranges": "topic describe",
    "find_offsets": "consume",
    "list_groups": "group list",
    "describe_groups": "group describe",
    "delete_groups": "group delete",
    "remove_members_from_group": "group remove-members",
    "list_group_offsets": "group describe",
    "alter_group_offsets": "consume",
    "delete_group_offsets": "group delete-offsets",
    "reset_group_offsets": "group reset",
    "list_transactions": "transaction list",
    "describe_transactions": "transaction describe",
    "find_hanging_transactions": "transaction find-hanging",
    "abort_transaction": "transaction abort",
    "force_terminate_transaction": "transaction terminate",
    "describe_user_scram_credentials": "user list",
    "alter_user_scram_credentials": "user create",
    "create_acls": "acl add",
    "describe_acls": "acl list",
    "delete_acls": "acl remove",
    "describe_client_quotas": "quota list",
    "alter_client_quotas": "quota set",
    "describe_log_dirs": "broker log-dirs",
    "alter_replica_log_dirs": "broker move-logs",
    "elect_leaders": "topic elect-leaders",
    "alter_partition_reassignments": "cluster migrate",
    "list_partition_reassignments": "topic describe",
    "describe_cluster": "cluster describe",
    "describe_features": "features describe",
    "update_features": "features upgrade",
    "describe_metadata_quorum": "cluster describe",
    "add_raft_voter": "cluster add-controller",
    "remove_raft_voter": "cluster remove-controller",
    "unregister_broker": "cluster unregister",
}
"""A command that does the operation, by its name; others may do it too."""

WITHOUT: Final = {
    "list_config_resources": "topics, groups and brokers have commands that list them",
    "list_offsets": "topic describe shows both ends, and consume finds the offset of a time",
    "describe_producers": "transaction find-hanging shows the producers that hold readers up",
    "describe_replica_log_dirs": "broker log-dirs --topic shows both directories of a move",
    "fence_producers": "transaction terminate does it with one transactional id",
    "end_transactions": "only the program that prepared them knows how they have to end",
}
"""Reasons, by operation."""


def operations() -> set[str]:
    """The names of all operations of `Admin`."""
    return {name for name, each in vars(BaseAdmin).items() if isinstance(each, Operation)}


def test_each_operation_has_a_command_or_a_reason() -> None:
    """A new operation needs one of both, and none is left here that is gone."""
    assert not COMMANDS.keys() & WITHOUT.keys()
    assert COMMANDS.keys() | WITHOUT.keys() == operations()


@pytest.mark.parametrize("path", sorted(set(COMMANDS.values())))
def test_the_commands_exist(path: str) -> None:
    """Each can be asked for its help."""
    command: click.Command | None = commands
    for word in path.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    assert command.help


def test_operations_without_a_command_are_not_used_by_any() -> None:
    """Else the reason would be wrong."""
    sources = "".join(each.read_text() for each in Path(tailrace.cli.__path__[0]).glob("*.py"))
    assert [name for name in WITHOUT if f" {name}," in sources] == []
