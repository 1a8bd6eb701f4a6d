"""`MetadataReplay`: the image at the end of a metadata log, batch by batch.

    batch -> records -> (transaction of metadata, KIP-868) -> delta -> image

Records between BeginTransaction and EndTransaction count when the transaction ends, and not at all
if it is aborted. What is open at the end of the log does not count.

Invariant: `image` is the state behind the last batch that was taken whole, without what an open
transaction holds. A batch that is refused changes nothing.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast
from uuid import UUID

from tailrace.cluster.metadata.batches import decoded_records
from tailrace.cluster.metadata.delta import MetadataDelta, MetadataFaultError
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.protocol.fields import Message
from tailrace.records.batch import Batch

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records.kraft_version import KRaftVersionRecord
    from tailrace.protocol.metadata_records.voters import VotersRecord


class MetadataReplay:
    """The state that the batches of a log have led to."""

    def __init__(
        self, image: MetadataImage | None = None, *, next_offset: int = 0, epoch: int = 0
    ) -> None:
        """Begin behind a snapshot, or with nothing."""
        self.image = image or MetadataImage()
        self.next_offset = next_offset
        """The offset behind the last batch."""
        self.epoch = epoch
        """Epoch of the quorum's leader that wrote it."""
        self.timestamp = -1
        """Its time, in milliseconds since 1970."""
        self.quorum: dict[str, Message] = {}
        """The last control record of each class, by its name: leader, voters, version of the
        protocol."""
        self.removed_topics: tuple[UUID, ...] = ()
        """Ids of the topics that batches since the snapshot have removed."""
        self._open: list[Message] | None = None
        """Records of the open transaction."""

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open: no snapshot may be made here."""
        return self._open is not None

    @property
    def kraft_version(self) -> int:
        """1 if the log names the voters, 0 if the settings do (KIP-853)."""
        found = cast("KRaftVersionRecord | None", self.quorum.get("KRaftVersionRecord"))
        return 0 if found is None else found.kraft_version

    @property
    def voters(self) -> "VotersRecord | None":
        """The voters that the log names."""
        return cast("VotersRecord | None", self.quorum.get("VotersRecord"))

    def see(self, batch: Batch) -> None:
        """Take the next batch.

        Raises:
            CorruptionError: it is damaged, or does not follow the last one.
            UnknownRecordError: a record of a type or version that is not known here.
        UnsupportedCodecError, UnsupportedMagicError: a batch that no metadata log has.
            MetadataFaultError: a record contradicts those before it.
        """
        if batch.base_offset < self.next_offset:
            raise MetadataFaultError(
                f"a batch begins at offset {batch.base_offset}, but the one before it ends at "
                f"{self.next_offset}"
            )
        records = [found.record for _, found in decoded_records(batch)]
        if batch.is_control:
            self.quorum = self.quorum | {type(each).__name__: each for each in records}
        else:
            self.image, self._open, removed = self._replayed(records)
            self.removed_topics += removed
        self.next_offset = batch.next_offset
        self.epoch = batch.leader_epoch
        self.timestamp = batch.max_timestamp

    def _replayed(
        self, records: Sequence[Message]
    ) -> tuple[MetadataImage, list[Message] | None, tuple[UUID, ...]]:
        delta = MetadataDelta(self.image)
        held = None if self._open is None else list(self._open)
        for each in records:
            match type(each).__name__:
                case "BeginTransactionRecord":
                    if held is not None:
                        raise MetadataFaultError("a transaction begins inside of another")
                    held = []
                case "EndTransactionRecord" | "AbortTransactionRecord" as name:
                    if held is None:
                        raise MetadataFaultError("a transaction ends that did not begin")
                    if name == "EndTransactionRecord":
                        for inner in held:
                            delta.replay(inner)
                    held = None
                case _ if held is not None:
                    held.append(each)
                case _:
                    delta.replay(each)
        return delta.image(), held, tuple(delta.removed_topics)
