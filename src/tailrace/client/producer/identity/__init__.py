"""The producer id with its sequence numbers, for every idempotent producer, and transactions.

The rest of the producer uses `TransactionManager` only, and hands it an `OwnedIdentity`.
"""

from tailrace.client.producer.identity.flow import State
from tailrace.client.producer.identity.manager import COMMIT, TransactionManager, adopt_identity
from tailrace.client.producer.identity.sequences import OwnedIdentity

__all__ = ["COMMIT", "OwnedIdentity", "State", "TransactionManager", "adopt_identity"]
