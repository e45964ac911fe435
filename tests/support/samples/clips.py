"""Clips, written by FFmpeg without the plugin."""

from fractions import Fraction
from io import BytesIO
from typing import Any

import av
import numpy as np
from PIL import Image


def clip(
    *pictures: Image.Image,
    muxer: str = "mp4",
    codec: str = "libx264",
    rate: int = 10,
    sound: bool = False,
    ratio: Fraction | None = None,
    samples: str = "yuv420p",
) -> bytes:
    """A clip of these pictures in sRGB, with sound or a ratio of the sides of its pixels on request.

    `samples` is FFmpeg's name for their kind, which can have transparency as the pictures do.
    """
    file = BytesIO()
    with av.open(file, "w", format=muxer) as container:
        stream: Any = container.add_stream(codec, rate=rate, options={"crf": "5", "auto-alt-ref": "0"})
        stream.width, stream.height = pictures[0].size
        stream.pix_fmt = samples
        if ratio:
            stream.sample_aspect_ratio = ratio
        audio: Any = container.add_stream("aac", rate=8000, layout="mono") if sound else None
        for picture in pictures:
            frame = av.VideoFrame.from_ndarray(np.array(picture), "rgba" if picture.mode == "RGBA" else "rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
        if audio:
            silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
            silence.sample_rate = 8000
            container.mux(audio.encode(silence))
            container.mux(audio.encode(None))
    return file.getvalue()


def first_picture(data: bytes) -> tuple[Image.Image, int]:
    """The first picture of a clip, and the number of pictures."""
    with av.open(BytesIO(data), "r") as container:
        pictures = [Image.fromarray(frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
    return pictures[0], len(pictures)
