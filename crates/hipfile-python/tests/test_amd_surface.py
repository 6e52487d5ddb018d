"""The names of AMD's package: signatures, exceptions, counts."""

import ctypes
import errno
import os
import re
import stat
from pathlib import Path

import pytest

import hipfile
from hipfile import Buffer, Driver, FileHandle, FileHandleType, HipFileException, OpError, Stream
from hipfile.hipMalloc import hipFree, hipMalloc

AMD_NAMES = """__version__ Driver FileHandle Stream supports_async Buffer HipFileException FileHandleType OpError
driver_get_properties get_version""".split()


def code(raised):
    return raised.value.hipfile_err


def test_every_name_is_there():
    assert [name for name in AMD_NAMES if not hasattr(hipfile, name)] == []
    assert set(AMD_NAMES) <= set(hipfile.__all__)
    assert [name for name in hipfile.__all__ if not hasattr(hipfile, name)] == []


def test_codes_are_those_of_the_header():
    header = Path(__file__).parents[3] / "include" / "hipfile.h"
    names = dict(re.findall(r"^\s*(hipFile\w+)\s*=\s*HIPFILE_BASE_ERR\s*\+\s*(\d+)", header.read_text(), re.M))
    assert len(names) > 30
    flat = {name.replace("_", "").lower(): int(value) for name, value in OpError.__members__.items()}
    for name, number in names.items():
        assert flat.pop(name.removeprefix("hipFile").lower()) == 5000 + int(number), name
    assert flat == {"success": 0}


def test_versions():
    assert hipfile.get_version() == tuple(int(part) for part in hipfile.__version__.split("."))
    assert hipfile.get_version() == (0, 5, 0)


def test_the_exception_carries_both_numbers():
    error = HipFileException(5011, 100)
    assert (error.hipfile_err, error.hip_err) == (OpError.HIP_DRIVER_ERROR, 100)
    assert "5011" in str(error) and "HIP_DRIVER_ERROR" in str(error) and "100" in str(error)
    assert HipFileException(4711, 0).hipfile_err == 4711


def test_exceptions_survive_pickling():
    import pickle

    with pytest.raises(HipFileException) as raised:
        Driver().close()
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again)) == (type(raised.value), str(raised.value))


class TestDriver:
    def test_opens_and_closes_by_count(self):
        driver = Driver()
        for count in (1, 2, 3):
            driver.open()
            assert Driver.use_count() == count
        for count in (2, 1, 0):
            driver.close()
            assert Driver.use_count() == count
        with pytest.raises(HipFileException) as raised:
            driver.close()
        assert code(raised) == OpError.DRIVER_NOT_INITIALIZED

    def test_is_a_context_manager(self):
        with Driver() as driver:
            assert isinstance(driver, Driver) and Driver.use_count() == 1
        assert Driver.use_count() == 0

    def test_properties_open_nothing(self):
        properties = hipfile.driver_get_properties()
        assert Driver.use_count() == 0
        assert properties["max_batch_io_count"] >= 128
        assert properties["nvfs"]["max_direct_io_size"] > 0
        assert properties["feature_flags"] & 0b110 == 0b110

    def test_async_is_supported(self):
        assert hipfile.supports_async() is True
        assert Driver.use_count() == 0


