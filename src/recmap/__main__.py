"""python -m recmap."""

import sys

from recmap.cli import main

sys.exit(main())
