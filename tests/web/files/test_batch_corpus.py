"""A full batch of real files, some of them broken."""

import pytest

from storage.tables import ledger_audit
from tests.support.requests.batches import convert, counts, create, known
from tests.support.samples.corpus import Entry, load_corpus
from tests.support.servers.in_process import Running

BROKEN = ("bad/truncated.png", "bad/truncated_half.cr2", "bad/truncated.webp")


def _mixed() -> list[Entry]:
    """The smallest valid files, with a broken one at intervals."""
    sound = [entry for entry in load_corpus() if entry.sound and entry.measured != "needs-password"]
    chosen = sorted(sound, key=lambda entry: entry.path.stat().st_size)[: 50 - len(BROKEN)]
    for place, entry in enumerate(entry for entry in load_corpus() if entry.name in BROKEN):
        chosen.insert(place * 20 + 5, entry)
    return chosen


@pytest.mark.skipif(not load_corpus(), reason="the corpus is not here")
def test_fifty_files_of_which_three_are_broken(server: Running) -> None:
    key = server.account(credits=60)
    batch = create(server, key)
    mixed = _mixed()
    path = f"/batch/{batch}/files"
    ids = [server.upload(entry.path.read_bytes(), entry.path.name, path, key)["file_id"] for entry in mixed]
    response = convert(server, batch, key, ids)
    data = response.json()["data"]
    failed = {entry.name for entry, result in zip(mixed, data["results"], strict=True) if result["status"] == "failed"}
    assert failed == set(BROKEN)
    codes = {result["error"]["code"] for result in data["results"] if result["status"] == "failed"}
    assert codes == {"processing_failed"}
    assert (data["total"], data["successful"], data["failed"]) == (50, 47, 3)
    assert response.json()["meta"]["credits_remaining"] == 13
    assert counts(known(server, batch, key)) == ("partial", 50, 0, 47, 3)
    assert server.database.run_blocking(ledger_audit.check) == ()