class TestBuffer:
    def test_registers_and_opens_the_driver(self, gpu):
        memory = gpu(8192)
        buffer = Buffer(memory.ptr, 8192, 0)
        assert (buffer.ptr, buffer.registered) == (memory.ptr, False)
        buffer.deregister()  # Nothing to do, and no error.
        buffer.register()
        assert Driver.use_count() == 1
        with pytest.raises(HipFileException) as raised:
            Buffer(memory.ptr, 8192, 0).register()
        assert code(raised) == OpError.MEMORY_ALREADY_REGISTERED
        buffer.deregister()
        buffer.deregister()

    def test_a_range_outside_its_allocation_is_refused(self, gpu):
        memory = gpu(8192)
        with pytest.raises(HipFileException) as raised:
            Buffer(memory.ptr + 4096, 1 << 40, 0).register()
        assert code(raised) == OpError.HIP_POINTER_RANGE_ERROR
        with pytest.raises(HipFileException) as raised:
            Buffer(0, 4096, 0).register()
        assert code(raised) == OpError.INVALID_VALUE

    def test_closing_the_driver_ends_registrations(self, gpu):
        memory = gpu(4096)
        buffer = Buffer(memory.ptr, 4096, 0)
        buffer.register()
        Driver().close()
        with pytest.raises(HipFileException) as raised:
            buffer.deregister()
        assert code(raised) == OpError.DRIVER_CLOSING

    def test_context_manager_and_ctypes(self, gpu):
        memory = gpu(4096)
        with Buffer.from_ctypes_void_p(ctypes.c_void_p(memory.ptr), 4096, 0) as buffer:
            assert buffer.registered
        assert not buffer.registered
        with pytest.raises(ValueError):
            Buffer.from_ctypes_void_p(ctypes.c_void_p(None), 4096, 0)


class TestFileHandle:
    def test_properties(self, tmp_path):
        handle = FileHandle(tmp_path / "x", os.O_RDONLY)
        assert (handle.path, handle.flags, handle.mode, handle.handle) == (tmp_path / "x", os.O_RDONLY, 0o644, None)
        assert FileHandle.DEFAULT_MODE == 0o644
        assert handle.handle_type is FileHandleType.OPAQUE_FD

    def test_opens_once_and_closes_often(self, data):
        handle = FileHandle(data[0], os.O_RDONLY)
        handle.open()
        assert handle.handle and Driver.use_count() == 1
        with pytest.raises(RuntimeError):
            handle.open()
        with pytest.raises(RuntimeError):
            handle.handle_type = FileHandleType.OPAQUE_FD
        handle.close()
        handle.close()
        assert handle.handle is None

    def test_a_closed_file_cannot_be_read(self, data, gpu):
        memory = gpu(4096)
        handle = FileHandle(data[0], os.O_RDONLY)
        for call in (handle.read, handle.write):
            with pytest.raises(RuntimeError):
                call(Buffer(memory.ptr, 4096, 0), 4096, 0, 0)
        with pytest.raises(RuntimeError):
            handle.read_async(Buffer(memory.ptr, 4096, 0), 4096, 0, 0, 0)

    def test_handle_types(self, data):
        handle = FileHandle(data[0], os.O_RDONLY)
        with pytest.raises(ValueError):
            handle.handle_type = 7
        with pytest.raises(NotImplementedError):
            handle.handle_type = FileHandleType.OPAQUE_WIN32
        handle.handle_type = FileHandleType.USERSPACE_FS
        with pytest.raises(hipfile.Unsupported) as raised:
            handle.open()
        assert code(raised) == OpError.IO_NOT_SUPPORTED
        assert Driver.use_count() == 0

    def test_what_cannot_be_registered_is_closed_again(self, tmp_path):
        before = os.listdir("/proc/self/fd")
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(HipFileException) as raised:
            FileHandle(tmp_path / "pipe", os.O_RDWR).open()
        assert code(raised) == OpError.INVALID_FILE_TYPE
        with pytest.raises(FileNotFoundError):
            FileHandle(tmp_path / "nothing", os.O_RDONLY).open()
        assert len(os.listdir("/proc/self/fd")) == len(before)
        assert Driver.use_count() == 0

    def test_a_new_file_gets_its_mode(self, tmp_path):
        before = os.umask(0)
        try:
            with FileHandle(tmp_path / "new", os.O_CREAT | os.O_RDWR, 0o640):
                pass
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640

    @pytest.mark.parametrize("registered", [True, False])
    def test_round_trip(self, data, tmp_path, gpu, registered):
        path, contents = data
        memory = gpu(len(contents) + 64)
        buffer = Buffer(memory.ptr, memory.nbytes, 0)
        if registered:
            buffer.register()
        with FileHandle(path, os.O_RDONLY) as source:
            assert source.read(buffer, len(contents), 0, 64) == len(contents)
        assert memory.download(64, len(contents)) == contents
        assert memory.download(0, 64) == b"\xee" * 64
        with FileHandle(tmp_path / "copy", os.O_CREAT | os.O_RDWR | os.O_TRUNC) as target:
            assert target.write(buffer, len(contents), 0, 64) == len(contents)
        assert (tmp_path / "copy").read_bytes() == contents

    def test_behaviour_135_the_count_of_bytes_comes_back(self, data, gpu):
        path, contents = data
        memory = gpu(1 << 20)
        buffer = Buffer(memory.ptr, memory.nbytes, 0)
        with FileHandle(path, os.O_RDONLY) as source:
            count = source.read(buffer, 4096, len(contents) - 1000, 0)
            assert type(count) is int and count == 1000
            assert source.read(buffer, 4096, len(contents) + 5, 0) == 0
            assert source.read(buffer, 0, 0, 0) == 0
        assert memory.download(0, 1000) == contents[-1000:]
        assert memory.download(1000, 24) == b"\xee" * 24

    def test_errors_of_transfers(self, data, gpu):
        path, contents = data
        memory = gpu(8192)
        buffer = Buffer(memory.ptr, 8192, 0)
        with FileHandle(path, os.O_RDONLY) as source:
            with pytest.raises(OSError) as raised:
                source.read(buffer, 4096, -1, 0)
            assert raised.value.errno == errno.EINVAL
            with pytest.raises(HipFileException) as raised:
                source.read(buffer, 1 << 30, 0, 4096)
            assert code(raised) == OpError.INVALID_VALUE
            with pytest.raises(OSError) as raised:
                source.write(buffer, 4096, 0, 0)
            assert raised.value.errno == errno.EBADF
            Driver().close()
            with pytest.raises(OSError) as raised:
                source.read(buffer, 4096, 0, 0)
            assert raised.value.errno == errno.EINVAL
            Driver().open()
            with pytest.raises(hipfile.NotRegistered) as raised:
                source.read(buffer, 4096, 0, 0)
            assert code(raised) == OpError.HANDLE_NOT_REGISTERED

    def test_an_error_names_file_offset_and_size(self, tmp_path, gpu):
        (tmp_path / "readonly").write_bytes(b"x")
        memory = gpu(4096)
        with FileHandle(tmp_path / "readonly", os.O_RDONLY) as file:
            with pytest.raises(OSError) as raised:
                file.write(Buffer(memory.ptr, 4096, 0), 512, 1024, 0)
        assert all(part in str(raised.value) for part in ("readonly", "1024", "512"))


