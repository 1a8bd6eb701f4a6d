"""`ClassicLeaving`: how a member leaves a classic group.

    leave -> step to revoke or lose what it owns -> LeaveGroup -> left

A static member (KIP-345) sends no LeaveGroup, and a lost coordinator gets none.
"""

from tailrace.client.consumer.membership.classic_rebalance import ClassicRebalance
from tailrace.client.consumer.membership.classic_requests import ClassicRequests
from tailrace.client.consumer.membership.classic_state import ClassicState, MemberState
from tailrace.client.consumer.membership.interface import (
    GroupRequest,
    MembershipSettings,
    StepKind,
)
from tailrace.client.consumer.membership.steps import Steps
from tailrace.client.nodes import Node


class ClassicLeaving:
    """The leaving of one member; LeaveGroup is sent once."""

    def __init__(
        self,
        settings: MembershipSettings,
        state: ClassicState,
        steps: Steps,
        *,
        rebalance: ClassicRebalance,
    ) -> None:
        self._requests = ClassicRequests(settings)
        self._is_static = settings.group_instance_id is not None
        self._state = state
        self._steps = steps
        self._rebalance = rebalance
        self._reason: str | None = None
        """Why the member leaves, while a step before it is not done."""
        self.request: GroupRequest | None = None
        """LeaveGroup, until it is answered."""
        self._is_sent = False

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do or to wait for."""
        return self._reason is None and self.request is None

    @property
    def is_due(self) -> bool:
        """Whether LeaveGroup waits to be sent."""
        return self.request is not None and not self._is_sent

    def begin(self, reason: str, node: Node | None) -> None:
        """Have the user's thread give up the assignment, then leave."""
        self._steps.drop()
        self._reason = reason
        self.go_on(node)

    def go_on(self, node: Node | None) -> None:
        """Add the step, or leave, if the steps before are done."""
        if self._reason is None or not self._steps.is_empty:
            return
        left, state = self._steps.assignment, self._state
        if left:
            is_lost = not state.generation.is_valid or state.member.is_rebalancing
            self._steps.add(StepKind.LOSE if is_lost else StepKind.REVOKE, left)
        else:
            self.leave(self._reason, node)

    def leave(self, reason: str, node: Node | None) -> None:
        """Be no member from now on, and tell the coordinator."""
        self._reason = None
        state = self._state
        if (
            not self._is_static
            and node is not None
            and state.member is not MemberState.UNJOINED
            and state.generation.member_id
        ):
            body = self._requests.leave(state.generation, reason)
            self.request = self._requests.to_coordinator(body, node)
            self._is_sent = False
        self._rebalance.stop(reason, forgets_member=True)
        self._rebalance.may_join = False

    def take(self) -> GroupRequest | None:
        """LeaveGroup, if it waits to be sent."""
        if not self.is_due:
            return None
        self._is_sent = True
        return self.request

    def put_back(self) -> None:
        """LeaveGroup could not be sent yet."""
        self._is_sent = False
