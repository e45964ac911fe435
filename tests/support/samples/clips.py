"""Clips, written by FFmpeg without the plugin."""

from fractions import Fraction
from io import BytesIO
from typing import Any

import av
import numpy as np
from PIL import Image


def clip(
    *images: Image.Image,
    muxer: str = "mp4",
    codec: str = "libx264",
    rate: int = 10,
    sound: bool = False,
    ratio: Fraction | None = None,
    samples: str = "yuv420p",
) -> bytes:
    """A clip of these images in sRGB, with sound or a ratio of the sides of its pixels on request.

    `samples` is FFmpeg's name for their kind, which can have transparency as the images do.
    """
    file = BytesIO()
    with av.open(file, "w", format=muxer) as container:
        stream: Any = container.add_stream(codec, rate=rate, options={"crf": "5", "auto-alt-ref": "0"})
        stream.width, stream.height = images[0].size
        stream.pix_fmt = samples
        if ratio:
            stream.sample_aspect_ratio = ratio
        audio: Any = container.add_stream("aac", rate=8000, layout="mono") if sound else None
        for image in images:
            frame = av.VideoFrame.from_ndarray(np.array(image), "rgba" if image.mode == "RGBA" else "rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
        if audio:
            silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
            silence.sample_rate = 8000
            container.mux(audio.encode(silence))
            container.mux(audio.encode(None))
    return file.getvalue()


def first_image(data: bytes) -> tuple[Image.Image, int]:
    """The first image of a clip, and the number of images."""
    with av.open(BytesIO(data), "r") as container:
        images = [Image.fromarray(frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
    return images[0], len(images)
