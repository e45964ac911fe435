"""`convertd convert --async` and `convertd jobs`."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from tests.support.command_line import invoke, write_samples
from tests.support.servers.in_process import Running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_samples(tmp_path)


def test_files_are_submitted_and_their_results_downloaded(folder: Path, server: Running) -> None:
    key = server.account(10)
    remote = ("--remote", server.url)

    submitted = invoke(
        folder, "convert", "photo.heic", "--to", "webp", "--quality", "50", "--async", *remote, CONVERTD_API_KEY=key
    )
    assert (submitted.exit_code, submitted.stderr) == (0, "convertd: 9 credits remain.\n")
    (job,) = re.findall(r"job_\w{22}", submitted.stdout)
    waited = invoke(folder, "jobs", "wait", job, "-o", "result.webp", *remote, CONVERTD_API_KEY=key)
    assert (waited.exit_code, waited.stdout, waited.stderr) == (0, "", "")
    with Image.open(folder / "result.webp") as image:
        assert image.format == "WEBP"

    listed = invoke(folder, "jobs", "list", "--status", "completed", *remote, "--json", CONVERTD_API_KEY=key)
    assert [found["job_id"] for found in json.loads(listed.stdout)] == [job]
    assert job in invoke(folder, "jobs", "list", *remote, CONVERTD_API_KEY=key).stdout
    shown = invoke(folder, "jobs", "show", job, *remote, CONVERTD_API_KEY=key)
    assert json.loads(shown.stdout)["status"] == "completed"
    cancelled = invoke(folder, "jobs", "cancel", job, *remote, CONVERTD_API_KEY=key)
    assert (cancelled.exit_code, cancelled.stderr) == (0, f"convertd: {job} is deleted.\n")
    gone = invoke(folder, "jobs", "show", job, *remote, CONVERTD_API_KEY=key)
    assert (gone.exit_code, gone.stderr) == (1, "convertd: No such job.\n")


def test_failures_and_wrong_usage(folder: Path, server: Running) -> None:
    key = server.account(10)
    remote = ("--remote", server.url)
    submitted = invoke(folder, "convert", "bad.png", "--to", "webp", "--async", *remote, CONVERTD_API_KEY=key)
    job = submitted.stdout.strip()
    waited = invoke(folder, "jobs", "wait", job, *remote, CONVERTD_API_KEY=key)
    assert (waited.exit_code, waited.stdout) == (1, "")
    assert waited.stderr.startswith(f"convertd: {job} is failed: ")
    assert "corrupt_input" in invoke(folder, "jobs", "list", *remote, "--json", CONVERTD_API_KEY=key).stdout
    (folder / "text.png").write_text("no picture")
    refused = invoke(folder, "convert", "text.png", "--to", "xyz", "--async", *remote, CONVERTD_API_KEY=key)
    assert (refused.exit_code, refused.stdout) == (2, "")
    for arguments in (("convert", "photo.heic", "--to", "webp", "--async"), ("jobs", "list", "--remote", "nonsense")):
        assert invoke(folder, *arguments, CONVERTD_API_KEY=key).exit_code == 2
    assert invoke(folder, "jobs", "list", "--remote", server.url, CONVERTD_API_KEY="").exit_code == 2
