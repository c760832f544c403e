"""`python -m quarterdeck` is the `quarterdeck` command."""

import sys

from quarterdeck.cli.main import main

sys.exit(main())
