"""What a library does in a race: one module per library, each run in a worker process.

``JOBS`` lists the functions of a module. Only the worker imports it, so a library that is not
installed is left out of the tables.
"""
