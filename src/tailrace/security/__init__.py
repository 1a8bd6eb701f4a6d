"""Encryption, logins and the rules of access, for both ends of a connection and without sockets."""
