"""``recmap view``: look at the rows of a dataset in a browser.

``server.py`` answers requests, ``api.py`` says what they mean, ``table.py`` reads rows, and
``page`` has the static files. Nothing is read before the page asks for it.
"""
