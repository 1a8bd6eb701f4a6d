"""`GroupCalls`: the operations of a member of a group: rebalances, commits, leaving."""

import logging
from collections.abc import Callable

from tailrace.client.consumer.arguments import Partitions, offsets_of, partitions_of
from tailrace.client.consumer.cluster import describe_silence
from tailrace.client.consumer.errors import SubscriptionError
from tailrace.client.consumer.group_work import GroupWork
from tailrace.client.consumer.hooks import RebalanceHooks
from tailrace.client.consumer.membership import RebalanceStep, StepKind
from tailrace.client.consumer.offset_calls import steps_of_pending
from tailrace.client.consumer.steps import Call, Steps, Wait
from tailrace.client.consumer.work import Work
from tailrace.client.group_offsets import OffsetAndMetadata
from tailrace.model import TopicPartition

log = logging.getLogger(__name__)


class GroupCalls:
    """The work of one consumer in its group."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def rebalance(self) -> Steps[None]:
        """Do what the group wants to be done on this thread.

        Raises:
            Exception: the first error of a hook, after all steps are done.
        """
        group = self._work.engine.group
        failure: BaseException | None = None
        while group is not None and (step := group.next_step()) is not None:
            found = yield from self._step(group, step)
            failure = failure or found
        if failure is not None:
            raise failure

    def _step(self, group: GroupWork, step: RebalanceStep) -> Steps[BaseException | None]:
        """Do one step; returns the error of its hook."""
        hooks = self._work.hooks
        match step.kind:
            case StepKind.ASSIGN:
                hook = hooks.on_assigned
            case StepKind.REVOKE:
                hook = hooks.on_revoked
            case _:
                hook = hooks.on_lost or hooks.on_revoked
        group.begin_step(step)
        if step.kind is not StepKind.ASSIGN:
            self._work.engine.handling.put_back(step.partitions)
        if step.kind is StepKind.REVOKE and group.commits_by_itself and not self._work.is_closing:
            yield from self._last_commit(
                self._work.clock() + self._work.engine.config.request_timeout_ms / 1000
            )
        failure: BaseException | None = None
        if hook is not None and (step.partitions or step.kind is StepKind.ASSIGN):
            try:
                yield Call(hook, (list(step.partitions),))
            except Exception as error:  # noqa: BLE001 - raised once the rebalance is carried out
                failure = error
            except BaseException:
                group.step_done(step, self._work.clock())
                raise
        group.step_done(step, self._work.clock())
        return failure

    def _last_commit(self, deadline: float) -> Steps[None]:
        """Commit what is handled before partitions go away; a failure is logged."""
        group = self._work.engine.group
        assert group is not None, "without a group nothing is committed"
        pending = group.offsets.commit_handled(deadline=deadline)
        if not pending.is_done:
            yield Wait(lambda: pending.is_done, deadline)
        pending.is_abandoned = True
        if pending.error is not None or not pending.is_done:
            log.warning(
                "commit_failed group=%s effect=records are read again reason=%s",
                self._work.engine.config.group_id,
                pending.error
                or pending.reason
                or describe_silence(self._work.engine.metadata, self._work.engine.nodes),
            )

    def commit(self, offsets: object, deadline: float) -> Steps[None]:
        """Store offsets in the group; those after all that was returned if None are given."""
        group = self.group_for("commit")
        handling = self._work.engine.handling
        places = handling.returned() if offsets is None else offsets_of(offsets)
        pending = group.offsets.commit(places, deadline=deadline)
        yield from steps_of_pending(
            self._work.engine,
            pending,
            deadline,
            about=f"commit of group {self._work.engine.config.group_id}",
        )
        handling.committed(places)

    def committed(
        self, partitions: Partitions, deadline: float
    ) -> Steps[dict[TopicPartition, OffsetAndMetadata | None]]:
        """The offsets that the group has stored; None where there is none."""
        group = self.group_for("committed")
        places = partitions_of(partitions)
        pending = group.offsets.committed(places, deadline=deadline)
        about = f"committed offsets of group {self._work.engine.config.group_id}"
        found = yield from steps_of_pending(self._work.engine, pending, deadline, about=about)
        return {each: found.get(each) for each in places}

    def group_for(self, what: str) -> GroupWork:
        """The group.

        Raises:
            SubscriptionError: there is no `group.id`.
        """
        self._work.engine.check_open()
        group = self._work.engine.group
        if group is None:
            raise SubscriptionError(f"{what} needs a group, which has the offsets: set group.id")
        return group

    def unsubscribe(self, deadline: float) -> Steps[None]:
        """Leave the group, and read nothing."""
        engine = self._work.engine
        engine.check_open()
        group = engine.group
        if group is not None and engine.subscription.is_by_group:
            engine.handling.put_back()
            group.leave("the consumer unsubscribed from all topics", self._work.clock())
            yield from self.rebalance()
            yield Wait(lambda: group.has_left, deadline)
        engine.handling.drop(engine.subscription.assigned)
        engine.subscription.unsubscribe()
        engine.subscription_changed(self._work.clock())
        self._work.hooks = RebalanceHooks()

    def close(self, deadline: float, closer: object, woken: Callable[[], None]) -> Steps[bool]:
        """Commit and leave the group; `woken` has polls that wait look at the engine.

        A second call, by another `closer` (thread or task), waits for the first. Returns False
        for one inside of the first, in a hook.
        """
        engine = self._work.engine
        if engine.is_closing:
            if closer is self._work.closer:
                return engine.closed_error is not None
            yield Wait(lambda: engine.closed_error is not None, deadline)
            return True
        engine.is_closing = True
        self._work.closer = closer
        woken()
        engine.handling.put_back()
        group = engine.group
        try:
            if group is not None:
                if group.commits_by_itself:
                    yield from self._last_commit(deadline)
                if engine.subscription.is_by_group:
                    group.leave("the consumer is being closed", self._work.clock())
                    yield from self.rebalance()
                yield Wait(lambda: group.is_idle, deadline)
        finally:
            engine.begin_close()
        return True
