"""Images that are embedded in a PDF as they are: the result is compared with what was embedded."""

from dataclasses import replace

import pytest

from engine import StepFailed
from engine.verification import verify
from tests.support.results.conversions import convert
from tests.support.samples.generated import sample, saved
from tests.support.samples.pdf_documents import REGISTRY, document
from tests.support.samples.pdf_images import images
from tests.support.samples.rasters import photo


@pytest.mark.parametrize("name", ["png", "jpeg", "jp2"])
def test_an_embedded_image_is_one_page(name: str) -> None:
    source = sample(name)
    plan = REGISTRY.plan([REGISTRY.identify_content(source)], "pdf")
    file = convert(source, "pdf").file

    assert verify(REGISTRY, plan, file).count == 1
    with pytest.raises(StepFailed):
        verify(REGISTRY, plan, replace(file, data=document("A", 2)))


@pytest.mark.parametrize("name", ["PNG", "JPEG", "JPEG2000"])
def test_an_image_that_fits_is_embedded_as_it_is(name: str) -> None:
    source = saved(photo((200, 150)), name)
    embedded = convert(source, "pdf")
    size = len(embedded.data)

    fitting, reduced = (convert(source, "pdf", max_bytes=limit) for limit in (size, size - 1))

    assert [one.raw for one in images(fitting.data)] == [one.raw for one in images(embedded.data)]
    assert (fitting.outcome.quality_used, len(reduced.data) <= size - 1) == (None, True)
    assert reduced.outcome.quality_used is not None
