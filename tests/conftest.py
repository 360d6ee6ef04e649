"""What every test relies on."""

import signal

from hypothesis import settings

# A shell that starts a job in the background makes it ignore Ctrl-C, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A law holds or it does not; how long an example takes says something about the machine.
settings.register_profile("uepnet", deadline=None)
settings.load_profile("uepnet")
