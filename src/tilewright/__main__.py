"""`python -m tilewright` is the `tilewright` program."""

from .cli.main import entry

if __name__ == "__main__":
    entry()
