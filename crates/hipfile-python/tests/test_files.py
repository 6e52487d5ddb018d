"""Files as objects, futures, operations on streams, batches, reports."""

import asyncio
import errno
import gc
import os
import subprocess
import threading

import numpy
import pytest

import hipfile
from hipfile import Batch, DeviceArray, Driver


class TestOpen:
    def test_modes(self, tmp_path):
        path = tmp_path / "file"
        with pytest.raises(FileNotFoundError) as raised:
            hipfile.open(path)
        assert str(path) in str(raised.value)
        assert Driver.use_count() == 0
        with hipfile.open(path, "x") as file:
            assert file.write_from(b"0123456789") == 10
        with pytest.raises(FileExistsError):
            hipfile.open(path, "x")
        with hipfile.open(path, "r+b") as file:
            assert file.write_from(b"ab", 2) == 2
            assert file.read().tobytes() == b"01ab456789"
        with hipfile.open(path, "a") as file:
            assert file.write_from(b"zz") == 2
        assert path.read_bytes() == b"01ab456789zz"
        with hipfile.open(path, "w+") as file:
            assert file.size == 0
        for mode in ("", "q", "rw", "rt"):
            with pytest.raises(ValueError, match="mode"):
                hipfile.open(path, mode)
        with pytest.raises(ValueError, match="direct"):
            hipfile.open(path, direct="maybe")

    def test_each_file_holds_the_driver_open(self, data):
        one, two = hipfile.open(data[0]), hipfile.open(data[0])
        assert Driver.use_count() == 2
        one.close()
        one.close()
        assert (one.closed, two.closed, Driver.use_count()) == (True, False, 1)
        with pytest.raises(ValueError, match="closed"):
            one.read_into(bytearray(1))
        with pytest.raises(ValueError, match="closed"):
            one.submit("read", bytearray(1))
        del two
        gc.collect()
        assert Driver.use_count() == 0

    def test_what_is_no_file_is_refused(self, tmp_path):
        before = len(os.listdir("/proc/self/fd"))
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(hipfile.HipFileException) as raised:
            hipfile.open(tmp_path / "pipe", "r+")
        assert raised.value.hipfile_err == hipfile.OpError.INVALID_FILE_TYPE
        assert (len(os.listdir("/proc/self/fd")), Driver.use_count()) == (before, 0)

    @pytest.mark.parametrize("direct", ["auto", True, False])
    def test_however_the_page_cache_is_treated(self, data, direct, gpu):
        path, contents = data
        memory = gpu(len(contents))
        with hipfile.open(path, direct=direct) as file:
            assert file.read_into(memory.ptr, nbytes=memory.nbytes) == len(contents)
        assert memory.download(0, memory.nbytes) == contents

    def test_an_error_is_one_of_the_system(self, data):
        with hipfile.open(data[0]) as file, pytest.raises(OSError) as raised:
            file.write_from(b"x")
        assert raised.value.errno == errno.EBADF


