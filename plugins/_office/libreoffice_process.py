"""Runs a macro of LibreOffice without windows, sockets or a service. Started as a program, outside this package.

Arguments: the library, its folder, the URL of the profile and the URL of the macro. Exits with 0 if the macro ran.
"""

import ctypes
import os
import sys

# Positions in the struct LibreOfficeKitClass of LibreOfficeKit.h, which begins with its size.
_RUN_MACRO = 11
_SET_ACTIVE = "_ZN10comphelper14LibreOfficeKit9setActiveEb"  # comphelper::LibreOfficeKit::setActive(bool)


def main(library: str, folder: str, profile: str, macro: str) -> bool:
    """Whether the macro ran to its end."""
    loaded = ctypes.CDLL(library)
    start = loaded.libreofficekit_hook_2
    start.restype = ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))
    office = start(folder.encode(), profile.encode())
    # Without windows that a client shows: pages are then drawn as the program prints them.
    getattr(loaded, _SET_ACTIVE)(False)
    run_macro = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(office[0][_RUN_MACRO])
    return bool(run_macro(ctypes.cast(office, ctypes.c_void_p), macro.encode()))


if __name__ == "__main__":
    ran = main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0 if ran else 1)  # threads of LibreOffice may not end by themselves
