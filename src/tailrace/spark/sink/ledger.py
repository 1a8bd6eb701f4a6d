"""`Ledger`: which transactions make up each batch, written down before any is committed.

    CHECKPOINT/tailrace-commits/00000000000000000041.json
    CHECKPOINT/tailrace-commits/00000000000000000042.json    the newest: what was promised last

A batch is a micro-batch of a stream, or one version of what a job writes. A file has the slots of
one batch: the DataFrame's partitions by number, each with the transaction of the attempt that
counts. From the moment it is there, the batch is decided: a driver that finds it commits these
transactions and no others. Each file has the SHA-256 of the rest of it.

Beside the files there are counters in the cluster. A counter is a transactional id that never has a
transaction; its value, a `Count`, is the identity that InitProducerId gave out last: each request
raises the epoch by one, and no two callers get the same value. After epoch 32766 the next value is
epoch 0 of another producer id.

    tailrace-WORK            the fencing token: the newest driver's tasks may write
    tailrace-WORK.SLOT       the tickets of a slot: one for each attempt that is about to write
    tailrace-WORK.commits    the batches that were promised; raised before any of it is committed

Not here: when notes are written and counters raised, and what is done about them (`commits`).

No counter's name begins as the transactional ids of attempts do, `tailrace-WORK-`, which the driver
fences.

Invariant: a file is there whole or not at all, and after `write` has returned it outlives a loss
of power (as far as the file system of the checkpoint keeps what it has confirmed).
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from tailrace.client.prepared_transaction import PreparedTransaction
from tailrace.errors import UNEXPECTED_JSON, CorruptionError
from tailrace.model import TopicPartition
from tailrace.spark.folder import Folder
from tailrace.values import dataclass

PREFIX: Final = "tailrace-"
"""Transactional ids of the sink begin so; a user needs WRITE and DESCRIBE on this prefix."""

EPOCH_LAST: Final = 32766
"""The last epoch of a producer id (Kafka keeps 32767 to fence it)."""


class Count(NamedTuple):
    """A value of a counter."""

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    def follows(self, before: "Count") -> bool:
        """Whether no other value lies between."""
        if before == NO_COUNT:
            return self.producer_epoch == 0
        if self.producer_id == before.producer_id:
            return self.producer_epoch == before.producer_epoch + 1
        # The coordinator takes a new producer id when epochs are used up.
        return self.producer_epoch == 0 and before.producer_epoch == EPOCH_LAST


NO_COUNT: Final = Count(-1, -1)
"""There is no such counter, or none any more: brokers forget one after a week without use
(`transactional.id.expiration.ms`)."""


def attempts_prefix(work_id: str) -> str:
    """The beginning of the transactional ids of all attempts."""
    return f"{PREFIX}{work_id}-"


def token_name(work_id: str) -> str:
    return f"{PREFIX}{work_id}"


def tickets_name(work_id: str, slot: int) -> str:
    """The counter that gives each attempt at a slot a number of its own."""
    return f"{PREFIX}{work_id}.{slot}"


def commits_name(work_id: str) -> str:
    """The counter of the batches that were promised."""
    return f"{PREFIX}{work_id}.commits"


FORMAT: Final = "tailrace-commits-1"
KEPT: Final = 3
"""Files that stay; only the newest is ever needed, the others are for people who look."""

PLACE: Final = "tailrace-commits in the checkpointLocation"
"""Name of the folder in messages."""

ACCEPT: Final = "acceptOlderCheckpoint"
"""Option of the sink by which notes are taken that are older than the cluster."""

GO_BACK: Final = (
    f"remove the newest file of {PLACE}, and start with the option {ACCEPT} that the next error "
    "names"
)
"""The way to have a batch written once more."""

_NAME: Final = re.compile(r"(\d{20})\.json")


class SlotState(StrEnum):
    """State of the transaction of a slot, as far as it is known."""

    PROMISED = "promised"
    """It is to be committed."""
    COMMITTED = "committed"
    """It is committed, or there was nothing to write."""
    LOST = "lost"
    """The broker has aborted it, so its rows are to be written again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One partition of a batch's DataFrame, as its task has written it."""

    row_count: int
    """Rows of the partition."""
    digest: str
    """Digest of these rows, which shows whether a later run of the task has the same."""
    transaction: PreparedTransaction | None
    """The transaction with the rows; None without rows and offsets."""
    last_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The last offset of the transaction in each partition of a topic that it has written to."""
    state: SlotState = SlotState.PROMISED

    def becomes(self, state: SlotState) -> "Slot":
        return replace(self, state=state)


class FreeId(NamedTuple):
    """A transactional id for a later batch.

    Only the attempt whose ticket follows may use it, so that no two attempts ever do.
    """

    transactional_id: str
    ticket: Count
    """The ticket of the attempt that used it last, and has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """The note about one batch."""

    query_id: str
    """Id of the streaming query, as its checkpoint has it, or the work id of a job."""
    app_id: str | None = None
    """The `txnAppId` of a job; None for a stream."""
    batch_id: int
    """Number of the micro-batch, or the `txnVersion` of a job."""
    cluster_id: str = ""
    """Id of the cluster whose transactions these are."""
    slots: Mapping[int, Slot]
    """By the number of the DataFrame's partition."""
    free_ids: Mapping[int, FreeId] = field(default_factory=dict)
    """For the next batch, also by the number of a partition; of this batch or earlier ones."""
    commits_before: Count | None = None
    """The cluster's count of promised batches when this one was; with transactions, it is raised
    by one before they are committed. None in a note of an earlier version."""

    @property
    def label(self) -> str:
        """The batch by the name that its user knows."""
        if self.app_id is None:
            return f"batch {self.batch_id}"
        return f"txnVersion {self.batch_id} of {self.app_id!r}"

    @property
    def is_void(self) -> bool:
        """Whether nothing of the batch is committed or can be: it is as if never promised."""
        with_rows = [slot for slot in self.slots.values() if slot.transaction is not None]
        return bool(with_rows) and all(slot.state is SlotState.LOST for slot in with_rows)

    @property
    def lost(self) -> list[int]:
        """The slots whose rows are to be written again."""
        return [number for number, each in self.slots.items() if each.state is SlotState.LOST]


