"""Leave what the fork server has imported out of the garbage collections of its children.

A collection in a child would look at, and so copy, all of it: that took longer than a conversion.
"""

from __future__ import annotations

import gc

gc.collect()
gc.freeze()
