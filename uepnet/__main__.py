"""`python -m uepnet` is `uepnet`."""

from uepnet.cli import main

raise SystemExit(main())
