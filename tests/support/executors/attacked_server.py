"""A server that is attacked: runs attacks in worker processes, and prints as JSON which of them succeeded.

Arguments: a folder, a JSON list of Landlock versions to emulate one after the other, and a JSON object of attacks and
their arguments, where "server" is the process ID of this process. The output has an object per version.
"""

import asyncio
import json
import os
import sys
from io import BytesIO
from pathlib import Path

from PIL import Image

from engine.executor import forkserver
from tests.support.executors.isolated import misbehaving, run_files, trouble_job

_EMULATION = """
from engine.sandbox import landlock
version = landlock.abi_version()
landlock.abi_version = lambda: min({}, version)
"""


async def _attack(folder: Path, attacks: dict[str, str]) -> dict[str, bool]:
    succeeded = {}
    async with misbehaving(1) as executor:
        for attack, argument in attacks.items():
            deed = f"{attack} {os.getpid() if argument == 'server' else argument}"
            job = trouble_job(folder, "deed")
            job.inputs[0].write_bytes(b"TROUBLE " + deed.encode())
            await run_files(executor, job)
            with Image.open(BytesIO(job.output.read_bytes())) as image:
                succeeded[attack] = image.convert("RGB").getpixel((0, 0)) == (255, 0, 0)
    return succeeded


def main(folder: Path, versions: list[int], attacks: dict[str, str]) -> None:
    program = forkserver.PROGRAM
    succeeded = []
    for version in versions:
        forkserver.PROGRAM = f"{_EMULATION.format(version)}{program}"
        succeeded.append(asyncio.run(_attack(folder, attacks)))
    print(json.dumps(succeeded))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3]))
