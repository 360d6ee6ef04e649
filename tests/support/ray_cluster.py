"""A local Ray cluster for tests, in processes of its own. This file is also the driver that holds it: `python FILE`."""

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

BIN = Path(sys.executable).parent


class Cluster:
    def __init__(self, folder: Path, cores: int) -> None:
        self._folder = folder
        private = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
        private["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # keeps to 127.0.0.1, which Linux takes for a wish otherwise
        private["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = "60"  # three times 5 s are too few on a busy machine
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("UEPNET_", "RAY_"))}
        self._environment = kept | private
        self.log = folder / "ray.log"
        with self.log.open("w") as log:
            self._driver = subprocess.Popen(
                [sys.executable, __file__, str(folder / "ray"), str(cores)],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._address = self._answer()

    def deploy(self, config: dict[str, Any]) -> None:
        """As an operator does it; returns before the new replicas run."""
        path = self._folder / "deploy.yml"
        path.write_text(yaml.safe_dump(config))
        command = [BIN / "serve", "run", "--address", self._address, "--non-blocking", path]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr

    def kill_a_replica(self) -> str:
        """Kill one without warning, as a power cut would; its id."""
        return self._ask("kill")

    def replicas(self) -> set[str]:
        return set(json.loads(self._ask("replicas")))

    def status(self) -> str:
        """Of the application and its deployment, with what Ray says about it."""
        return self._ask("status")

    def _ask(self, command: str) -> str:
        assert self._driver.stdin is not None
        self._driver.stdin.write(command + "\n")
        self._driver.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._driver.stdout is not None
        for line in self._driver.stdout:  # Ray prints lines of its own
            if line.startswith("> "):
                return line.removeprefix("> ").strip()
        raise AssertionError(self.log.read_text())

    def close(self) -> None:
        assert self._driver.stdin is not None and self._driver.stdout is not None
        self._driver.stdin.close()
        self._driver.wait(60)
        self._driver.stdout.close()


def drive(temporary: str, cores: int) -> None:
    import ray
    from ray import serve

    def tell(text: str) -> None:
        sys.stdout.write(f"> {text}\n")
        sys.stdout.flush()

    context = ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False, _temp_dir=temporary)
    tell(context.address_info["address"])
    for line in sys.stdin:
        actors = [one for one in ray.util.list_named_actors(all_namespaces=True) if "SERVE_REPLICA" in one["name"]]
        if line.strip() == "kill":
            ray.kill(ray.get_actor(**actors[0]))
            tell(actors[0]["name"].rpartition("#")[2])
        elif line.strip() == "status":
            application = serve.status().applications["uepnet"]
            said = [f"{one.status.value} {one.message}" for one in application.deployments.values()]
            tell(" ".join(f"{application.status.value} {' '.join(said)}".split()))
        else:
            tell(json.dumps([one["name"].rpartition("#")[2] for one in actors]))
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    drive(sys.argv[1], int(sys.argv[2]))
