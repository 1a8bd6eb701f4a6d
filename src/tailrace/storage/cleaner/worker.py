"""The log cleaner of a broker: choose a log, run the steps of a round, count and retry.

    next_job            plans all compacted logs and takes the dirtiest            owner's thread
    job.map_keys        the newest offset of every key in the dirty part           any, long
    job.rewrite         a group of segments into one, published as `.swap`         any, long
    job.exchange        the new segment serves, the old ones leave service         owner's, short
    job.settle          the names of the exchange are on the device                any, may wait
    job.note_cleaned    the checkpoint, when all groups were exchanged             any, may wait
    job.finish          the log may be planned again                               owner's thread

The owner's thread is the one that appends. The caller of the steps decides about threads
(`broker.cleaning`, or `clean` for one thread).

A log that cannot be cleaned does not stop the others. The error is logged, and the log is retried,
first after a minute, then at growing intervals up to an hour. (Kafka does not retry before the next
start.) A log whose exchange has failed is not retried before the next start, which completes the
exchange. Where only descriptors were short for the sync of its names, the next round begins with
that sync.

Invariant: at most one job at a time has a log, and a paused log has none.
"""

import errno
import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tailrace.config.settings import INT64_MAX
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tailrace.runtime.clock import Clock
from tailrace.storage import shrink
from tailrace.storage.cleaner import swap
from tailrace.storage.cleaner.output import discard
from tailrace.storage.cleaner.passes import CleaningAbortedError, SegmentOverflowError, log_facts
from tailrace.storage.cleaner.plan import (
    CleaningPlan,
    choose_filthiest,
    plan_cleaning,
    plan_range,
)
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager
from tailrace.storage.segment import Segment
from tailrace.values import dataclass, replace

if TYPE_CHECKING:
    from tailrace.storage.cleaner.rewrite import CleaningRound, CleaningStatistics

logger = logging.getLogger(__name__)

RETRY_MS_MIN = 60_000
RETRY_MS_MAX = 60 * 60_000
MAP_BYTES_PER_LOG_BYTE = 4
"""Records of a few bytes need more room in the map than in the log; most need far less."""
MAP_BYTES_MIN = 4 * 1024 * 1024
"""Half of it is for keys. That is more than a batch of the usual `max.message.bytes`, so a key that
fits one round's map fits every round's map."""

