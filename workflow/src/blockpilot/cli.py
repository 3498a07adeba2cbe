"""The command `blockpilot`."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from blockpilot.errors import BlockPilotError
from blockpilot.readme import README_RUN, refresh_readme

SHIPPED = {
    "target": (
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ),
    "draft": ("config.json", "model.safetensors"),
}
MAX_SHIPPED_MB = 25.0


def ship_pocket(source: Path, destination: Path) -> None:
    """Copy a trained pair and its cards into the repository.

    Raises:
        BlockPilotError: If a file is missing or the pair is too large to ship.
    """
    files = {
        source / kind / name: destination / kind / name
        for kind, names in SHIPPED.items()
        for name in names
    }
    for kind in SHIPPED:
        files[source / "cards" / f"{kind}.md"] = destination / kind / "README.md"
    files[source / "cards" / "quality.json"] = destination / "quality.json"
    missing = [str(path) for path in files if not path.is_file()]
    if missing:
        raise BlockPilotError(f"{', '.join(missing)} missing; run: make train-pocket")
    size_mb = sum(path.stat().st_size for path in files) / 1e6
    if size_mb > MAX_SHIPPED_MB:
        raise BlockPilotError(f"the pair has {size_mb:.1f} MB; allowed: {MAX_SHIPPED_MB:g} MB")
    for origin, copy in files.items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(origin, copy)
    print(f"shipped {len(files)} files, {size_mb:.1f} MB, to {destination}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="blockpilot", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    ship = commands.add_parser("ship-pocket", help="copy the trained pair into the repository")
    ship.add_argument("--source", type=Path, default=Path("results/train_pocket"))
    ship.add_argument("--destination", type=Path, default=Path("workflow/resources/pocket"))
    readme = commands.add_parser("readme", help="fill README.md with the published numbers")
    readme.add_argument("--run", default=README_RUN, help="folder under docs/ (%(default)s)")
    readme.add_argument("--root", type=Path, default=Path(), help="of the repository (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        if options.command == "readme":
            print(refresh_readme(options.root, options.run))
        else:
            ship_pocket(options.source, options.destination)
    except BlockPilotError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
