"""The meaning of each API: one function, which begins with the contract of the API.

The function of ListOffsets is `handle_list_offsets`; so it is with every API. It takes the broker's
services, the request's header and the request. A handler never touches a socket; errors of the
rooms below become Kafka's codes here and nowhere else.

An API has a module of its name, or shares one (`SHARED`). `tailrace.broker.wiring` imports it when
the first request comes. The contract is the docstring of the function, or that of the module where
it is the only one or all have the same.
"""

from typing import Final

# Grouped by who asks: who sends one of them usually sends the others too, and the messages of an
# API take 0.2 ms to import. APIs that every client sends have modules of their own.
_SHARED: Final = {
    "acls": ("describe_acls", "create_acls", "delete_acls"),
    "client_quotas": ("describe_client_quotas", "alter_client_quotas"),
    "cluster": ("describe_cluster", "unregister_broker", "update_features"),
    "configs": ("alter_configs", "incremental_alter_configs"),
    "describe_configs": ("list_config_resources",),
    "group_admin": (
        "list_groups", "describe_groups", "consumer_group_describe", "delete_groups",
        "offset_delete",
    ),
    "log_dirs": ("describe_log_dirs", "alter_replica_log_dirs"),
    "log_offsets": ("list_offsets", "offset_for_leader_epoch"),
    "membership": (
        "join_group", "sync_group", "heartbeat", "leave_group", "consumer_group_heartbeat",
    ),
    "quorum": ("describe_quorum", "add_raft_voter", "remove_raft_voter"),
    "reassignments": (
        "alter_partition_reassignments", "list_partition_reassignments", "elect_leaders",
    ),
    "scram_users": ("describe_user_scram_credentials", "alter_user_scram_credentials"),
    "security": (
        "sasl_handshake", "sasl_authenticate", "renew_delegation_token",
        "expire_delegation_token", "describe_delegation_token", "create_delegation_token",
    ),
    "transaction_calls": (
        "add_partitions_to_txn", "add_offsets_to_txn", "end_txn", "describe_transactions",
        "list_transactions",
    ),
}  # fmt: skip

SHARED: Final = {name: module for module, names in _SHARED.items() for name in names}
"""The module of each API that has none of its name."""
