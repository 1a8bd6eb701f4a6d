"""`MetadataReplay`: the image at the end of a metadata log, batch by batch.

    batch -> records -> (transaction of metadata, KIP-868) -> delta -> image

Records between BeginTransaction and EndTransaction count when the transaction ends, and not at all
if it is aborted. What is open at the end of the log does not count.

Invariant: `image` is the state after the last batch that was taken whole, without what an open
transaction holds. A batch that is refused changes nothing.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Self, cast

from tailrace.cluster.metadata.batches import decoded_records
from tailrace.cluster.metadata.delta import MetadataDelta, MetadataFaultError
from tailrace.cluster.metadata.image import ImageChange, MetadataImage
from tailrace.protocol.fields import Message
from tailrace.records.batch import Batch

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import VotersRecord


class MetadataReplay:
    """The state that the batches of a log have led to."""

    def __init__(
        self, image: MetadataImage | None = None, *, next_offset: int = 0, epoch: int = 0
    ) -> None:
        """Begin after a snapshot, or with nothing."""
        self.image = image or MetadataImage()
        self.next_offset = next_offset
        """The offset after the last batch."""
        self.epoch = epoch
        """The largest epoch of a batch: that of the last one, unless damage has changed it."""
        self.timestamp = -1
        """Time of the last batch, in milliseconds since 1970."""
        self.quorum: dict[str, Message] = {}
        """The last control record of each class, by its name: leader, voters, version of the
        protocol."""
        self._open: Sequence[Message] | None = None
        """Records of the open transaction."""

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open: no snapshot may be made here."""
        return self._open is not None

    @property
    def kraft_version(self) -> int:
        """1 if the log names the voters, 0 if the settings do (KIP-853)."""
        return 0 if self.voters is None else 1

    @property
    def voters(self) -> "VotersRecord | None":
        """The voters that the log names."""
        return cast("VotersRecord | None", self.quorum.get("VotersRecord"))

    def without_transaction(self) -> Self:
        """The replay as it continues after a snapshot: what an open transaction holds is gone."""
        later = copy(self)
        later._open = None
        return later

    def without_state(self) -> Self:
        """The replay of a log that starts over, above the epochs of this one."""
        empty = type(self)(epoch=self.epoch)
        empty.quorum = self.quorum
        return empty

    def see(self, batch: Batch) -> ImageChange:
        """Take the next batch; returns what it has changed.

        Raises:
            CorruptionError: it is damaged, or does not follow the last one.
            UnknownRecordError: a record of a type or version that is not known here.
            UnsupportedCodecError, UnsupportedMagicError: a batch that no metadata log has.
            MetadataFaultError: a record contradicts those before it.
        """
        # On a copy: a batch that is refused halfway must change nothing.
        ahead = copy(self)
        change = ahead.see_all([batch])
        vars(self).update(vars(ahead))
        return change

    def see_all(self, batches: Iterable[Batch]) -> ImageChange:
        """Take the next batches, with one image for all of them; returns what they have changed.

        Raises:
            CorruptionError, UnknownRecordError, UnsupportedCodecError, UnsupportedMagicError,
                MetadataFaultError: as `see`; `next_offset` is that of the refused batch, and
                everything else is of no use any more.
        """
        # One image for all batches: a log of many small ones would copy each part for each of them.
        delta, held = MetadataDelta(self.image), self._open
        for batch in batches:
            if batch.base_offset < self.next_offset:
                raise MetadataFaultError(
                    f"a batch begins at offset {batch.base_offset}, but the one before it ends at "
                    f"{self.next_offset}"
                )
            records = [found.record for _, found in decoded_records(batch)]
            if batch.is_control:
                self.quorum = self.quorum | {type(each).__name__: each for each in records}
            else:
                held = _replayed(delta, records, held)
            self.next_offset = batch.next_offset
            # The checksum does not cover it. Epochs only rise, so a smaller one is damaged.
            self.epoch = max(self.epoch, batch.leader_epoch)
            self.timestamp = batch.max_timestamp
        self.image, self._open = delta.image(), held
        return delta.change()


def _replayed(
    delta: MetadataDelta, records: Sequence[Message], held: Sequence[Message] | None
) -> Sequence[Message] | None:
    """Replay the records of a batch; takes and returns those of the open transaction."""
    waiting = None if held is None else list(held)
    for each in records:
        match type(each).__name__:
            case "BeginTransactionRecord":
                if waiting is not None:
                    raise MetadataFaultError("a transaction begins inside of another")
                waiting = []
            case "EndTransactionRecord" | "AbortTransactionRecord" as name:
                if waiting is None:
                    raise MetadataFaultError("a transaction ends that did not begin")
                # Aborted, they never count (KIP-868).
                if name == "EndTransactionRecord":
                    for inner in waiting:
                        delta.replay(inner)
                waiting = None
            case _ if waiting is not None:
                waiting.append(each)
            case _:
                delta.replay(each)
    return waiting
