"""LibRaw develops every generated RAW file to the expected scene."""

import io
from datetime import datetime

import numpy as np
import pytest
import rawpy
from numpy.typing import NDArray
from PIL import Image

from tests.support.samples.raw_samples import CAMERAS, CAPTURED_AT, EXPOSURE_TIME, SENSITIVITY, raw_sample, scene

WIDTH, HEIGHT = 168, 120
QUARTER_TURNS = {1: 0, 3: 2, 6: -1, 8: 1}
SIGNATURES = {
    "cr2": b"II*\0\x10\0\0\0CR\x02\0",
    "nef": b"MM\0*",
    "arw": b"II*\0",
    "dng": b"II*\0",
    "raf": b"FUJIFILMCCD-RAW ",
    "orf": b"IIRO",
    "rw2": b"IIU\0",
}

each_format = pytest.mark.parametrize("format_name", sorted(CAMERAS))


def developed(data: bytes) -> NDArray[np.uint8]:
    with rawpy.imread(io.BytesIO(data)) as raw:
        return raw.postprocess(use_camera_wb=True)


def developed_linear(data: bytes) -> NDArray[np.float64]:
    """Camera colours, 0 to 1, with white balance only."""
    with rawpy.imread(io.BytesIO(data)) as raw:
        picture = raw.postprocess(
            use_camera_wb=True,
            output_color=rawpy.ColorSpace.raw,
            gamma=(1, 1),
            no_auto_bright=True,
            output_bps=16,
        )
    return picture / 0xFFFF


def quadrant_means(picture: NDArray[np.generic]) -> NDArray[np.float64]:
    """Mean colours of the quadrants, row by row, without their edges."""
    height, width = picture.shape[0] // 2, picture.shape[1] // 2
    quadrants = [
        picture[top + 8 : top + height - 8, left + 8 : left + width - 8] for top in (0, height) for left in (0, width)
    ]
    return np.array([quadrant.mean(axis=(0, 1)) for quadrant in quadrants])


def test_there_are_seven_formats() -> None:
    assert CAMERAS.keys() == SIGNATURES.keys()


@each_format
def test_the_file_opens_with_its_signature(format_name: str) -> None:
    assert raw_sample(format_name).startswith(SIGNATURES[format_name])


@each_format
def test_the_file_names_its_camera(format_name: str) -> None:
    data, camera = raw_sample(format_name), CAMERAS[format_name]
    assert camera.make.encode() + b"\0" in data
    assert camera.model.encode() + b"\0" in data


@each_format
@pytest.mark.parametrize(("width", "height"), [(WIDTH, HEIGHT), (84, 62), (420, 300)])
def test_develops_at_the_size_of_the_sensor(format_name: str, width: int, height: int) -> None:
    assert developed(raw_sample(format_name, width=width, height=height)).shape == (height, width, 3)


@each_format
def test_orientation_six_swaps_width_and_height(format_name: str) -> None:
    assert developed(raw_sample(format_name, orientation=6)).shape == (WIDTH, HEIGHT, 3)


@each_format
@pytest.mark.parametrize("orientation", QUARTER_TURNS)
def test_develops_to_the_turned_scene(format_name: str, orientation: int) -> None:
    picture = developed_linear(raw_sample(format_name, orientation=orientation))
    expected = np.rot90(scene(WIDTH, HEIGHT) / 0xFFFF, QUARTER_TURNS[orientation])
    assert np.allclose(quadrant_means(picture), quadrant_means(expected), atol=0.005)


@each_format
def test_quadrants_have_their_colours(format_name: str) -> None:
    red, green, blue, grey = quadrant_means(developed(raw_sample(format_name)))
    for channel, colour in enumerate((red, green, blue)):
        assert colour[channel] > 100 + np.delete(colour, channel).max()
    assert np.ptp(grey) < 3
    assert 100 < grey.mean() < 230


@each_format
def test_the_preview_is_half_the_size(format_name: str) -> None:
    with rawpy.imread(io.BytesIO(raw_sample(format_name))) as raw:
        preview = raw.extract_thumb()
    assert preview.format is rawpy.ThumbFormat.JPEG
    assert isinstance(preview.data, bytes)
    with Image.open(io.BytesIO(preview.data)) as image:
        assert image.size == (WIDTH // 2, HEIGHT // 2)


@each_format
def test_exif_has_exposure_and_time(format_name: str) -> None:
    with rawpy.imread(io.BytesIO(raw_sample(format_name))) as raw:
        shot = raw.other
    assert shot.shutter_speed == pytest.approx(EXPOSURE_TIME[0] / EXPOSURE_TIME[1])
    assert shot.iso_speed == SENSITIVITY
    assert shot.timestamp == datetime.strptime(CAPTURED_AT, "%Y:%m:%d %H:%M:%S")


def test_refuses_a_size_the_format_cannot_hold() -> None:
    with pytest.raises(ValueError, match="multiple of 14 x 2"):
        raw_sample("rw2", width=160)
