"""The `flowlex` command: generate, show, solve (one file or thousands), export and plot instances."""

from __future__ import annotations


def main() -> None:
    """Run the command line (the entry point `flowlex`); a defect of the program exits with 70, not with a verdict."""
    import sys
    import traceback

    from flowlex.cli.app import app

    try:
        app()
    except Exception:
        traceback.print_exc()
        sys.exit(70)
