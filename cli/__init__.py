"""The `flowlex` command: generate, show, solve (one file or thousands), export and plot instances."""

from __future__ import annotations


def main() -> None:
    """Run the command line (the entry point `flowlex`)."""
    from flowlex.cli.app import app

    app()
