"""`convertd login`: keeps the API key of a server for `--remote`, in a file that only the user can read."""

import json
import os
import sys
from contextlib import suppress
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer

from convertd_client import Client, ConvertdError
from web.cli.output import FAILED, WRONG_USAGE, exit_with, print_message

cli = typer.Typer(add_completion=False)


def find_key(server: str | None) -> str:
    """The API key for a server, by default that of CONVERTD_URL: CONVERTD_API_KEY, or else the one that is kept.

    Raises ValueError without one, and for an invalid URL.
    """
    key = os.environ.get("CONVERTD_API_KEY") or _read_keys().get(Client(server).base_url)
    if key is None:
        raise ValueError("no API key for the server: use convertd login URL, or set CONVERTD_API_KEY.")
    return key


@cli.command()
def login(
    server: Annotated[str, typer.Argument(metavar="URL", help="The server, such as https://convertd.example.com.")],
) -> None:
    """The key is read from standard input, and must be one of the server. A file in ~/.config/convertd has it then."""
    key = (getpass("API key: ") if sys.stdin.isatty() else sys.stdin.readline()).strip()
    try:
        with Client(server, key) as client:
            account = client.account()
            _write_keys({**_read_keys(), client.base_url: key})
    except ValueError as error:
        exit_with(str(error), WRONG_USAGE)
    except ConvertdError as error:
        exit_with(error.message, FAILED)
    except OSError as error:
        exit_with(f"cannot write {_path()}: {error.strerror}", FAILED)
    print_message(f"{_path()} has the key of {account.email}; --remote {server} uses it.")


def _path() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "convertd" / "keys.json"


def _read_keys() -> dict[str, str]:
    """The keys by base URL; none if there is no such file or it has other content."""
    with suppress(OSError, ValueError, AttributeError):
        return {str(url): str(key) for url, key in json.loads(_path().read_text()).items()}
    return {}


def _write_keys(keys: dict[str, str]) -> None:
    """Replaces the file by one that never was readable for others. Raises OSError."""
    path = _path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}-{os.urandom(4).hex()}")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123, a descriptor
            json.dump(keys, file, indent=2)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
