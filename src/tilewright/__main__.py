"""`python -m tilewright` is the `tilewright` program."""

from __future__ import annotations

import sys


def main() -> None:
    """The program; Ctrl-C while it is still importing ends it as quietly as later."""
    try:
        from .cli.main import entry
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    entry()


if __name__ == "__main__":
    main()