_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """The broker's settings for compaction."""

    map_bytes_max: int
    """`log.cleaner.dedupe.buffer.size`."""
    io_bytes_per_second: float
    """`log.cleaner.io.max.bytes.per.second`: bytes read plus bytes written, by all threads."""
    thread_count: int = 1
    """`log.cleaner.threads`: jobs at a time, which share memory and rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerStatistics:
    """Statistics of the cleaner; all zero before its first round."""

    rounds: int = 0
    """Rounds that were finished."""
    seconds_max: float = 0.0
    """Duration of the longest round."""
    map_load_max: float = 0.0
    """Load of the fullest map, from 0 to 1."""
    delay_ms_max: int = 0
    """The longest delay of a record beyond `max.compaction.lag.ms` when its round began."""
    failed_logs: int = 0
    """Logs that could not be cleaned and wait for a retry."""
    cleaning_count: int = 0
    """Logs that are being cleaned now."""


@dataclass(slots=True)
class _FailedLog:
    """A log that could not be cleaned."""

    log: Log
    reason: str
    retry_ms: int
    attempts: int
    is_settled: bool
    """Whether the names of its last exchange are on the device."""


CLOCK_TICK_S = 0.001
PAUSE_S_MAX = 0.25
"""Time that a throttled thread sleeps before it checks again whether the round was aborted."""


class Throttle:
    """Limits a rate in bytes per second by making its callers wait, on any number of threads.

    It counts bytes, not times, so that a changed rate applies at once, also to waiting callers.
    """

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        """May be changed at any time."""
        self._clock = clock
        # Bytes requested by all callers so far.
        self._asked_bytes = 0.0
        # Bytes of these that the rate has allowed until `_granted_s`.
        self._granted_bytes = 0.0
        self._granted_s = clock.monotonic_s()
        self._counting = threading.Lock()

    def ask(self, size: int) -> float:
        """Request `size` more bytes; returns the argument for `seconds_until`."""
        with self._counting:
            self._grant()
            self._asked_bytes += size
            return self._asked_bytes

    def seconds_until(self, asked: float) -> float:
        """Return the seconds until the current rate has allowed the requested bytes."""
        with self._counting:
            self._grant()
            return max(asked - self._granted_bytes, 0) / self.bytes_per_second

    def pause(self, size: int, *, is_over: Callable[[], bool] = lambda: False) -> None:
        """Wait until the rate allows `size` more bytes, or until `is_over` returns True."""
        asked = self.ask(size)
        # Waits shorter than a clock tick are skipped; they add up in the counters.
        while (left_s := self.seconds_until(asked)) >= CLOCK_TICK_S and not is_over():
            self._clock.pause(min(left_s, PAUSE_S_MAX))

    def _grant(self) -> None:
        """Add the bytes allowed since the last call; time without a request is not saved up."""
        now_s = self._clock.monotonic_s()
        allowed = self._granted_bytes + (now_s - self._granted_s) * self.bytes_per_second
        # No credit for idle time: a burst after a quiet night would take the disk from producers.
        self._granted_bytes = min(self._asked_bytes, allowed)
        self._granted_s = now_s


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentExchange:
    """Published new segments, and the old ones that they replace."""

    new: tuple[Segment, ...]
    old: tuple[Segment, ...]


class CleaningJob:
    """One round over one log."""

    def __init__(
        self, cleaner: "LogCleaner", log: Log, plan: CleaningPlan, *, is_settled: bool
    ) -> None:
        """`is_settled` says whether the names of the log's last exchange are on the device."""
        self.log = log
        self.plan = plan
        self._cleaner = cleaner
        self._begun_ms = log.folder.clock.now_ms()
        self._is_aborted = False
        self._was_split = False
        # Whether files have `.swap` names, so that the exchange must be completed.
        self._is_exchange_open = False
        self._is_settled = is_settled
        self._end_offset = plan.first_dirty
        self._segments = tuple(log.segments)
        self._config = log.config
        # From `map_keys` on, until its memory is freed.
        self._round: CleaningRound | None = None
        self._counts: CleaningStatistics | None = None

    def abort(self) -> None:
        """End the round at the next run of batches; exchanged groups stay exchanged."""
        self._is_aborted = True

    def map_keys(self) -> list[tuple[Segment, ...]]:
        """Read the dirty part; returns the groups of segments to rewrite. Any thread.

        The dirty part is synced first: a group leaves out records because a later group has newer
        ones, and a crash between the two must not lose these.

        Raises:
            CorruptionError, CleaningAbortedError, OSError: as `CleaningRound.map_keys`, and if the
                dirty part cannot be synced.
        """
        # Before the round has `.cleaned` files: see `swap.complete`.
        if not self._is_settled:
            self.settle()
        # Otherwise a crash of the machine could keep the new segment, which lacks the old value,
        # and lose the dirty one with the new value.
        if self.log.positions.recovery_point < self._segments[-1].base_offset:
            self.log.sync_rolled()
        # The first round imports the code that rewrites, on its own thread (decision 24).
        from tailrace.storage.cleaner.key_map import KeyMap
        from tailrace.storage.cleaner.passes import Pace
        from tailrace.storage.cleaner.rewrite import CleaningRound

        self._round = CleaningRound(
            self.log.folder.files,
            self.log.folder.path,
            segments=self._segments,
            config=self._config,
            plan=self.plan,
            key_map=KeyMap(self._cleaner.map_bytes(self.plan)),
            now_ms=self._begun_ms,
            pace=Pace(pause=self._pause, check=self._check),
        )
        self._end_offset = self._round.map_keys()
        return self._round.groups()

    def rewrite(self, group: Sequence[Segment]) -> SegmentExchange:
        """Write and publish the new segment of a group; `exchange` must follow. Any thread.

        If a segment has to be split first, the result is the split, and the round ends after its
        exchange.

        Raises:
            CorruptionError, CleaningAbortedError, OSError: as `CleaningRound.rewrite`; the log is
                unchanged.
        """
        from tailrace.storage.cleaner.group import producer_ends

        assert self._round is not None, "a group is rewritten before its keys were mapped"
        # Now, and not when the round began: a producer may have become active since.
        producers = producer_ends(self.log.producers)
        files, path = self.log.folder.files, self.log.folder.path
        try:
            new, old = [self._round.rewrite(group, producers=producers)], group
        except SegmentOverflowError as error:
            old = [each for each in group if each.base_offset == error.base_offset]
            new = swap.split_segment(files, path, old[0], config=self.log.config)
            self._was_split = True
        try:
            self._check()
        except CleaningAbortedError as error:
            discard(files, *new, after=error)
            raise
        # Before the first rename: a failure in the middle leaves `.swap` files, which only a start
        # can settle.
        self._is_exchange_open = True
        swap.publish(files, path, *new)
        return SegmentExchange(new=tuple(new), old=tuple(old))

    def exchange(self, planned: SegmentExchange) -> None:
        """Replace the old segments of the log by the new ones. Owner's thread.

        Raises:
            OSError: a file cannot be renamed; a start completes the exchange.
        """
        shrink.replace_segments(self.log, planned.new, planned.old)
        self._is_exchange_open = self._is_settled = False
        # The groups were planned with the segment that is split now.
        self._is_aborted = self._is_aborted or self._was_split

    def settle(self) -> None:
        """Sync the names of the exchange, before the next step. Any thread.

        Raises:
            OSError: the device refused, and a start completes the exchange; or descriptors are
                short, and the next round calls this first.
        """
        self.log.folder.files.sync_directory(self.log.folder.path)
        self._is_settled = True

    def note_cleaned(self) -> None:
        """Checkpoint how far the log has been cleaned, unless it was deleted; the last step.

        It frees the memory of the round. Any thread.

        Raises:
            OSError: the checkpoint cannot be written; the next round repeats the work.
        """
        self._free()
        if not self._was_split:
            self._cleaner.note_cleaned(self.log, end_offset=self._end_offset)

    def finish(self, failure: Exception | None = None) -> None:
        """Release the log, and count the round or note its failure. Owner's thread; exactly once.

        `failure` is the exception of a step, if there was one.
        """
        self._cleaner.release(self)
        if failure is None and not self._was_split:
            self._cleaner.count_round(self, end_offset=self._end_offset)
        elif failure is not None and not isinstance(failure, CleaningAbortedError):
            # A second fsync would report success after one that has failed, and none fails for want
            # of descriptors.
            may_settle = isinstance(failure, OSError) and failure.errno in _NO_DESCRIPTORS
            is_final = self._is_exchange_open or not (self._is_settled or may_settle)
            self._cleaner.note_failed(
                self.log, failure, is_final=is_final, is_settled=self._is_settled
            )
        self._free()

    def age_ms(self) -> int:
        """Milliseconds since the job began."""
        return self.log.folder.clock.now_ms() - self._begun_ms

    def statistics(self) -> "CleaningStatistics":
        """The counts and times of the round so far."""
        if self._counts is not None:
            return self._counts
        assert self._round is not None, "a round is counted that has not begun"
        return self._round.statistics()

    def _free(self) -> None:
        # The round refers to this job, and would be kept, with its map, until a full collection.
        if self._round is not None:
            self._counts, self._round = self._round.statistics(), None

    def _pause(self, size: int) -> None:
        self._cleaner.throttle.pause(size, is_over=lambda: self._is_aborted)

    def _check(self) -> None:
        if self._is_aborted or not self._cleaner.is_in_service(self.log):
            raise CleaningAbortedError(f"cleaning of {self.log.partition} was aborted")


