"""Arrays of numpy to files and back: straight from and to their memory, by calls, futures and a batch.

    python numpy_roundtrip.py FOLDER
"""

import os
import sys

import numpy

import hipfile


def main(folder):
    array = numpy.random.default_rng(0).standard_normal((1000, 257), dtype=numpy.float32)

    # A file of numpy: numpy reads what is written here, and the other way round.
    path = os.path.join(folder, "array.npy")
    hipfile.save_npy(path, array)
    assert numpy.array_equal(numpy.load(path), array)
    assert numpy.array_equal(hipfile.load_npy(path), array)

    # The bytes alone, by calls.
    path = os.path.join(folder, "array.bin")
    with hipfile.open(path, "w+") as file:
        assert file.write_from(array) == array.nbytes
        again = numpy.empty_like(array)
        assert file.read_into(again) == array.nbytes
        assert numpy.array_equal(again, array)

        # Rows here and there, while this thread does something else.
        rows = [3, 999, 500]
        parts = [numpy.empty(257, numpy.float32) for _ in rows]
        futures = [file.submit("read", part, row * array[0].nbytes) for row, part in zip(rows, parts)]
        total = array.sum()
        assert [future.result() for future in futures] == [array[0].nbytes] * len(rows)
        assert numpy.array_equal(numpy.array(parts), array[rows]) and numpy.isfinite(total)

        # Every row, handed over in one call.
        again[:] = 0
        with hipfile.Batch(1000) as batch:
            for row in range(1000):
                batch.read(file, again[row], row * again[row].nbytes)
            assert all(result.status == "complete" for result in batch.wait())
        assert numpy.array_equal(again, array)
    print(f"{array.nbytes} bytes there and back, four ways")


if __name__ == "__main__":
    main(*sys.argv[1:])
