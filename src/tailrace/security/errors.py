"""Errors of encryption, without the modules that encrypt."""


class TlsError(OSError):
    """The peer broke the protocol of TLS, or is not trusted.

    It stands for `ssl.SSLError`, so that plain connections do without `ssl`: that takes 20 ms.
    """
