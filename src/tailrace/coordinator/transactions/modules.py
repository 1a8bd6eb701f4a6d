"""Make a partition of transactions ready to be led; imported on a worker thread."""

from tailrace.coordinator.transactions.between_brokers import (
    CoordinatorsElsewhere,
    MarkersElsewhere,
)
from tailrace.coordinator.transactions.coordinator import TransactionCoordinator
from tailrace.coordinator.transactions.machine import TransactionMachine
from tailrace.coordinator.transactions.markers import LeaderMarkers, LocalMarkers
from tailrace.coordinator.transactions.records import VALUE_VERSION, TransactionCodec
from tailrace.protocol.coordinator_records import TransactionRecordType, prepare_records

__all__ = [
    "CoordinatorsElsewhere",
    "LeaderMarkers",
    "LocalMarkers",
    "MarkersElsewhere",
    "TransactionCodec",
    "TransactionCoordinator",
    "TransactionMachine",
]

prepare_records(TransactionRecordType.TRANSACTION_LOG, VALUE_VERSION)
