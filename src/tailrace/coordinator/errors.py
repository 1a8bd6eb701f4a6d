"""Errors of a coordinator that its clients get as codes."""

from tailrace.errors import RetriableError


class CoordinatorLoadInProgressError(RetriableError):
    """The partition that has the key is being read; ask again."""


class NotCoordinatorError(RetriableError):
    """Another broker has the key, or none has: look the coordinator up again."""


class CoordinatorNotAvailableError(RetriableError):
    """The records could not be written now, or the coordinator's topic is being created."""
