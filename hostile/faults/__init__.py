"""Faults enumerated: every call that writes, failing once, and the process killed there once.

``operations.py`` lists what is disturbed. ``disturbed.py`` runs an operation in a process of its
own, with a fault at one call: ``calls.c`` makes those of the disk, ``store.py`` those of a store.
``examine.py`` goes through all calls of an operation, and says what must hold afterwards.
"""