class LogCleaner:
    """Chooses compacted logs of a broker for cleaning, one by one."""

    def __init__(self, logs: LogManager, config: CleanerConfig, clock: Clock) -> None:
        self.throttle = Throttle(clock, config.io_bytes_per_second)
        self._logs = logs
        self._config = config
        self._clock = clock
        self._jobs: dict[TopicPartition, CleaningJob] = {}
        self._paused: Counter[TopicPartition] = Counter()
        self._failures: dict[TopicPartition, _FailedLog] = {}
        self._statistics = CleanerStatistics()

    def configure(self, config: CleanerConfig) -> None:
        """Use other limits: the rate at once, the others from the next round on."""
        self._config = config
        self.throttle.bytes_per_second = config.io_bytes_per_second

    def statistics(self) -> CleanerStatistics:
        """Statistics since the cleaner was created."""
        return replace(
            self._statistics, failed_logs=len(self._failures), cleaning_count=len(self._jobs)
        )

    def next_job(self) -> CleaningJob | None:
        """A round over the dirtiest log that is due, or None. Owner's thread.

        A log that cannot be planned counts as one that cannot be cleaned.
        """
        plans = {log.partition: plan for log, plan in self.weigh()}
        partition = choose_filthiest(plans)
        if partition is None:
            return None
        log = self._logs.get(partition)
        assert log is not None
        failure = self._failure_of(log)
        is_settled = failure is None or failure.is_settled
        job = CleaningJob(self, log, plans[partition], is_settled=is_settled)
        self._jobs[partition] = job
        return job

    def weigh(self) -> list[tuple[Log, CleaningPlan]]:
        """Every log that may be cleaned now, with its plan.

        A checkpoint outside of its log is corrected: in memory now, and on the device with the
        directory's next checkpoints.
        """
        found = []
        now_ms = self._clock.now_ms()
        for log in self._logs:
            if not log.config.is_compacted or not self._is_free(log, now_ms):
                continue
            try:
                found.append((log, self._weigh(log, now_ms)))
            except (TailraceError, OSError) as error:
                self.note_failed(log, error)
        return found

    def is_cleaning(self, partition: TopicPartition) -> bool:
        """Whether a job has the log, so that none of its segments may be removed."""
        return partition in self._jobs

    def failures(self) -> dict[TopicPartition, str]:
        """The logs that could not be cleaned, and why."""
        return {partition: failure.reason for partition, failure in self._failures.items()}

    def abort(self, partition: TopicPartition) -> None:
        """Abort the job that has the log, if any; it ends at its next run of batches."""
        job = self._jobs.get(partition)
        if job is not None:
            job.abort()

    def pause(self, partition: TopicPartition) -> None:
        """Abort the log's job, and begin none until `resume` was called as often as `pause`.

        Segments may be changed when `is_cleaning` is False.
        """
        self._paused[partition] += 1
        self.abort(partition)

    def resume(self, partition: TopicPartition) -> None:
        """Take back one `pause`."""
        assert self._paused[partition] > 0
        self._paused[partition] -= 1
        self._paused += Counter()

    def note_truncated(self, log: Log) -> None:
        """Lower the cleaner offset to the log end after a truncation, while the log is paused.

        On the device with the directory's next checkpoints, before which nothing may be appended.
        """
        # The records that come next would count as cleaned up to the old offset. An older value
        # among them would stay, and be a key's newest again when the tombstone after it is deleted.
        offsets = self._logs.home_of(log).offsets
        cleaned = offsets.cleaner_offset(log.partition)
        if cleaned is not None and cleaned > log.end_offset:
            offsets.correct_cleaned(log.partition, log.end_offset)

    def is_in_service(self, log: Log) -> bool:
        """Whether a log has neither been deleted nor lost with its directory."""
        return self._logs.get(log.partition) is log

    def map_bytes(self, plan: CleaningPlan) -> int:
        """The map size of a round: its thread's share, but not more than its log can fill."""
        wanted = max(MAP_BYTES_MIN, MAP_BYTES_PER_LOG_BYTE * plan.cleanable_bytes)
        return min(self._config.map_bytes_max // self._config.thread_count, wanted)

    def release(self, job: CleaningJob) -> None:
        """End a job's hold on its log."""
        if self._jobs.get(job.log.partition) is job:
            del self._jobs[job.log.partition]

    def note_cleaned(self, log: Log, *, end_offset: int) -> None:
        """Checkpoint how far a log has been cleaned, unless it was deleted. Any thread.

        Raises:
            OSError: the checkpoint cannot be written.
        """
        home = self._logs.directory_of(log.partition)
        if home is not None:
            home.offsets.note_cleaned(log.partition, end_offset, log=log)

    def count_round(self, job: CleaningJob, *, end_offset: int) -> None:
        """Count a finished round in the statistics, and log it."""
        log = job.log
        self._failures.pop(log.partition, None)
        done, known = job.statistics(), self._statistics
        self._statistics = CleanerStatistics(
            rounds=known.rounds + 1,
            seconds_max=max(known.seconds_max, job.age_ms() / 1000),
            map_load_max=max(known.map_load_max, done.map_load),
            delay_ms_max=max(known.delay_ms_max, job.plan.delay_ms),
        )
        logger.info(
            "log_cleaned partition=%s offsets=%d..%d bytes_read=%d bytes_written=%d map_load=%.2f",
            log.partition, job.plan.first_dirty, end_offset, done.bytes_read, done.bytes_written,
            done.map_load,
        )  # fmt: skip

    def note_failed(
        self, log: Log, error: Exception, *, is_final: bool = False, is_settled: bool | None = None
    ) -> None:
        """Delay the next try for a log, or disable it until the next start, and log the reason.

        `is_settled` says whether the names of its last exchange are on the device; None: as before.
        """
        partition = log.partition
        if not self.is_in_service(log):
            return  # The log was deleted meanwhile, so its files are missing.
        known = self._failure_of(log)
        attempts = 1 if known is None else known.attempts + 1
        if is_settled is None:
            is_settled = known is None or known.is_settled
        # Kafka marks such a partition uncleanable until a restart, and its log grows; a full disk
        # has room again some day.
        delay_ms = min(RETRY_MS_MIN << min(attempts - 1, 10), RETRY_MS_MAX)
        # A `.cleaned` file of another round would make the open exchange invalid.
        retry_ms = INT64_MAX if is_final else self._clock.now_ms() + delay_ms
        # Log text only: a log handler that kept the exception would keep slices of the log too.
        reason = str(error)
        self._failures[partition] = _FailedLog(log, reason, retry_ms, attempts, is_settled)
        logger.error(
            "log_not_cleaned partition=%s attempts=%d next_in_s=%s reason=%s",
            partition, attempts, "never" if is_final else delay_ms // 1000, reason,
        )  # fmt: skip

    def _failure_of(self, log: Log) -> _FailedLog | None:
        """The failure of this log; None for a failure of a deleted log of the same name."""
        failure = self._failures.get(log.partition)
        return failure if failure is not None and failure.log is log else None

    def _is_free(self, log: Log, now_ms: int) -> bool:
        failure = self._failure_of(log)
        is_left_alone = failure is not None and now_ms < failure.retry_ms
        return not (is_left_alone or log.partition in self._jobs or self._paused[log.partition])

    def _weigh(self, log: Log, now_ms: int) -> CleaningPlan:
        home = self._logs.home_of(log)
        facts = log_facts(tuple(log.segments), log.positions)
        dirty = plan_range(
            facts,
            checkpoint=home.offsets.cleaner_offset(log.partition),
            config=log.config,
            now_ms=now_ms,
        )
        if dirty.is_checkpoint_reset:
            home.offsets.correct_cleaned(log.partition, dirty.first_dirty)
        return plan_cleaning(facts, dirty, config=log.config, now_ms=now_ms)


def clean(job: CleaningJob) -> "CleaningStatistics":
    """Do a job from beginning to end on this thread.

    Raises:
        CorruptionError, CleaningAbortedError, OSError: from a step; noted already.
    """
    try:
        for group in job.map_keys():
            job.exchange(job.rewrite(group))
            job.settle()
        job.note_cleaned()
    except (TailraceError, OSError) as error:
        job.finish(error)
        raise
    job.finish()
    return job.statistics()
