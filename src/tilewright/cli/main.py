"""The command line: what it offers, and what happens when something goes wrong.

Exit codes: 0 done; 1 done, but a comparison found a difference; 2 an error, said in one message; 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import typer
from rich.markup import escape

from .._version import __version__
from ..errors import TilewrightError
from . import cache, doctor, explain, inspect, run, show

#: typer carries its own copy of click or uses the installed one, by version; this is the class either raises.
_UsageError: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

_HELP = """Run models and kernels at the speed of this machine, and show the evidence.

Examples:

  tilewright doctor   (what this machine can do, measured)

  tilewright inspect model.onnx

  tilewright run model.onnx --input photo.png

  tilewright run model.onnx --random --against onnxruntime --repeat 50

  tilewright explain examples/kernels.py:softmax --arg 'f32[4096,1024]'

Every command takes --help, and --json where a machine may read the answer. When something fails there is one message
and exit code 2; --debug adds the traceback.
"""

app = typer.Typer(
    name="tilewright", help=_HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    rich_markup_mode=None,
)  # fmt: skip


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tilewright {__version__}")
        raise typer.Exit()


@app.callback(help=_HELP)
def _main(
    version: bool = typer.Option(False, "--version", is_eager=True, callback=_version, help="Show the version."),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None:
    """Options before the command; `--debug` is taken out by `entry`, which accepts it anywhere."""


app.command("doctor")(doctor.doctor)
app.command("run")(run.run)
app.command("inspect")(inspect.inspect)
app.command("explain")(explain.explain)
app.add_typer(cache.app, name="cache")


def entry(argv: Sequence[str] | None = None) -> None:
    """The `tilewright` program."""
    args = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in args
    warnings.showwarning = _show_warning
    sys.unraisablehook = _interrupt_again
    code = _guarded([a for a in args if a != "--debug"], debug)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
    sys.exit(code)


def _guarded(args: list[str], debug: bool) -> int:
    """Run the command; every failure becomes one message and a code."""
    try:
        result = app(args, prog_name="tilewright", standalone_mode=False)
        return _stopped(result if isinstance(result, int) else 0, debug)
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", debug, code=130)
    except typer.Exit as stop:
        return _stopped(stop.exit_code, debug)
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        _drop_stdout()
        return 0
    except SystemExit as stop:
        if stop.code != 1:
            return _stopped(stop.code if isinstance(stop.code, int) else 2, debug)
        _drop_stdout()  # what click makes of a reader that went away
        return 0
    except _UsageError as error:
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        if type(error).__name__ == "NoArgsIsHelpError":  # a bare `tilewright` or `tilewright cache`: teach
            sys.stderr.write(text + "\n" if text else "")
            return 2
        return _fail(f"error: {text}\n  hint: tilewright {_command(args)}--help", debug)
    except TilewrightError as error:
        return _fail(f"error: {error.render()}", debug)
    except MemoryError as error:
        return _fail(f"error: there is not enough memory: {error or 'the system gave none'}", debug)
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return _fail("error: the output cannot be written: no space is left on the device", debug)
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        return _fail(f"internal error ({what}); this is a fault of tilewright: run again with --debug", debug)


def _stopped(code: int, debug: bool) -> int:
    """Some versions of typer answer Ctrl-C with an exit of 130, and no word."""
    return _fail("interrupted", debug, code=130) if code == 130 else int(code)


def _fail(message: str, debug: bool, code: int = 2) -> int:
    if debug:
        traceback.print_exc()
    show.err.print(escape(message), style="red" if code == 2 else "", highlight=False, soft_wrap=True)
    return code


def _command(args: list[str]) -> str:
    """The command's name with a space behind it, for the hint; empty when there is none."""
    names = {c.name for c in app.registered_commands} | {g.name for g in app.registered_groups}
    return f"{args[0]} " if args and args[0] in names else ""


def _interrupt_again(lost: Any) -> None:
    """Ctrl-C that came inside a callback of the garbage collector would be printed and forgotten: give it again, a
    moment later (at once would be inside the same callback)."""
    if lost.exc_type is not None and issubclass(lost.exc_type, KeyboardInterrupt):
        main = threading.main_thread().ident or 0
        again = threading.Timer(0.01, signal.pthread_kill, (main, signal.SIGINT))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(lost)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """A warning is one sentence for the user; the line of our code that gave it does not help them."""
    show.err.print(f"warning: {escape(str(message))}", style="yellow", highlight=False, soft_wrap=True)


def _drop_stdout() -> None:
    """Keep the interpreter from complaining about the closed pipe when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    entry()
