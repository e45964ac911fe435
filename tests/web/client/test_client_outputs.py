"""Several results, presets and names of results with the Python client."""

import io
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import convertd_client

OUTPUTS = ({"output_format": "webp", "width": 16, "name": "small"}, {"output_format": "png"})


def test_several_results(client: Any, folder: Path) -> None:
    made = client.convert(folder / "photo.heic", outputs=OUTPUTS, filename="{name}-{width}")
    with ZipFile(io.BytesIO(made.content)) as archive:
        assert archive.namelist() == [one.filename for one in made.outputs]
    first = made.outputs[0]
    assert (first.output_format, first.width, first.filename) == ("webp", 16, "small-16.webp")
    planned = client.inspect(folder / "photo.heic", outputs=OUTPUTS)
    assert planned.credits == 2


def test_presets(client: Any, folder: Path) -> None:
    kept = client.put_preset("thumbs", "webp", width=16, filename="thumb")
    assert (kept.name, kept.fields["output_format"]) == ("thumbs", "webp")
    assert client.preset("thumbs") == kept
    assert client.presets() == (kept,)
    assert client.convert(folder / "photo.heic", preset="thumbs").filename == "thumb.webp"
    file_id = client.upload(folder / "photo.heic").file_id
    assert client.convert_file(file_id, preset="thumbs").width == 16
    client.delete_preset("thumbs")
    with pytest.raises(convertd_client.NotFound):
        client.preset("thumbs")


def test_the_smallest_of_several_formats(client: Any, folder: Path) -> None:
    assert client.convert(folder / "photo.heic", "auto", formats="bmp,png").output_format == "png"
