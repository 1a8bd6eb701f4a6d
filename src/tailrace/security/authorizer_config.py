"""`AuthorizerConfig`: the settings of access, and the authorizer that they ask for.

Not here: how it decides (`authorizer`).
"""

from typing import TYPE_CHECKING, Final

from tailrace.config import setting, settings_of
from tailrace.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from tailrace.protocol.metadata_records import AccessControlEntryRecord
    from tailrace.security.audit import Audit
    from tailrace.security.authorizer import Authorizer

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""Kafka's authorizer whose access control lists are in the metadata log."""


def _principals(text: str) -> list[str]:
    # As in Kafka by semicolons, since the name of a certificate has commas.
    return [each.strip() for each in text.split(";") if each.strip()]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizerConfig:
    """Settings of access, the same for broker and controller."""

    # Another class is refused and not ignored: who sets one relies on it.
    has_authorizer: bool = setting(
        "authorizer.class.name",
        default="",
        is_allowed=lambda name: name in ("", STANDARD_AUTHORIZER),
        rule_text=f"empty, or {STANDARD_AUTHORIZER}",
        convert=bool,
        text="Who may do what. Empty: every client may do everything; else by the access control "
        "lists of the cluster, as in Kafka. The same for all nodes of a cluster.",
    )
    super_users: frozenset[str] = setting(
        "super.users",
        default="",
        is_allowed=lambda text: all(":" in each for each in _principals(str(text))),
        rule_text="principals such as User:admin, separated by semicolons",
        convert=lambda text: frozenset(_principals(str(text))),
        text="Principals that may do everything, where there is an authorizer. Brokers and "
        "controllers have to be among them, or have the rights that docs/security.md lists.",
    )
    allows_without_acls: bool = setting(
        "allow.everyone.if.no.acl.found",
        default=False,
        text="Whether everybody may do everything with a resource that has no access control "
        "lists, where there is an authorizer.",
    )

    def authorizer(
        self, entries_now: "Callable[[], Mapping[UUID, AccessControlEntryRecord]]", audit: "Audit"
    ) -> "Authorizer | None":
        """Decides by the entries of the image who may do what; None: everybody may do everything.

        `entries_now` gives those of the newest image, and `audit` gets what was denied.
        """
        if not self.has_authorizer:
            return None
        # A start without one imports none of it (decision 24).
        from tailrace.security.authorizer import Authorizer

        return Authorizer(
            entries_now,
            audit,
            super_users=self.super_users,
            allows_without_entries=self.allows_without_acls,
        )


AUTHORIZER_SETTINGS: Final = settings_of(AuthorizerConfig)
"""All settings of access."""
