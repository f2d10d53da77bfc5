"""``python -m flowlex`` is the command ``flowlex``."""

from flowlex.cli import main

if __name__ == "__main__":
    main()
