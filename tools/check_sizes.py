"""Fail when a module or a function outgrows the limits of this project.

A file may be listed in `LARGER` with its own limit and the reason; an entry that is no longer
needed fails too, so that the list can only shrink by itself.
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHECKED = ("src", "tools", "benchmarks", "dev.py")
MODULE_LINES = 600
FUNCTION_LINES = 40
LARGER: dict[str, tuple[int, str]] = {
    "src/quarterdeck/acp/schema.py": (2000, "generated from ACP's JSON schema"),
    "src/quarterdeck/acp/v2/schema.py": (2000, "generated from ACP's JSON schema"),
}


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function, without signature and docstring."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def problems(name: str, text: str) -> list[str]:
    """Say what is too large in the file `name`, a path relative to the repository."""
    limit, _reason = LARGER.get(name, (MODULE_LINES, ""))
    lines = len(text.splitlines())
    found = [f"{name}: {lines} lines (limit {limit})"] if lines > limit else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = body_lines(node)
            if size > FUNCTION_LINES:
                where = f"{name}:{node.lineno}: {node.name}"
                found.append(f"{where} has {size} lines (limit {FUNCTION_LINES})")
    return found


def unneeded(sizes: dict[str, int]) -> list[str]:
    return [
        f"{name}: no longer needs its entry in LARGER (tools/check_sizes.py)"
        for name in LARGER
        if sizes.get(name, 0) <= MODULE_LINES
    ]


def main() -> int:
    paths = [path for name in CHECKED for path in (ROOT / name).rglob("*.py")]
    paths += [ROOT / name for name in CHECKED if name.endswith(".py")]
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(paths)
    }
    found = [line for name, text in texts.items() for line in problems(name, text)]
    found += unneeded({name: len(text.splitlines()) for name, text in texts.items()})
    print("\n".join(found) or f"sizes: {len(texts)} files within the limits")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
