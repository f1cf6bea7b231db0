"""`make bench`: every part's figures, as ratios within one run where a machine's speed would show."""

from __future__ import annotations

import importlib
import sys

from tests.bench.measuring import apart

PARTS = (
    "admission",
    "decision",
    "devices",
    "gangs",
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
    if len(names) == 1:
        importlib.import_module(f"tests.bench.{names[0]}").main()
        return
    for name in names or PARTS:
        print(f"\n== {name} ==", flush=True)
        apart(main, [name])


if __name__ == "__main__":
    main(sys.argv[1:])
