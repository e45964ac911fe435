"""Images that are embedded in a PDF as they are: the result is compared with what was embedded."""

from dataclasses import replace

import pytest

from engine import StepFailed
from engine.verification import verify
from tests.support.results.conversions import convert
from tests.support.samples.generated import sample
from tests.support.samples.pdf_documents import REGISTRY, document


@pytest.mark.parametrize("name", ["png", "jpeg", "jp2"])
def test_an_embedded_image_is_one_page(name: str) -> None:
    source = sample(name)
    plan = REGISTRY.plan([REGISTRY.identify_content(source)], "pdf")
    file = convert(source, "pdf").file

    assert verify(REGISTRY, plan, file).count == 1
    with pytest.raises(StepFailed):
        verify(REGISTRY, plan, replace(file, data=document("A", 2)))
