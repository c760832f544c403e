"""Write `quarterdeck.acp`'s generated modules from ACP's JSON schema.

python tools/gen_acp.py STABLE.json UNSTABLE.json                 print them
python tools/gen_acp.py STABLE.json UNSTABLE.json --write [DIR]   put them in place, or into DIR

The schema files are those of the npm package @agentclientprotocol/sdk, where they lie in schema/v1
and schema/v2 (`python3 dev.py setup` installs it into .peers); its package.json says which version
the package is, and the folder which version of ACP: v2 is written to the package `acp.v2`.
No description of the schema is copied, only names and structure.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

# Run as a script, only tools/ itself is on the path.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.acp_model import Model
from tools.acp_overlay import Schema, with_overlay
from tools.acp_render import (
    calls_of,
    methods_module,
    rules_module,
    schema_module,
    unions_module,
)

TARGET = Path(__file__).resolve().parents[1] / "src/quarterdeck/acp"
FOLDERS = {"v1": 1, "v2": 2}


def modules(stable: Schema, unstable: Schema, source: str, version: int) -> dict[str, str]:
    """Return the text of each generated module by its file name."""
    model = Model(with_overlay(unstable, version))
    return {
        "schema.py": schema_module(model, source, version),
        "unions.py": unions_module(model, source, version),
        "field_rules.py": rules_module(model, Model(stable), source),
        "methods.py": methods_module(model, calls_of(model, stable), source, version),
    }


def version_of(schema: Path) -> int:
    """Return the version of ACP, by the folder that `schema` lies in."""
    folder = schema.resolve().parent.name
    if folder not in FOLDERS:
        sys.exit(f"gen_acp: {schema} is in neither of {', '.join(FOLDERS)}")
    return FOLDERS[folder]


def package_of(schema: Path) -> str:
    """Name the package that `schema` was taken from, as in "@scope/name 1.2.3"."""
    for folder in schema.resolve().parents:
        description = folder / "package.json"
        if description.exists():
            package = json.loads(description.read_text(encoding="utf-8"))
            return f"{package['name']} {package['version']}"
    sys.exit(f"gen_acp: {schema} is not inside an npm package; run python3 dev.py setup")


def main() -> None:
    parser = argparse.ArgumentParser(description="Generate quarterdeck.acp from ACP's schema.")
    parser.add_argument("stable", type=Path)
    parser.add_argument("unstable", type=Path)
    parser.add_argument("--write", type=Path, metavar="DIR", nargs="?", const=Path())
    arguments = parser.parse_args()
    stable, unstable = (
        json.loads(path.read_text(encoding="utf-8"))
        for path in (arguments.stable, arguments.unstable)
    )
    version = version_of(arguments.unstable)
    source = package_of(arguments.unstable)
    target = arguments.write
    if target == Path():
        target = TARGET if version == 1 else TARGET / f"v{version}"
    for name, text in modules(stable, unstable, source, version).items():
        if target is None:
            print(f"# --- {name}\n{text}")
        else:
            (target / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
