"""``python -m fedcluster_app``."""

import sys

from fedcluster_app.cli import main

sys.exit(main())
