"""The modules that a partition of transactions needs, imported together on a worker thread."""

from tailrace.coordinator.transactions.coordinator import TransactionCoordinator
from tailrace.coordinator.transactions.leader_markers import LeaderMarkers, LocalMarkers
from tailrace.coordinator.transactions.machine import TransactionMachine
from tailrace.coordinator.transactions.records import TransactionCodec

__all__ = [
    "LeaderMarkers",
    "LocalMarkers",
    "TransactionCodec",
    "TransactionCoordinator",
    "TransactionMachine",
]