class TestStreams:
    def test_registration(self):
        stream = Stream(0)
        assert (stream.handle, stream.registered) == (0, False)
        with stream:
            stream.register()
            assert stream.registered
            with pytest.raises(HipFileException) as raised:
                Stream(0).register()
            assert code(raised) == OpError.INVALID_VALUE
        stream.deregister()
        with pytest.raises(HipFileException) as raised:
            Stream(0, 16).register()
        assert code(raised) == OpError.INVALID_VALUE
        assert Driver.use_count() == 0

    def test_reads_and_writes_in_order(self, data, tmp_path, gpu):
        path, contents = data
        memory = gpu(len(contents))
        buffer = Buffer(memory.ptr, memory.nbytes, 0)
        source = FileHandle(path, os.O_RDONLY)
        target = FileHandle(tmp_path / "copy", os.O_CREAT | os.O_RDWR)
        source.open()
        target.open()
        read = source.read_async(buffer, len(contents), 0, 0, 0)
        write = target.write_async(buffer, len(contents), 0, 0, 0)
        assert (read.size, read.file_offset, read.buffer_offset) == (len(contents), 0, 0)
        assert write.wait(60) == len(contents)
        assert read.bytes_done == write.bytes_done == len(contents)
        assert (tmp_path / "copy").read_bytes() == contents
        source.close()
        target.close()

    def test_a_failure_is_a_negative_count(self, data, gpu):
        memory = gpu(4096)
        with FileHandle(data[0], os.O_RDONLY) as source:
            write = source.write_async(Buffer(memory.ptr, 4096, 0), 4096, 0, 0, 0)
            with pytest.raises(OSError):
                write.wait(60)
            assert write.bytes_done == -1

    def test_what_is_dropped_is_carried_out(self, data, tmp_path, gpu):
        memory = gpu(1 << 20, fill=7)
        with FileHandle(tmp_path / "copy", os.O_CREAT | os.O_RDWR) as target:
            for piece in range(16):
                target.write_async(Buffer(memory.ptr, 1 << 20, 0), 65536, piece * 65536, 0, 0)
            last = target.write_async(Buffer(memory.ptr, 1 << 20, 0), 1, 1 << 20, 0, 0)
            assert last.wait(60) == 1
        assert (tmp_path / "copy").read_bytes() == b"\x07" * ((1 << 20) + 1)


