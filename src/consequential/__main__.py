"""`python -m consequential`."""

import sys

from consequential.cli import main

sys.exit(main())
