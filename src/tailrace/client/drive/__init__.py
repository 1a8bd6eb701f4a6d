"""Drives a client: who does its I/O, and how callers wait for it.

    engine       what a driver knows of a client: a lock, what is due, and when
    steps        a call that waits, as a generator; written once for threads and event loops
    operation    makes such a generator a method of both faces of a client
    thread       runs a client on the threads that call it, and on one of its own
    loop         runs a client on an event loop
    locks        the lock of a client after an interrupt, and in a forked child

Not here: what is sent. The engines know that, and they know no threads, sockets or clocks.
"""