def test_hip_malloc():
    ptr = hipMalloc(4096)
    assert isinstance(ptr, ctypes.c_void_p) and ptr.value
    with Buffer.from_ctypes_void_p(ptr, 4096, 0):
        pass
    hipFree(ptr)
    with pytest.raises(ValueError):
        hipFree(ptr)
    hipFree(ctypes.c_void_p(None))


def test_the_lower_half_returns_pairs(data, gpu):
    from hipfile import _hipfile

    memory = gpu(4096)
    assert _hipfile.hipFileDriverClose() == (5001, 0)
    fd = os.open(data[0], os.O_RDONLY)
    handle, status = _hipfile.hipFileHandleRegister(fd)
    assert status == (0, 0) and _hipfile.hipFileUseCount() == 1
    assert _hipfile.hipFileHandleRegister(fd) == (None, (5028, 0))
    assert _hipfile.hipFileRead(handle, memory.ptr, 4096, 0, 0) == (4096, 0)
    assert _hipfile.hipFileRead(handle, memory.ptr, 4096, -1, 0) == (-1, errno.EINVAL)
    assert _hipfile.hipFileRead(handle, memory.ptr, 1 << 30, 0, 0) == (-5022, 0)
    assert _hipfile.hipFileBufRegister(memory.ptr, 4096) == (0, 0)
    assert _hipfile.hipFileBufDeregister(memory.ptr) == (0, 0)
    assert _hipfile.hipFileBufDeregister(memory.ptr) == (5024, 0)
    _hipfile.hipFileHandleDeregister(handle)
    assert _hipfile.hipFileRead(handle, memory.ptr, 4096, 0, 0) == (-5027, 0)
    os.close(fd)
    assert _hipfile.is_hipfile_err(-5022) and not _hipfile.is_hipfile_err(22)
    assert _hipfile.hipfile_errstr(-5022) == "INVALID_VALUE"
    assert _hipfile.is_hip_drv_err((5011, 1)) and _hipfile.hip_drv_err((5011, 1)) == 1


def test_behaviour_132_the_names_of_cufile(data, tmp_path, gpu):
    """What LMCache calls: buffers registered by address, files read and written with offsets on both sides."""
    path, contents = data
    memory = gpu(1 << 20)
    assert hipfile.CuFileDriver() is hipfile.CuFileDriver()
    hipfile.buf_register(ctypes.c_void_p(memory.ptr), 1 << 20, flags=0)
    with hipfile.CuFile(str(path), "r", use_direct_io=True) as file:
        assert file.is_open
        assert file.read(ctypes.c_void_p(memory.ptr), 8192, file_offset=4096, dev_offset=512) == 8192
    assert not file.is_open
    assert memory.download(512, 8192) == contents[4096 : 4096 + 8192]
    with hipfile.CuFile(str(tmp_path / "out"), "w+") as file:
        assert file.write(memory.ptr, 8192, dev_offset=512) == 8192
    assert (tmp_path / "out").read_bytes() == contents[4096 : 4096 + 8192]
    with pytest.raises(OSError):
        file.read(memory.ptr, 1)
    hipfile.buf_deregister(ctypes.c_void_p(memory.ptr))
    with pytest.raises(hipfile.NotRegistered):
        hipfile.buf_deregister(memory.ptr)
    with pytest.raises(ValueError):
        hipfile.CuFile(str(path), "rb+")