class TestRead:
    def test_into_new_arrays(self, data):
        path, contents = data
        with hipfile.open(path) as file:
            whole = file.read()
            assert isinstance(whole, numpy.ndarray) and whole.tobytes() == contents
            part = file.read(64, 8, dtype="float32")
            assert (part.dtype, part.shape, part.tobytes()) == (numpy.float32, (16,), contents[8:72])
            shaped = file.read(shape=(2, 3, 4), dtype=numpy.int16)
            assert (shaped.shape, shaped.tobytes()) == ((2, 3, 4), contents[:48])
            assert file.read(shape=(0, 7)).shape == (0, 7)
            assert file.read(10, len(contents) + 10).shape == (0,)
            plain = file.read(16, dtype="int64", container="bytes")
            assert (type(plain), plain.format, plain.tobytes()) == (memoryview, "q", contents[:16])

    def test_a_short_file(self, data):
        path, contents = data
        with hipfile.open(path) as file:
            assert file.read(64, len(contents) - 10, dtype="float32").shape == (2,)
            with pytest.raises(EOFError, match="54 bytes before"):
                file.read(shape=(16,), dtype="float32", file_offset=len(contents) - 10)
            with pytest.raises(ValueError, match="no whole number"):
                file.read(10, dtype="float32")

    def test_on_the_gpu(self, data):
        path, contents = data
        with hipfile.open(path) as file:
            there = file.read(4096, 4096, device="gpu", dtype="bfloat16", container="hipfile")
        assert isinstance(there, DeviceArray)
        assert (there.shape, there.dtype, there.tobytes()) == ((2048,), "bfloat16", contents[4096:8192])
        assert there[16:32].tobytes() == contents[4128:4160]
        assert there.numpy().tobytes() == there.tobytes()
        assert there.__cuda_array_interface__["typestr"] == "|u1"

    def test_devices_and_types_that_are_not_known(self, data):
        with hipfile.open(data[0]) as file:
            for how, error in (
                ({"device": "tpu"}, ValueError),
                ({"device": "gpu:1000"}, hipfile.HipFileException),
                ({"container": "cupy"}, ValueError),
                ({"container": "frob"}, ValueError),
                ({"dtype": "int5"}, TypeError),
                ({"dtype": ">f4"}, TypeError),
                ({"dtype": object}, TypeError),
                ({"shape": (-1,)}, ValueError),
            ):
                with pytest.raises(error):
                    file.read(16, **how)


class TestFutures:
    def test_many_at_once(self, data):
        path, contents = data
        with hipfile.open(path) as file:
            memories = [bytearray(10000) for _ in range(100)]
            futures = [file.submit("read", memory, i * 10000) for i, memory in enumerate(memories)]
            counts = [future.result(60) for future in futures]
        assert sum(counts) == len(b"".join(memories)[: len(contents)])
        assert b"".join(memories)[: len(contents)] == contents[: 100 * 10000]

    def test_closing_waits_for_them(self, data, tmp_path):
        with hipfile.open(tmp_path / "out", "w") as file:
            futures = [file.submit("write", data[1], i << 21) for i in range(16)]
        assert all(future.done() and future.result() == len(data[1]) for future in futures)

    def test_they_can_be_awaited(self, data):
        path, contents = data

        async def work():
            with hipfile.open(path) as file:
                one, two = bytearray(4096), bytearray(4096)
                counts = await asyncio.gather(file.submit("read", one), file.submit("read", two, 4096))
                return counts, bytes(one + two)

        assert asyncio.run(work()) == ([4096, 4096], contents[:8192])

    def test_errors_come_with_the_result(self, data):
        with hipfile.open(data[0]) as file:
            with pytest.raises(OSError):
                file.submit("write", b"x").result(60)
            with pytest.raises(ValueError, match="read-only"):
                file.submit("read", b"x")
            with pytest.raises(ValueError, match="op is"):
                file.submit("append", b"x")


class TestStreams:
    def test_what_is_queued_keeps_its_memory(self, data):
        path, contents = data
        with hipfile.open(path) as file:
            arrays = [DeviceArray.empty(65536) for _ in range(8)]
            pending = [file.enqueue_read(array, i * 65536, stream=0) for i, array in enumerate(arrays)]
            copies = [DeviceArray.empty(65536) for _ in range(4)]
            for copy in copies:
                file.enqueue_read(copy, stream=0)
            del copies, copy
            gc.collect()
            assert [one.wait(60) for one in pending] == [65536] * 8
            assert b"".join(array.tobytes() for array in arrays) == contents[: 8 * 65536]
            file.enqueue_read(arrays[0], stream=hipfile.Stream(0)).wait(60)


