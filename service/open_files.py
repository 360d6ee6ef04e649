"""Allow the process as many open files as its connections and requests need."""

import resource

from uepnet.model.errors import InputError
from uepnet.service.settings import PREFIX, Settings

FILES_PER_REQUEST = 4  # a decoding process, and memory on its way to and from it
OTHER_FILES = 128  # reserved connections, the model, the history, webhooks


def allow_open_files(settings: Settings) -> None:
    """Raise the soft limit where it is too low; refuse to start where the hard limit is.

    Many systems set the soft limit to 1024. At the limit a process can accept no connection, not even from a health
    check.
    """
    needed = settings.max_connections + FILES_PER_REQUEST * settings.max_requests + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise InputError(
            f"{PREFIX}MAX_CONNECTIONS = {settings.max_connections} needs {needed} open files, and this process may"
            f" open {hard}: raise the limit (ulimit -n, LimitNOFILE) or lower the setting."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
