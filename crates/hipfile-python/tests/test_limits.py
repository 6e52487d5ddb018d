"""Where things end: files that are closed under work, disks that are full, batches that are full or over."""

import copy
import errno
import gc
import os
import pickle
import subprocess
import threading
import time

import numpy
import pytest

import hipfile
from hipfile import Batch, DeviceArray, HipFileException, OpError

#: The emulated GPU sleeps in each copy: a read of 4 MiB to it takes some 0.3 s.
SLOW = {"HIP_EMU_FAULT": "hipMemcpy:*:delay=70000,hipMemcpyAsync:*:delay=70000,hipAmdFileRead:*:delay=300000"}


class TestClose:
    """Leaving a file waits for its work, whoever does it and however it was asked for."""

    def test_for_what_is_on_a_stream(self, data, tmp_path):
        for _ in range(30):
            array = numpy.zeros(1 << 20, "u1")
            with hipfile.open(data[0]) as file:
                file.enqueue_read(array, stream=0)
            assert array.tobytes() == data[1][: 1 << 20]
            with hipfile.open(tmp_path / "out", "w") as file:
                file.enqueue_write(array)
            assert (tmp_path / "out").read_bytes() == data[1][: 1 << 20]
        assert hipfile.Driver.use_count() == 0

    def test_for_what_is_in_a_batch(self, data):
        with Batch() as batch:
            for _ in range(30):
                array = bytearray(1 << 20)
                with hipfile.open(data[0]) as file:
                    batch.read(file, array)
                    batch.submit()
                assert array == data[1][: 1 << 20]
                assert [result.nbytes for result in batch.wait()] == [1 << 20]

    def test_of_the_names_of_amd_too(self, data, gpu):
        memory = gpu(1 << 20)
        buffer = hipfile.Buffer(memory.ptr, 1 << 20, 0)
        for _ in range(30):
            with hipfile.FileHandle(data[0], os.O_RDONLY) as file:
                pending = file.read_async(buffer, 1 << 20, 0, 0, 0)
            assert pending.done() and pending.bytes_done == 1 << 20

    def test_for_other_threads(self, python, tmp_path):
        (tmp_path / "data").write_bytes(bytes(4 << 20))
        status, out, err = python(
            f"""
            import threading, time, hipfile
            array = hipfile.DeviceArray.empty(4 << 20)
            for how in ("with", "close twice"):
                file, got = hipfile.open({str(tmp_path / "data")!r}), []
                thread = threading.Thread(target=lambda: got.append(file.read_into(array)))
                thread.start()
                time.sleep(0.05)
                other = threading.Thread(target=file.close)
                other.start()
                time.sleep(0.02)
                # It is as good as closed meanwhile, and every closer waits.
                for use in (lambda: file.read_into(array), lambda: file.size, file.info, file.sync):
                    try:
                        use()
                    except ValueError as error:
                        assert "closed" in str(error)
                    else:
                        raise AssertionError(use)
                assert thread.is_alive()
                file.close()
                thread.join()
                assert got == [4 << 20] and file.closed
                other.join()
            print(hipfile.Driver.use_count())
            """,
            HIPFILE_DEVICE="emulated",
            **SLOW,
        )
        assert (status, out) == (0, "0\n"), err

    def test_a_long_wait_says_what_for(self, python, tmp_path):
        (tmp_path / "data").write_bytes(bytes(1 << 20))
        status, out, err = python(
            f"""
            import hipfile
            array = hipfile.DeviceArray.empty(1 << 20)
            with hipfile.open({str(tmp_path / "data")!r}) as file:
                file.enqueue_read(array)
            """,
            HIPFILE_DEVICE="emulated",
            HIPFILE_WAIT_NOTICE="1",
            HIP_EMU_FAULT="hipMemcpyAsync:*:delay=1200000,hipMemcpy:*:delay=1200000,hipAmdFileRead:*:delay=1200000",
        )
        assert status == 0 and "data waits for transfers of it" in err, err

    def test_many_open_use_and_close(self, data):
        """Threads share files that one of them closes: what they get is bytes, or that it is closed."""
        wrong = []

        def work(file):
            memory = bytearray(5000)
            try:
                for _ in range(10000):
                    if file.read_into(memory, 777) != 5000 or memory != data[1][777:5777]:
                        wrong.append("bytes")
            except ValueError as error:
                if "closed" not in str(error):
                    wrong.append(error)
            except BaseException as error:
                wrong.append(error)
            else:
                wrong.append("never closed")

        for _ in range(20):
            with hipfile.open(data[0]) as file:
                threads = [threading.Thread(target=work, args=(file,)) for _ in range(4)]
                for thread in threads:
                    thread.start()
                time.sleep(0.01)
            for thread in threads:
                thread.join()
        assert wrong == []


