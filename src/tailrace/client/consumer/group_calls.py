"""`GroupCalls`: the calls of a member of a group: rebalances, commits, leaving."""

import logging

from tailrace.client.consumer.arguments import Partitions, offsets_of, partitions_of
from tailrace.client.consumer.base_consumer import BaseConsumer
from tailrace.client.consumer.explanations import describe_silence
from tailrace.client.consumer.group_work import GroupWork
from tailrace.client.consumer.hooks import RebalanceHooks
from tailrace.client.consumer.membership import RebalanceStep, StepKind
from tailrace.client.drive.operation import operation
from tailrace.client.drive.steps import CallUser, Steps, Until
from tailrace.client.group_offsets import OffsetAndMetadata
from tailrace.model import TopicPartition

log = logging.getLogger(__name__)


class GroupCalls(BaseConsumer):
    """The work of one consumer in its group."""

    def _rebalance(self) -> Steps[None]:
        """Do what the group wants to be done on this thread.

        Raises:
            Exception: the first error of a hook, after all steps are done.
        """
        group = self._engine.group
        failure: BaseException | None = None
        while group is not None and (step := group.next_step()) is not None:
            found = yield from self._rebalance_step(group, step)
            failure = failure or found
        if failure is not None:
            raise failure

    def _rebalance_step(self, group: GroupWork, step: RebalanceStep) -> Steps[BaseException | None]:
        """Do one step; returns the error of its hook."""
        hooks = self._hooks
        match step.kind:
            case StepKind.ASSIGN:
                hook = hooks.on_assigned
            case StepKind.REVOKE:
                hook = hooks.on_revoked
            case _:
                hook = hooks.on_lost or hooks.on_revoked
        group.begin_step(step)
        if step.kind is not StepKind.ASSIGN:
            self._engine.handling.put_back(step.partitions)
        if step.kind is StepKind.REVOKE and group.commits_by_itself and self._closer is None:
            yield from self._last_commit(
                self._clock() + self._engine.config.request_timeout_ms / 1000
            )
        failure: BaseException | None = None
        if hook is not None and (step.partitions or step.kind is StepKind.ASSIGN):
            try:
                yield CallUser(hook, (list(step.partitions),))
            except Exception as error:  # noqa: BLE001 - raised once the rebalance is carried out
                failure = error
            except BaseException:
                group.step_done(step, self._clock())
                raise
        group.step_done(step, self._clock())
        return failure

    def _last_commit(self, deadline: float) -> Steps[None]:
        """Commit what is handled before partitions go away; a failure is logged."""
        group = self._engine.group
        assert group is not None, "without a group nothing is committed"
        pending = group.offsets.commit_handled(deadline=deadline)
        if not pending.is_done:
            yield Until(lambda: pending.is_done, deadline)
        pending.is_abandoned = True
        if pending.error is not None or not pending.is_done:
            log.warning(
                "commit_failed group=%s effect=records are read again reason=%s",
                self._engine.config.group_id,
                pending.error
                or pending.reason
                or describe_silence(self._engine.metadata, self._engine.nodes),
            )

    @operation
    def commit(self, offsets: object = None, *, timeout: float | None = None) -> Steps[None]:
        """Store offsets in the group, and wait until they are.

        Without offsets, those after all records that were returned; in an iteration, after the
        record that was handed out last. `offsets` may be a record or several (the offsets after
        them), or a mapping of partitions to offsets or `OffsetAndMetadata`: of the next record to
        read, not the last that was read.

        Raises:
            CommitFailedError: others may have the partitions; records are read again.
            RebalanceInProgressError: call `poll`, then commit again.
        """
        deadline = self._deadline(timeout)
        group = self._group_for("commit")
        places = self._handling.returned() if offsets is None else offsets_of(offsets)
        pending = group.offsets.commit(places, deadline=deadline)
        about = f"commit of group {self._engine.config.group_id}"
        yield from self._result(pending, deadline, about=about)
        self._handling.committed(places)

    @operation
    def committed(
        self, partitions: Partitions, timeout: float | None = None
    ) -> Steps[dict[TopicPartition, OffsetAndMetadata | None]]:
        """The offset that the group has stored for each partition; None if there is none."""
        deadline = self._deadline(timeout)
        group = self._group_for("committed")
        places = partitions_of(partitions)
        pending = group.offsets.committed(places, deadline=deadline)
        about = f"committed offsets of group {self._engine.config.group_id}"
        found = yield from self._result(pending, deadline, about=about)
        return {each: found.get(each) for each in places}

    @operation
    def unsubscribe(self, timeout: float | None = None) -> Steps[None]:
        """Remove the subscription; a member leaves its group, after `on_revoked`."""
        deadline = self._deadline(timeout)
        self._settle_last()
        with self._reading():
            engine = self._engine
            engine.check_open()
            group = engine.group
            if group is not None and engine.subscription.is_by_group:
                engine.handling.put_back()
                group.leave("the consumer unsubscribed from all topics", self._clock())
                yield from self._rebalance()
                yield Until(lambda: group.has_left, deadline)
            engine.handling.drop(engine.subscription.assigned)
            engine.subscription.unsubscribe()
            engine.subscription_changed(self._clock())
            self._hooks = RebalanceHooks()

    def _close_steps(self, deadline: float, *, is_over: bool | None) -> Steps[bool]:
        """Commit and leave the group; `is_over`: see `_settle_last`.

        A second call, by another thread or task, waits for the first. Returns False for one inside
        of the first, in a hook.
        """
        engine, closer = self._engine, self._caller()
        self._settle_last(is_over=is_over)
        if engine.is_closing:
            if closer is self._closer:
                return engine.closed_error is not None
            yield Until(lambda: engine.closed_error is not None, deadline)
            return True
        engine.is_closing = True
        self._closer = closer
        self._woken()
        engine.handling.put_back()
        group = engine.group
        try:
            if group is not None:
                if group.commits_by_itself:
                    yield from self._last_commit(deadline)
                if engine.subscription.is_by_group:
                    group.leave("the consumer is being closed", self._clock())
                    yield from self._rebalance()
                yield Until(lambda: group.is_idle, deadline)
        finally:
            engine.begin_close()
        return True
