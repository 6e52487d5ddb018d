"""A cache of attention keys and values that outgrows the GPU: blocks are spilt to a file and restored when they are wanted.

    python kv_cache.py FOLDER

The memory of the GPU is one pool of blocks, as inference servers have it. Which block goes is decided by age. With torch or
cupy the pool would be a tensor of theirs; here it is the package's own, so that the example runs anywhere.
"""

import os
import sys
import tempfile
from collections import OrderedDict

import numpy

import hipfile

LAYERS, TOKENS, HEADS, WIDTH = 4, 16, 8, 64
BLOCK = (LAYERS, 2, TOKENS, HEADS, WIDTH)  # Keys and values of 16 tokens, all layers.


class SpillingCache:
    """Blocks by name: as many on the GPU as there is room for, the others in a file."""

    def __init__(self, path, room):
        self.file = hipfile.open(path, "w+")
        self.pool = hipfile.DeviceArray.empty((room, *BLOCK), "float16")
        self.nbytes = self.pool.nbytes // room
        self.free = list(range(room))
        self.here = OrderedDict()  # Name -> row of the pool; the oldest comes first.
        self.places = {}  # Name -> place in the file, for those that were spilt at any time.
        self.spilt = self.restored = 0

    def close(self):
        self.file.close()

    def _row(self):
        """A row for a block; the one that was not wanted for longest makes room."""
        if not self.free:
            name, row = self.here.popitem(last=False)
            if name not in self.places:  # Blocks do not change once they are full: one write is enough.
                self.places[name] = len(self.places) * self.nbytes
                self.file.write_from(self.pool[row : row + 1], self.places[name])
                self.spilt += 1
            self.free.append(row)
        return self.free.pop()

    def put(self, name, block):
        """Takes a block from the host, as a model's kernel would leave it on the GPU."""
        row = self._row()
        self.pool[row : row + 1].set(block)
        self.here[name] = row

    def get(self, name):
        """The block's place on the GPU; it is read from the file if it is not there."""
        if name not in self.here:
            row = self._row()
            count = self.file.read_into(self.pool[row : row + 1], self.places[name])
            assert count == self.nbytes
            self.here[name] = row
            self.restored += 1
        self.here.move_to_end(name)
        row = self.here[name]
        return self.pool[row : row + 1]


def block(name):
    return numpy.random.default_rng(name).standard_normal(BLOCK).astype(numpy.float16)


def main(folder):
    with tempfile.TemporaryDirectory(dir=folder) as inner:
        cache = SpillingCache(os.path.join(inner, "kv"), room=8)
        for name in range(32):
            cache.put(name, block(name))
        for name in [0, 31, 7, 0, 12, *range(32)]:
            assert numpy.array_equal(cache.get(name).numpy()[0], block(name)), name
        print(
            f"32 blocks of {cache.nbytes} bytes, room for 8: {cache.spilt} spilt, {cache.restored} restored, by "
            f"{', '.join(hipfile.stats()['read']['engines'])}"
        )
        cache.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
