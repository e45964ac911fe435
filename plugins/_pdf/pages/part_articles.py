"""Articles of parts of a PDF: those with beads on their pages, whose other beads are left out."""

from collections.abc import Iterable, Mapping

from pikepdf import Array, Dictionary, Object, Pdf

from plugins._pdf.name_trees import Id, as_list
from plugins._pdf.pages.part_objects import is_apart, keep_apart, take


class PartArticles:
    """The articles of a document, and their beads by page."""

    def __init__(self, document: Pdf, numbers: Mapping[Id, int], apart: list[Object]) -> None:
        self._threads = [thread for thread in as_list(document.Root.get("/Threads")) if isinstance(thread, Dictionary)]
        self._of_page: dict[int, list[tuple[int, int, Object]]] = {}  # article, position and bead
        for index, thread in enumerate(self._threads):
            keep_apart(thread, apart)
            bead, position = thread.get("/F"), 0
            while isinstance(bead, Dictionary) and not is_apart(bead):
                keep_apart(bead, apart)
                page = bead.get("/P")
                number = numbers.get(page.objgen) if isinstance(page, Dictionary) else None
                if number is not None:
                    self._of_page.setdefault(number, []).append((index, position, bead))
                bead, position = bead.get("/N"), position + 1

    def add_to(self, part: Pdf, pages: Iterable[int]) -> None:
        """Adds the articles with beads on these pages."""
        beads: dict[int, list[tuple[int, Object]]] = {}
        for number in pages:
            for index, position, bead in self._of_page.get(number, ()):
                beads.setdefault(index, []).append((position, take(part, bead)))
        threads: list[Object] = []
        for index, found in sorted(beads.items()):
            chain = [bead for _, bead in sorted(found, key=lambda entry: entry[0])]
            for previous, bead in zip([chain[-1], *chain], chain, strict=False):
                previous.N, bead.V = bead, previous
            threads.append(take(part, self._threads[index]))
            threads[-1].F = chain[0]
        if threads:
            part.Root.Threads = Array(threads)