@pytest.fixture
def small_disk(tmp_path):
    """A file system with room for 2 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2M", "none", place], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


class TestFullDisk:
    """All is written, or an OSError says why not and how much was."""

    SIZE = 5 << 20

    def check(self, error, path, moved):
        assert isinstance(error, OSError) and error.errno == errno.ENOSPC
        assert f"{moved} of {self.SIZE} bytes were written before" in str(error), error
        assert os.path.getsize(path) == moved

    @pytest.mark.parametrize("kind", ["host", "gpu"])
    def test_write_from_and_submit(self, small_disk, kind):
        array = bytearray(self.SIZE) if kind == "host" else DeviceArray.empty(self.SIZE)
        for write in (
            lambda file: file.write_from(array),
            lambda file: file.submit("write", array).result(60),
        ):
            with hipfile.open(small_disk / "file", "w") as file, pytest.raises(OSError) as raised:
                write(file)
            self.check(raised.value, small_disk / "file", 2 << 20)
            # Nothing fits any more.
            with hipfile.open(small_disk / "file", "r+") as file, pytest.raises(OSError) as raised:
                file.write_from(array, 2 << 20, nbytes=1 << 20)
            assert raised.value.errno == errno.ENOSPC
            os.unlink(small_disk / "file")

    def test_batch(self, small_disk):
        with hipfile.open(small_disk / "file", "w") as file, Batch() as batch:
            batch.write(file, bytearray(self.SIZE))
            batch.write(file, bytearray(4096))
            one, two = sorted(batch.wait(), key=lambda result: result.ticket)
        assert (one.status, one.nbytes, two.status, two.nbytes) == ("failed", 2 << 20, "complete", 4096)
        self.check(one.error, small_disk / "file", 2 << 20)

    def test_stream(self, small_disk):
        with hipfile.open(small_disk / "file", "w") as file:
            pending = file.enqueue_write(bytearray(self.SIZE))
            with pytest.raises(OSError, match=f"{2 << 20} of {self.SIZE} bytes") as raised:
                pending.wait(60)
            assert (raised.value.errno, pending.bytes_done) == (errno.ENOSPC, 2 << 20)

    def test_save_npy(self, small_disk):
        path = small_disk / "a.npy"
        hipfile.save_npy(path, numpy.arange(1000))
        with pytest.raises(OSError, match="bytes were written before") as raised:
            hipfile.save_npy(path, numpy.zeros(self.SIZE, "u1"))
        assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(path))
        assert os.listdir(small_disk) == ["a.npy"]
        assert numpy.array_equal(numpy.load(path), numpy.arange(1000))

    def test_a_limit_of_the_process(self, python, tmp_path):
        """The same for everybody, without a disk: a limit on the size of files."""
        status, out, err = python(
            f"""
            import errno, resource, hipfile
            resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
            with hipfile.open({str(tmp_path / "file")!r}, "w") as file:
                try:
                    file.write_from(bytearray(300000))
                except OSError as error:
                    print(error.errno == errno.EFBIG, error.strerror)
            """
        )
        assert status == 0 and out.startswith("True ") and "100000 of 300000 bytes were written before" in out, (out, err)


class TestBatchIsOver:
    def test_when_it_is_closed(self, data):
        memory = bytearray(64)
        with hipfile.open(data[0]) as file:
            with Batch() as batch:
                batch.read(file, memory)
                assert not batch.closed
            assert batch.closed
            batch.close()
            for use in (
                lambda: batch.read(file, memory),
                lambda: batch.write(file, memory),
                batch.submit,
                batch.wait,
                batch.cancel,
                batch.__enter__,
            ):
                with pytest.raises(ValueError, match="the batch is closed"):
                    use()

    def test_when_it_is_full(self, data):
        memories = [bytearray(64) for _ in range(5)]
        with hipfile.open(data[0]) as file, Batch(2) as batch:
            for _ in range(3):
                batch.read(file, memories[0])
                assert batch.submit() == 1
                batch.read(file, memories[1])
                for memory in memories[2:]:
                    with pytest.raises(HipFileException, match="room for 2") as raised:
                        batch.read(file, memory)
                    assert raised.value.hipfile_err == OpError.BATCH_FULL
                assert len(batch.wait()) == 2
        assert memories[4] == bytes(64)

    def test_results_go_to_one_wait_each(self, data):
        """Threads add and collect in one batch; nothing is lost and nothing comes twice."""
        tickets, seen, lock = [], [], threading.Lock()
        with hipfile.open(data[0]) as file, Batch(4096) as batch:

            def work():
                for _ in range(100):
                    ticket = batch.read(file, bytearray(64))
                    results = batch.wait(1, 10)
                    with lock:
                        tickets.append(ticket)
                        seen.extend(result.ticket for result in results)

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seen += [result.ticket for result in batch.wait()]
        assert sorted(seen) == sorted(tickets) == list(range(400))

    def test_when_another_thread_closes_it(self, data, gpu):
        """Who waits gets results, none, or that the batch is closed."""
        memory = gpu(1 << 16)
        wrong = []

        def work(batch):
            try:
                wrong.extend(result for result in batch.wait() if result.status not in ("complete", "canceled"))
            except ValueError as error:
                if "the batch is closed" not in str(error):
                    wrong.append(error)
            except BaseException as error:
                wrong.append(error)

        with hipfile.open(data[0]) as file:
            for i in range(60):
                batch = Batch(64)
                for _ in range(8):
                    batch.read(file, memory.ptr, nbytes=1 << 16)
                threads = [threading.Thread(target=work, args=(batch,)) for _ in range(3)]
                for thread in threads:
                    thread.start()
                time.sleep(i % 10 * 0.0002)
                batch.close()
                for thread in threads:
                    thread.join()
        assert wrong == []

    def test_a_file_that_is_closed_meanwhile(self, data):
        with Batch() as batch:
            with hipfile.open(data[0]) as file:
                batch.read(file, bytearray(64))
            with pytest.raises(HipFileException):
                batch.submit()
            assert batch.wait() == []


class TestMemoryIsNotTakenFirst:
    @pytest.mark.parametrize("device", ["cpu", "gpu"])
    def test_for_more_than_the_file_has(self, data, device):
        how = {"device": device, "container": "numpy" if device == "cpu" else "hipfile"}
        with hipfile.open(data[0]) as file:
            assert file.read(1 << 62, **how).nbytes == len(data[1])
            assert file.read(1 << 62, len(data[1]) - 8, dtype="int64", **how).shape == (1,)
            with pytest.raises(EOFError, match=f"{(1 << 62) - len(data[1])} bytes before"):
                file.read(shape=1 << 62, **how)
            with pytest.raises(ValueError, match="more than"):
                file.read(shape=(1 << 32, 1 << 32), **how)

    def test_of_a_file_that_is_made_up(self):
        with hipfile.open("/proc/self/status") as file:
            assert file.read(5).tobytes() == b"Name:"
            assert file.read(shape=5).tobytes() == b"Name:"
            assert (file.size, file.read().shape) == (0, (0,))

    def test_of_an_empty_file(self, tmp_path):
        with hipfile.open(tmp_path / "empty", "w+") as file:
            assert file.read(1 << 62).shape == (0,)
            assert file.read().shape == (0,)


def test_what_is_open_is_not_copied(data):
    """A copy would close a descriptor that is somebody else's by then."""
    amd = hipfile.FileHandle(data[0], os.O_RDONLY)
    assert copy.copy(amd).path == pickle.loads(pickle.dumps(amd)).path == data[0]
    amd.open()
    with hipfile.open(data[0]) as file, Batch() as batch, hipfile.CuFile(data[0]) as cu:
        for thing in (file, batch, amd):
            for again in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match="cannot be copied"):
                    again(thing)
        del thing
        copied = copy.copy(cu)
        del copied
        gc.collect()
        assert cu.is_open
    amd.close()


