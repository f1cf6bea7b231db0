"""`make bench`: every part's figures, as ratios within one run where a machine's speed would show."""

from __future__ import annotations

import importlib
import sys

PARTS = (
    "admission",
    "expressions",
    "policy",
    "decision",
    "embedded",
    "reconciler",
    "simulation",
    "memory",
    "scan",
    "structure",
)


def main(names: list[str]) -> None:
    """Run the named parts, or all of them."""
    unknown = set(names) - set(PARTS)
    if unknown:
        sys.exit(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    for name in names or PARTS:
        print(f"\n== {name} ==", flush=True)
        importlib.import_module(f"tests.bench.{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
