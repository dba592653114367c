"""Steers the faults of a program that runs with the preloaded library of faults.c: the table of faults.h, in a file that
both map. Usage: FAULTS = Faults(); subprocess.Popen(..., env={**os.environ, **FAULTS.env()})"""
import mmap
import os
import struct
import sys
import tempfile

LIBRARY = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else ""
KINDS = ["MEMORY", "THREAD", "ADVICE", "READ", "SHORT", "WRITE", "RENAME", "KILL"]
CALLS, FROM, TO, FAILED = range(4)
FOREVER = 2**64 - 1


class Faults:
    def __init__(self):
        self.file = tempfile.NamedTemporaryFile(prefix="faults-")
        size = 8 * (4 * len(KINDS) + 1)
        self.file.write(bytes(size))
        self.file.flush()
        self.table = mmap.mmap(self.file.fileno(), size)

    def env(self):
        return {"LD_PRELOAD": LIBRARY, "MEGADECODE_FAULTS": self.file.name}

    def _at(self, array, kind):
        return 8 * (array * len(KINDS) + KINDS.index(kind))

    def _set(self, array, kind, value):
        struct.pack_into("<Q", self.table, self._at(array, kind), value)

    def _get(self, array, kind):
        return struct.unpack_from("<Q", self.table, self._at(array, kind))[0]

    def set(self, kind, first, last=None):
        """From now on calls number first..last of that kind fail; last None: the first alone."""
        self._set(FROM, kind, 0)
        self._set(CALLS, kind, 0)
        self._set(FAILED, kind, 0)
        self._set(TO, kind, first if last is None else last)
        self._set(FROM, kind, first)

    def clear(self, kind):
        """No more of them; how many there were."""
        self._set(FROM, kind, 0)
        return self._get(FAILED, kind)

    def calls(self, kind):
        return self._get(CALLS, kind)

    def live(self):
        """Blocks of memory that are allocated."""
        return struct.unpack_from("<q", self.table, 8 * 4 * len(KINDS))[0]
