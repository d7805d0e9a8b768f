"""Exceptions: one for each code of Fairlead's, which are also what Python calls them."""

import enum


class Code(enum.IntEnum):
    """What happened, as fairlead::Code has it."""

    OK = 0
    INVALID_ARGUMENT = 1
    NOT_FOUND = 2
    ALREADY_EXISTS = 3
    OUT_OF_RANGE = 4
    PERMISSION_DENIED = 5
    PROTECTION_ERROR = 6
    RESOURCE_EXHAUSTED = 7
    UNAVAILABLE = 8
    PEER_DIED = 9
    DEADLINE_EXCEEDED = 10
    CANCELLED = 11
    ABORTED = 12
    DATA_LOSS = 13
    VERSION_MISMATCH = 14
    UNIMPLEMENTED = 15
    OUTCOME_UNKNOWN = 16
    INTERNAL = 17

    @classmethod
    def _missing_(cls, value):
        """What a newer release says."""
        return cls.INTERNAL if isinstance(value, int) else None


class Error(Exception):
    """Something that Fairlead could not do. `code` says what kind, the text names object, value, limit and remedy."""

    def __init__(self, message, code=Code.INTERNAL):
        super().__init__(message)
        self.code = Code(code)

    def __reduce__(self):
        return type(self), (self.args[0], int(self.code))


class InvalidArgument(Error, ValueError):
    """The caller's mistake: a value, a size, a shape."""


class NotFound(Error, LookupError):
    """No such name, host, file or device."""


class Denied(Error, PermissionError):
    """The remote access was not granted, or the system refused."""


class Unavailable(Error, ConnectionError):
    """No path to the peer, or the peer has died."""


class DeadlineExceeded(Error, TimeoutError):
    """It was not done in time."""


_KINDS = {
    Code.INVALID_ARGUMENT: InvalidArgument,
    Code.OUT_OF_RANGE: InvalidArgument,
    Code.NOT_FOUND: NotFound,
    Code.PERMISSION_DENIED: Denied,
    Code.PROTECTION_ERROR: Denied,
    Code.UNAVAILABLE: Unavailable,
    Code.PEER_DIED: Unavailable,
    Code.DEADLINE_EXCEEDED: DeadlineExceeded,
}


def made_of(code, message):
    """The exception for a status."""
    return _KINDS.get(Code(code), Error)(message, code)