class Ledger:
    """The files of one streaming query or job; one driver at a time may write them."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def newest(self) -> BatchRecord | None:
        """The newest record; None before the first batch.

        Raises:
            CorruptionError: the file cannot be read as what `write` has written.
            OSError: the folder cannot be read.
        """
        numbers = self._numbers()
        return self._read(numbers[-1]) if numbers else None

    def write(self, record: BatchRecord) -> None:
        """Write the note about a batch, over an earlier one about it; removes old files.

        Raises:
            OSError: the folder cannot be written; the file may be there or not.
        """
        content = _content(record)
        self._folder.replace(
            _name(record.batch_id), json.dumps(content | {"digest": _digest(content)}).encode()
        )
        # Removed after the new one is there, so that the newest is never missing.
        for number in self._numbers()[:-KEPT]:
            self._folder.remove(_name(number))

    def _numbers(self) -> list[int]:
        found = map(_NAME.fullmatch, self._folder.names())
        return sorted(int(each[1]) for each in found if each)

    def _read(self, number: int) -> BatchRecord:
        path = f"{self._folder.path}/{_name(number)}"
        try:
            content = json.loads(self._folder.read(_name(number)))
            digest = content.pop("digest")
            if content["format"] != FORMAT:
                raise CorruptionError(
                    f"its format is {content['format']!r}, and this version reads {FORMAT!r}",
                    path=path,
                )
            # A damaged promise may name other transactions; to commit those would lose or double
            # rows.
            if digest != _digest(content):
                raise CorruptionError(
                    "the digest of its content does not match; put a copy of the file back, since "
                    "only it says whether the last batch is committed",
                    path=path,
                )
            return _record(content)
        except UNEXPECTED_JSON as error:
            raise CorruptionError(
                f"not a record of commits: {error!r}; put a copy of the file back", path=path
            ) from error


def _name(batch_id: int) -> str:
    return f"{batch_id:020}.json"


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _content(record: BatchRecord) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "query": record.query_id,
        **({} if record.app_id is None else {"app": record.app_id}),
        "batch": record.batch_id,
        "cluster": record.cluster_id,
        "slots": {
            str(number): {
                "state": slot.state.value,
                "rows": slot.row_count,
                "digest": slot.digest,
                "transaction": slot.transaction and list(slot.transaction),
                "offsets": [[*place, offset] for place, offset in slot.last_offsets.items()],
            }
            for number, slot in record.slots.items()
        },
        **({} if record.commits_before is None else {"commits": list(record.commits_before)}),
        "ids": {
            str(number): [each.transactional_id, *each.ticket]
            for number, each in record.free_ids.items()
        },
    }


def _record(content: Mapping[str, Any]) -> BatchRecord:
    return BatchRecord(
        query_id=content["query"],
        app_id=content.get("app"),
        batch_id=content["batch"],
        cluster_id=content["cluster"],
        slots={
            int(number): Slot(
                row_count=each["rows"],
                digest=each["digest"],
                transaction=each["transaction"] and PreparedTransaction(*each["transaction"]),
                last_offsets={
                    TopicPartition(topic, partition): offset
                    for topic, partition, offset in each["offsets"]
                },
                state=SlotState(each["state"]),
            )
            for number, each in content["slots"].items()
        },
        free_ids={
            # Notes of earlier versions have none.
            int(number): FreeId(name, Count(*ticket))
            for number, (name, *ticket) in content.get("ids", {}).items()
        },
        commits_before=Count(*content["commits"]) if "commits" in content else None,
    )