def test_descriptors_that_run_out_are_an_error_and_leave_nothing(python, data):
    status, out, err = python(
        f"""
        import errno, os, resource, hipfile
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with hipfile.open({str(data[0])!r}) as file:
            file.read(100)
        before = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        files = []
        try:
            while True:
                files.append(hipfile.open({str(data[0])!r}))
        except OSError as error:
            assert error.errno == errno.EMFILE, error
        assert 20 < len(files) == hipfile.Driver.use_count()
        for file in files:
            assert file.read_into(bytearray(100)) == 100
        for file in files:
            file.close()
        assert (len(os.listdir("/proc/self/fd")), hipfile.Driver.use_count()) == (before, 0)
        """
    )
    assert status == 0, err


def test_threads_that_cannot_be_had_are_done_without(python, data):
    status, out, err = python(
        f"""
        import hipfile, threading
        def refuse(*args):
            raise RuntimeError("can't start new thread")
        threading.Thread.start = refuse
        with hipfile.open({str(data[0])!r}) as file:
            print(file.submit("read", bytearray(100)).result(1))
        """
    )
    assert (status, out) == (0, "100\n"), err


def test_a_standard_error_that_is_gone_is_nobody_s_failure(python, data):
    status, out, err = python(
        f"""
        import os, sys
        os.close(2)
        sys.stderr = None
        import hipfile
        array = hipfile.DeviceArray.empty(1 << 20)
        with hipfile.open({str(data[0])!r}) as file:
            file.enqueue_read(array)
            file.submit("read", array)
        print("closed")
        """,
        HIPFILE_DEVICE="emulated",
        HIPFILE_WAIT_NOTICE="1",
        HIP_EMU_FAULT="hipMemcpyAsync:*:delay=1200000,hipMemcpy:*:delay=1200000,hipAmdFileRead:*:delay=1200000",
    )
    assert (status, out, err) == (0, "closed\n", "")


def test_a_shape_may_be_a_number(data):
    with hipfile.open(data[0]) as file:
        assert file.read(shape=4, dtype="int16").tobytes() == data[1][:8]
        assert file.read(shape=numpy.int64(4)).shape == (4,)
        assert file.read(shape=[2, 2]).shape == (2, 2)


def test_the_default_stream_is_none(data):
    array = numpy.zeros(100, "u1")
    with hipfile.open(data[0]) as file:
        assert file.enqueue_read(array, stream=None).wait(60) == 100
        assert file.enqueue_read(array).wait(60) == 100
    assert array.tobytes() == data[1][:100]
