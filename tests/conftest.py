"""What every test relies on."""

import signal

# A shell that starts a job in the background makes it ignore Ctrl-C, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
