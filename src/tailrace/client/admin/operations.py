"""`Operations`: what `Admin` and `AsyncAdmin` can do, each written once, as steps without I/O.

    class Operations:
        create_topics = Operation(topics.create_topics)

    admin.create_topics([...])                # Admin: returns the result
    await admin.create_topics([...])          # AsyncAdmin: the same, awaited

Parameters, results and documentation are those of the function, without its first parameter.
"""

import inspect
from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from tailrace.client.admin import (
    acls,
    cluster,
    configs,
    group_offsets,
    groups,
    log_dirs,
    offsets,
    quotas,
    replicas,
    topics,
    transactions,
    users,
)
from tailrace.client.steps import Call, Steps

if TYPE_CHECKING:
    from tailrace.client.admin.aio import AsyncAdmin
    from tailrace.client.admin.blocking import Admin

P = ParamSpec("P")
T = TypeVar("T")


class Operation(Generic[P, T]):
    """One operation as a method of both clients; of their class it is the function itself."""

    def __init__(self, steps: Callable[Concatenate[Call, P], Steps[T]]) -> None:
        self._steps = steps

    @overload
    def __get__(self, face: None, owner: type) -> Callable[Concatenate[Call, P], Steps[T]]: ...

    @overload
    def __get__(self, face: "Admin", owner: type) -> Callable[P, T]: ...

    @overload
    def __get__(self, face: "AsyncAdmin", owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, face: "Admin | AsyncAdmin | None", owner: type) -> object:
        if face is None:
            return self._steps
        steps, run = self._steps, face.run

        def method(*arguments: P.args, **options: P.kwargs) -> object:
            return run(steps, *arguments, **options)

        method.__name__ = steps.__name__
        method.__qualname__ = f"{owner.__name__}.{steps.__name__}"
        method.__doc__ = steps.__doc__
        method.__signature__ = self._signature  # type: ignore[attr-defined]
        return method

    @cached_property
    def _signature(self) -> inspect.Signature:
        whole = inspect.signature(self._steps)
        return whole.replace(parameters=[*whole.parameters.values()][1:])


class Operations:
    """Questions to a cluster, and changes in it."""

    create_topics = Operation(topics.create_topics)
    delete_topics = Operation(topics.delete_topics)
    list_topics = Operation(topics.list_topics)
    describe_topics = Operation(topics.describe_topics)
    create_partitions = Operation(topics.create_partitions)
    delete_records = Operation(topics.delete_records)

    describe_configs = Operation(configs.describe_configs)
    incremental_alter_configs = Operation(configs.incremental_alter_configs)
    list_config_resources = Operation(configs.list_config_resources)

    list_offsets = Operation(offsets.list_offsets)
    log_ranges = Operation(offsets.log_ranges)
    find_offsets = Operation(offsets.find_offsets)

    list_groups = Operation(groups.list_groups)
    describe_groups = Operation(groups.describe_groups)
    delete_groups = Operation(groups.delete_groups)
    remove_members_from_group = Operation(groups.remove_members_from_group)
    list_group_offsets = Operation(group_offsets.list_group_offsets)
    alter_group_offsets = Operation(group_offsets.alter_group_offsets)
    delete_group_offsets = Operation(group_offsets.delete_group_offsets)
    reset_group_offsets = Operation(group_offsets.reset_group_offsets)

    list_transactions = Operation(transactions.list_transactions)
    describe_transactions = Operation(transactions.describe_transactions)
    describe_producers = Operation(transactions.describe_producers)
    find_hanging_transactions = Operation(transactions.find_hanging_transactions)
    abort_transaction = Operation(transactions.abort_transaction)
    fence_producers = Operation(transactions.fence_producers)
    end_transactions = Operation(transactions.end_transactions)
    force_terminate_transaction = Operation(transactions.force_terminate_transaction)

    describe_user_scram_credentials = Operation(users.describe_user_scram_credentials)
    alter_user_scram_credentials = Operation(users.alter_user_scram_credentials)
    create_acls = Operation(acls.create_acls)
    describe_acls = Operation(acls.describe_acls)
    delete_acls = Operation(acls.delete_acls)
    describe_client_quotas = Operation(quotas.describe_client_quotas)
    alter_client_quotas = Operation(quotas.alter_client_quotas)

    describe_log_dirs = Operation(log_dirs.describe_log_dirs)
    describe_replica_log_dirs = Operation(log_dirs.describe_replica_log_dirs)
    alter_replica_log_dirs = Operation(log_dirs.alter_replica_log_dirs)
    elect_leaders = Operation(replicas.elect_leaders)
    alter_partition_reassignments = Operation(replicas.alter_partition_reassignments)
    list_partition_reassignments = Operation(replicas.list_partition_reassignments)

    describe_cluster = Operation(cluster.describe_cluster)
    describe_features = Operation(cluster.describe_features)
    update_features = Operation(cluster.update_features)
    describe_metadata_quorum = Operation(cluster.describe_metadata_quorum)
    unregister_broker = Operation(cluster.unregister_broker)
