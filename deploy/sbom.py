"""What an installation consists of: a bill of materials (CycloneDX, JSON), or a table of licences.

    python -m uepnet.deploy.sbom serve cpu > uepnet.cdx.json
    python -m uepnet.deploy.sbom --licences serve cpu > licences.md

The arguments are extras of uepnet. The packages are those that are installed in this environment, and of these the ones
that uepnet with its extras needs, directly or through others.
"""

import argparse
import json
import uuid
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = "uepnet"


class Closure:
    """The packages that some extras need. `packages` and `needs` go by normalised name."""

    def __init__(self, extras: list[str]) -> None:
        self.packages: dict[str, Distribution] = {}
        self.needs: dict[str, set[str]] = {}
        self._seen: set[tuple[str, str]] = set()
        offered = distribution(ROOT).metadata.get_all("Provides-Extra", [])
        for extra in extras:
            if extra not in offered:
                raise SystemExit(f"uepnet has no extra {extra!r}; it has {', '.join(offered)}.")
        for extra in ("", *extras):
            self._add(ROOT, extra)

    def _add(self, name: str, extra: str) -> None:
        if (name, extra) in self._seen:
            return
        self._seen.add((name, extra))
        try:
            found = self.packages.setdefault(name, distribution(name))
        except PackageNotFoundError:
            raise SystemExit(f"{name} is not installed: install the extras first.") from None
        needs = self.needs.setdefault(name, set())
        for line in found.requires or ():
            need = Requirement(line)
            if need.marker is not None and not need.marker.evaluate({"extra": extra}):
                continue
            its_name = canonicalize_name(need.name)
            needs.add(its_name)
            for its_extra in ("", *need.extras):
                self._add(its_name, its_extra)


def licence(package: Distribution) -> str:
    """An SPDX expression where the package has one, else what it says of its licence."""
    if expression := stated(package, "license_expression"):
        return expression
    classifiers = [text for text in package.metadata.get_all("Classifier", []) if text.startswith("License ::")]
    names = [text.rpartition(" :: ")[2] for text in classifiers if not text.endswith(":: OSI Approved")]
    return ", ".join(names) or stated(package, "license").strip().partition("\n")[0] or "unknown"


def stated(package: Distribution, field: str) -> str:
    """A field of the package's metadata; empty where it has none."""
    return str(package.metadata.json.get(field, ""))


def component(name: str, package: Distribution) -> dict[str, Any]:
    kind = "application" if name == ROOT else "library"
    reference = f"pkg:pypi/{name}@{package.version}"
    text = licence(package)
    is_expression = bool(stated(package, "license_expression"))
    return {
        "type": kind,
        "bom-ref": reference,
        "name": name,
        "version": package.version,
        "purl": reference,
        "description": stated(package, "summary"),
        "licenses": [{"expression": text} if is_expression else {"license": {"name": text}}],
    }


def bill(closure: Closure) -> dict[str, Any]:
    """The same for the same packages: it has no date, and its number is made from its content."""
    components = {name: component(name, package) for name, package in sorted(closure.packages.items())}
    references = {name: part["bom-ref"] for name, part in components.items()}
    content = {
        "metadata": {"component": components[ROOT]},
        "components": [part for name, part in components.items() if name != ROOT],
        "dependencies": [
            {"ref": references[name], "dependsOn": sorted(references[need] for need in closure.needs[name])}
            for name in components
        ],
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{number}", "version": 1}
    return {"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", **head, **content}


def licences(closure: Closure) -> str:
    rows = [f"| {name} | {licence(package)} |" for name, package in sorted(closure.packages.items()) if name != ROOT]
    return "\n".join(["| package | licence |", "|---|---|", *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description="Print a bill of materials (CycloneDX) of this environment.")
    parser.add_argument("--licences", action="store_true", help="print a table of licences instead")
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help="extras of uepnet, such as serve")
    args = parser.parse_args()
    closure = Closure(args.extras)
    print(licences(closure) if args.licences else json.dumps(bill(closure), indent=2))


if __name__ == "__main__":
    main()