class TestBatch:
    def test_reads_and_writes(self, data, tmp_path):
        path, contents = data
        with hipfile.open(path) as source, hipfile.open(tmp_path / "out", "w+") as target, Batch(300) as batch:
            memories = [bytearray(4096) for _ in range(257)]
            tickets = [batch.read(source, memory, i * 4096) for i, memory in enumerate(memories)]
            results = batch.wait()
            assert sorted(result.ticket for result in results) == tickets
            assert {result.status for result in results} == {"complete"}
            assert sum(result.nbytes for result in results) == len(contents)
            assert b"".join(memories)[: len(contents)] == contents
            there = DeviceArray.from_host(contents[:8192])
            assert batch.write(target, there[:4096]) == 257
            batch.write(target, there[4096:], 4096)
            assert batch.submit() == 2
            assert [result.nbytes for result in batch.wait(2, 60)] == [4096, 4096]
            assert batch.wait() == []
        assert (tmp_path / "out").read_bytes() == contents[:8192]

    def test_a_failure_is_a_result(self, data):
        with hipfile.open(data[0]) as file, Batch() as batch:
            batch.write(file, b"x")
            (result,) = batch.wait()
            assert (result.status, result.nbytes) == ("failed", 0)
            assert isinstance(result.error, OSError) and result.error.errno == errno.EBADF

    def test_all_or_nothing(self, data):
        memory = bytearray(64)
        with hipfile.open(data[0]) as file, Batch(2) as batch:
            batch.read(file, memory)
            batch.read(file, memory, -5)
            with pytest.raises(hipfile.HipFileException) as raised:
                batch.submit()
            assert (raised.value.entry, raised.value.hipfile_err) == (1, hipfile.OpError.INVALID_VALUE)
            assert bytes(memory) == bytes(64)
            assert batch.wait() == []
        for capacity in (0, 4097):
            with pytest.raises(hipfile.HipFileException):
                Batch(capacity)

    def test_one_that_is_dropped_keeps_its_memory_until_it_has_waited(self, data):
        with hipfile.open(data[0]) as file:
            for _ in range(20):
                batch = Batch()
                for i in range(16):
                    batch.read(file, bytearray(65536), i * 65536)
                batch.submit()
                del batch


def test_a_waiting_batch_lets_others_run(python, tmp_path):
    """Behaviour 66 for batches, streams and futures: the interpreter goes on while they wait."""
    status, out, err = python(
        f"""
        import threading, time
        import hipfile
        path = {str(tmp_path / "data")!r}
        with open(path, "wb") as f:
            f.write(bytes(4 << 20))
        array = hipfile.DeviceArray.empty(4 << 20)
        with hipfile.open(path) as file, hipfile.Batch() as batch:
            def waits():
                batch.read(file, array)
                yield batch.wait
                yield file.enqueue_read(array, stream=0).wait
                yield file.submit("read", array).result
            for wait in waits():
                thread, begin, ticks = threading.Thread(target=wait), time.perf_counter(), 0
                thread.start()
                while thread.is_alive():
                    time.sleep(0.001)
                    ticks += 1
                assert time.perf_counter() - begin > 0.1 and ticks > 30, (wait, time.perf_counter() - begin, ticks)
        """,
        HIPFILE_DEVICE="emulated",
        HIP_EMU_FAULT="hipMemcpy:*:delay=70000,hipMemcpyAsync:*:delay=70000,hipAmdFileRead:*:delay=300000",
    )
    assert status == 0, err


def test_threads_share_a_file(data):
    path, contents = data
    wrong = []
    with hipfile.open(path) as file:

        def work(seed):
            memory = bytearray(3000)
            for i in range(100):
                offset = (seed * 7919 + i * 104729) % (len(contents) - 3000)
                if file.read_into(memory, offset) != 3000 or memory != contents[offset : offset + 3000]:
                    wrong.append(offset)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


