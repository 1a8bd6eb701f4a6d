"""`TransactionVersion`: whether a transaction follows version 2 of KIP-890.

The cluster's feature `transaction.version` decides, and may change between two transactions.
"""

from collections.abc import Callable
from typing import Final

from tailrace.client.nodes.versions import BEFORE_KIP_890
from tailrace.protocol.apis import ApiKey

_FEATURE: Final = "transaction.version"
_KIP_890_SINCE: Final = 2

EPOCH_BUMP_SINCE: Final = 3
"""First version of InitProducerId that takes an id and epoch and returns the next (KIP-360)."""


class TransactionVersion:
    """The protocol of the present transaction."""

    def __init__(self, feature_level: Callable[[str], int], *, is_transactional: bool) -> None:
        """`feature_level` returns the cluster's level of a feature."""
        self._feature_level = feature_level
        self._is_transactional = is_transactional
        self.is_v2 = False
        """Whether brokers add the partitions, and the end of a transaction brings a new epoch."""
        self.gives_epochs = False
        """Whether the coordinator gives a new epoch when it is asked for one."""

    def settle(self) -> bool:
        """Take what the cluster has now, between transactions; returns whether that is newer."""
        level = self._feature_level(_FEATURE) if self._is_transactional else 0
        was_v2, self.is_v2 = self.is_v2, level >= _KIP_890_SINCE
        return self.is_v2 and not was_v2

    @property
    def level(self) -> int:
        """The feature's level as far as the present transaction is concerned."""
        return _KIP_890_SINCE if self.is_v2 else 0

    def note_coordinator(self, *, init_producer_id_version: int) -> None:
        """Note the highest InitProducerId version of the connected transaction coordinator."""
        self.gives_epochs = init_producer_id_version >= EPOCH_BUMP_SINCE

    @property
    def asks_for_epochs(self) -> bool:
        """Whether a new epoch after a failure has to be asked for, and is given."""
        return self.gives_epochs and not self.is_v2

    @property
    def can_go_on(self) -> bool:
        """Whether there is a new epoch after an abort, by which sequence numbers begin anew."""
        return self.is_v2 or self.gives_epochs

    def highest(self, key: ApiKey) -> int | None:
        """The highest version that a request of this API may have; None for any."""
        return None if self.is_v2 else BEFORE_KIP_890[key]
