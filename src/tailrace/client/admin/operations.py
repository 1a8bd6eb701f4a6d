"""`BaseAdmin`: what `Admin` and `AsyncAdmin` can do, each written once, as steps without I/O.

    create_topics = _operation(topics.create_topics)

    admin.create_topics([...])                # Admin: returns the result
    await admin.create_topics([...])          # AsyncAdmin: the same, awaited

Parameters, results and documentation are those of the function, without its first parameter.
"""

from collections.abc import Callable
from copy import copy
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, Self, TypeVar

from tailrace.client.admin import (
    acls,
    cluster,
    configs,
    group_offsets,
    groups,
    offsets,
    quotas,
    replicas,
    topics,
    transactions,
    users,
)
from tailrace.client.admin.config import AdminConfig
from tailrace.client.calls import Call
from tailrace.client.drive.operation import Operation
from tailrace.client.drive.steps import Steps
from tailrace.client.nodes import NodesStatistics

P = ParamSpec("P")
T = TypeVar("T")


def _operation(
    function: Callable[Concatenate[Call, P], Steps[T]],
) -> "Operation[BaseAdmin, P, T]":
    """A method of an admin client, from the function of an operation."""

    @wraps(function)
    def steps(admin: "BaseAdmin", /, *arguments: P.args, **options: P.kwargs) -> Steps[T]:
        return function(admin._call(), *arguments, **options)

    # `wraps` has copied the function's own name, without the class.
    steps.__qualname__ = f"Admin.{function.__name__}"  # as `help` and tracebacks show it
    return Operation(steps)


class SharedConnections(Protocol):
    """The connections of a client, and of those that differ from it in the time limit alone."""

    def call(self, *, limit_ms: int, retries: int) -> Call:
        """The limits of an operation that begins now; raises ClosedAdminError after `close`."""
        ...

    def statistics(self) -> NodesStatistics:
        """The connections by node."""
        ...


class BaseAdmin:
    """Questions to a cluster, and changes in it."""

    def __init__(self, config: AdminConfig, shared: SharedConnections) -> None:
        self._shared_connections = shared
        self._retries = config.retries
        self._limit_ms = config.default_api_timeout_ms

    def within(self, timeout_ms: int) -> Self:
        """The same client with another time limit for each call.

            admin.within(5_000).describe_cluster()

        It shares connections with this one, and ends with it.
        """
        # A shallow copy: the connections are the same object, so one `close` ends both.
        other = copy(self)
        other._limit_ms = timeout_ms
        return other

    def statistics(self) -> NodesStatistics:
        """The connections by node; none before the first call."""
        return self._shared_connections.statistics()

    def _call(self) -> Call:
        return self._shared_connections.call(limit_ms=self._limit_ms, retries=self._retries)

    create_topics = _operation(topics.create_topics)
    delete_topics = _operation(topics.delete_topics)
    list_topics = _operation(topics.list_topics)
    describe_topics = _operation(topics.describe_topics)
    create_partitions = _operation(topics.create_partitions)
    delete_records = _operation(topics.delete_records)

    describe_configs = _operation(configs.describe_configs)
    incremental_alter_configs = _operation(configs.incremental_alter_configs)
    list_config_resources = _operation(configs.list_config_resources)

    list_offsets = _operation(offsets.list_offsets)
    log_ranges = _operation(offsets.log_ranges)
    find_offsets = _operation(offsets.find_offsets)

    list_groups = _operation(groups.list_groups)
    describe_groups = _operation(groups.describe_groups)
    delete_groups = _operation(groups.delete_groups)
    remove_members_from_group = _operation(groups.remove_members_from_group)
    list_group_offsets = _operation(group_offsets.list_group_offsets)
    alter_group_offsets = _operation(group_offsets.alter_group_offsets)
    delete_group_offsets = _operation(group_offsets.delete_group_offsets)
    reset_group_offsets = _operation(group_offsets.reset_group_offsets)

    list_transactions = _operation(transactions.list_transactions)
    describe_transactions = _operation(transactions.describe_transactions)
    describe_producers = _operation(transactions.describe_producers)
    find_hanging_transactions = _operation(transactions.find_hanging_transactions)
    abort_transaction = _operation(transactions.abort_transaction)
    fence_producers = _operation(transactions.fence_producers)
    end_transactions = _operation(transactions.end_transactions)
    force_terminate_transaction = _operation(transactions.force_terminate_transaction)

    describe_user_scram_credentials = _operation(users.describe_user_scram_credentials)
    alter_user_scram_credentials = _operation(users.alter_user_scram_credentials)
    create_acls = _operation(acls.create_acls)
    describe_acls = _operation(acls.describe_acls)
    delete_acls = _operation(acls.delete_acls)
    describe_client_quotas = _operation(quotas.describe_client_quotas)
    alter_client_quotas = _operation(quotas.alter_client_quotas)

    describe_log_dirs = _operation(replicas.describe_log_dirs)
    describe_replica_log_dirs = _operation(replicas.describe_replica_log_dirs)
    alter_replica_log_dirs = _operation(replicas.alter_replica_log_dirs)
    elect_leaders = _operation(replicas.elect_leaders)
    alter_partition_reassignments = _operation(replicas.alter_partition_reassignments)
    list_partition_reassignments = _operation(replicas.list_partition_reassignments)

    describe_cluster = _operation(cluster.describe_cluster)
    describe_features = _operation(cluster.describe_features)
    update_features = _operation(cluster.update_features)
    describe_metadata_quorum = _operation(cluster.describe_metadata_quorum)
    add_raft_voter = _operation(cluster.add_raft_voter)
    remove_raft_voter = _operation(cluster.remove_raft_voter)
    unregister_broker = _operation(cluster.unregister_broker)
