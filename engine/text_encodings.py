"""Imports the codecs of all text encodings: files name the encoding of their text."""

import encodings
import importlib
import pkgutil
from contextlib import suppress

for _module in pkgutil.iter_modules(encodings.__path__):
    with suppress(ImportError):  # encodings of other operating systems
        importlib.import_module(f"encodings.{_module.name}")
