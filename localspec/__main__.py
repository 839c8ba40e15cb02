"""``localspec`` and ``python -m localspec``: the only place that turns errors into a sentence and
an exit code."""

from __future__ import annotations

import os
import sys


def _fail(message: str, hint: str = "") -> None:
    from localspec.terminal import label

    print(f"localspec: {label(message)}", file=sys.stderr)
    if hint:
        print("\n".join(f"  {label(line)}" for line in hint.splitlines()), file=sys.stderr)


def _drop_stdout() -> None:
    """The reader of our pipe has gone (``| head``): let the interpreter's last flush go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(args: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    import click

    from localspec.cli import ReaderLeft, cli
    from localspec.errors import LocalspecError

    for stream in (sys.stdout, sys.stderr):
        # A Windows console in an old code page must not end the answer at the first accent.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    try:
        result = cli.main(args=args, prog_name="localspec", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        _fail(error.format_message())
        return error.exit_code
    except LocalspecError as error:
        _fail(error.message, error.hint)
        return error.exit_code
    except (KeyboardInterrupt, click.exceptions.Abort):
        return 130
    except (ReaderLeft, BrokenPipeError):
        _drop_stdout()
        return 0
    except Exception as error:  # noqa: BLE001 - the one place that must not show a traceback
        return _unexpected(error)
    return result if isinstance(result, int) else 0


def _unexpected(error: Exception) -> int:
    """A fault of ours: the traceback goes to the log, a sentence to the user."""
    import traceback
    from datetime import datetime

    from localspec import paths

    log = paths.log_file()
    try:
        paths.make_private_dir(log.parent)
        with log.open("a", encoding="utf-8") as stream:
            stream.write(f"{datetime.now().isoformat(timespec='seconds')} unexpected error\n")
            stream.write("".join(traceback.format_exception(error)))
        where = f"The details are in {log}."
    except OSError:
        where = "".join(traceback.format_exception_only(error)).strip()
    _fail(f"something went wrong that should not have: {type(error).__name__}: {error}", where)
    return 70


def entry() -> None:
    """Console-script entry point."""
    sys.exit(main())


if __name__ == "__main__":
    entry()