class TestReports:
    def test_behaviour_137_available_explains(self):
        found = hipfile.available()
        assert len(found.devices) >= 1 or found.reason
        if not found:
            assert found.emulated and found.devices[0]["emulated"]
            assert set(found.runtimes) == {"hip", "cuda"} and all(found.runtimes.values())
            assert "emulated" in str(found)
        else:
            assert None in found.runtimes.values()

    def test_info_and_stats(self, data, gpu):
        before = hipfile.stats()["read"]["bytes"]
        memory = gpu(65536)
        with hipfile.open(data[0]) as file:
            file.read_into(memory.ptr, nbytes=65536)
            info = file.info()
        assert info["path"] == str(data[0])
        assert info["engine"] in ("p2p", "uring", "bounce")
        assert info["emulated"] is memory.emulated
        assert info["reason"] is None or info["reason_text"]
        after = hipfile.stats()
        assert after["read"]["bytes"] - before == 65536
        assert sum(row["bytes"] for row in after["read"]["engines"].values()) == after["read"]["bytes"]
        assert after["emulated"] is memory.emulated

    def test_behaviour_136_on_an_overlay(self, tmp_path, data):
        """The file system of containers, in memory as there: a file of the layer below, and one that comes to lie above."""
        memory = tmp_path / "memory"
        memory.mkdir()
        mounts = [["-t", "tmpfs", "none", memory]]
        layers = {name: memory / name for name in ("lowerdir", "upperdir", "workdir")}
        options = ",".join(f"{name}={place}" for name, place in layers.items())
        mounts.append(["-t", "overlay", "-o", options, "none", memory / "merged"])
        done = 0
        try:
            for mount in mounts:
                mounted = subprocess.run(["mount", *mount], capture_output=True, text=True)
                if mounted.returncode:
                    pytest.skip(f"an overlay cannot be mounted: {mounted.stderr.strip()}")
                done += 1
                for place in (*layers.values(), memory / "merged"):
                    place.mkdir(exist_ok=True)
                (layers["lowerdir"] / "below").write_bytes(data[1])
            with hipfile.open(memory / "merged" / "below") as file:
                assert file.read(device="gpu", container="hipfile").tobytes() == data[1]
            for name in ("below", "above"):
                with hipfile.open(memory / "merged" / name, "w+") as file:
                    there = DeviceArray.from_host(data[1])
                    assert file.write_from(there) == there.nbytes
                    assert file.read(device="gpu", container="hipfile").tobytes() == data[1]
        finally:
            for mount in reversed(mounts[:done]):
                subprocess.run(["umount", mount[-1]], check=True)

    def test_behaviour_136_wherever_the_file_lies(self, tmp_path, data):
        """Disks and memory: no file system is a reason to refuse, and none to skip a test."""
        places = [tmp_path, *(os.path.join(place, f"hipfile-{os.getpid()}") for place in ("/dev/shm", "/var/tmp"))]
        for place in places:
            os.makedirs(place, exist_ok=True)
            path = os.path.join(place, "file")
            try:
                with hipfile.open(path, "w+") as file:
                    there = DeviceArray.from_host(data[1])
                    assert file.write_from(there) == there.nbytes
                    assert file.read(device="gpu", container="hipfile").tobytes() == data[1]
            finally:
                os.unlink(path)
                if place != tmp_path:
                    os.rmdir(place)

    def test_check_and_settings(self):
        found = hipfile.check()
        assert found["kernel"] == os.uname().release
        assert found["io_uring"]["answer"] in (True, False, None) and found["io_uring"]["found"]
        assert hipfile.settings()["allow_system_memory"] is True


def test_both_packages_at_once_are_told(python, tmp_path):
    theirs = tmp_path / "hipfile-0.4.0.dist-info"
    theirs.mkdir()
    (theirs / "METADATA").write_text("Metadata-Version: 2.1\nName: hipfile\nVersion: 0.4.0\n")
    status, _, err = python(
        f"""
        import sys, warnings
        sys.path.append({str(tmp_path)!r})
        import hipfile
        """
    )
    assert status == 0 and "hipfile 0.4.0" in err and "uninstall one" in err, err
