"""`uepnet serve`: the HTTP service and its page. Its flags are the fields of `service.settings.Settings`."""

import argparse
import logging
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uepnet.service.settings import Settings

EXAMPLES = """examples:
  uepnet serve                                     the page and the service on http://127.0.0.1:8000
  UEPNET_API_KEYS=change-me-please uepnet serve --host 0.0.0.0     for others on the network, who need the key
  uepnet serve --model models/station --device cuda

  curl --data-binary @crowd.jpg -H 'Content-Type: image/jpeg' http://127.0.0.1:8000/v1/count

Every flag is also an environment variable: --max-requests is UEPNET_MAX_REQUESTS. Keys are set in the
environment alone (UEPNET_API_KEYS, UEPNET_ADMIN_KEY). docs/operations.md explains all settings."""


def configure(parser: argparse.ArgumentParser) -> None:
    from uepnet.service.settings import Settings, flag, is_secret, placeholder

    parser.description = "Run the HTTP service and its web page until SIGTERM or Ctrl-C."
    parser.epilog = EXAMPLES
    for name, field in Settings.model_fields.items():
        if not is_secret(name):
            value = int(field.default) if isinstance(field.default, bool) else field.default
            default = "" if value in (None, ()) else f" (default: {value})"
            parser.add_argument(
                flag(name), metavar=placeholder(name), help=f"{field.description}{default}".replace("%", "%%")
            )


def run(args: argparse.Namespace) -> int:
    from uepnet.service.logs import configure_logs
    from uepnet.service.memory import return_large_blocks
    from uepnet.service.open_files import allow_open_files
    from uepnet.service.settings import Settings, load_settings, unknown_variables

    given = {name: value for name, value in vars(args).items() if name in Settings.model_fields and value is not None}
    settings = load_settings(given)
    _check_model(settings)
    allow_open_files(settings)

    from uepnet.service.http.server import HttpServer

    configure_logs(settings)
    return_large_blocks()
    for sentence in unknown_variables():
        print(f"uepnet: {sentence}", file=sys.stderr)
    server = HttpServer(settings)
    failure = server.run_until_drained()
    if server.forced:
        # The device thread may be deep inside a batch; an interpreter that tidies up under it would abort.
        logging.shutdown()
        sys.stderr.flush()
        os._exit(1 if server.lost else 0)
    if failure is not None:
        print(f"uepnet: {failure}", file=sys.stderr)
        return 2
    return 1 if server.lost else 0


def _check_model(settings: "Settings") -> None:
    """The commonest mistake, a wrong directory, is told before anything starts."""
    from uepnet.model.artifact import Artifact, model_directory
    from uepnet.model.errors import InputError, ModelError
    from uepnet.model.runtime import BUNDLED

    if settings.models_dir is not None and not settings.models_dir.is_dir():
        raise InputError(
            f"{settings.models_dir} is not a folder: --models-dir names the folder with the models for reloads."
        )
    if settings.model is not None:
        Artifact.load(model_directory(settings.model))
    elif not BUNDLED.is_dir():
        raise ModelError("This installation has no bundled model: name a model directory with --model DIR.")
