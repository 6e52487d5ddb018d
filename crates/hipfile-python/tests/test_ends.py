"""What a fork and the end of the interpreter mean for work that is under way, and other interpreters of the process."""

import os
import subprocess
import sys

import pytest

import hipfile

EMULATED = {"HIPFILE_DEVICE": "emulated"}


def without_notice(text):
    return [line for line in text.splitlines() if "emulated GPU" not in line]


CHILD = """
    import os, sys, threading, time, warnings
    import hipfile
    from hipfile import Batch, DeviceArray, FileHandle, _core

    warnings.simplefilter("ignore", DeprecationWarning)
    PATH = {path!r}

    def in_child(work):
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            try:
                work()
                sys.stdout.flush()
                os._exit(0)
            except BaseException as error:
                print(type(error), error, flush=True)
                os._exit(1)
        for _ in range(600):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return print("child", os.waitstatus_to_exitcode(status))
            time.sleep(0.05)
        os.kill(pid, 9)
        print("the child hangs")

    def tell(name, call):
        try:
            print(name, "gives", call())
        except (OSError, hipfile.HipFileException) as error:
            told = "fork" if "fork" in str(error) else str(error)
            print(name, error.errno if isinstance(error, OSError) else int(error.hipfile_err), told)
"""


def test_what_the_parent_made_is_told_of_the_fork(python, tmp_path):
    """Decision of every call on it: closed or not registered, EINVAL for reads and writes, and the reason is the fork."""
    (tmp_path / "data").write_bytes(bytes(1 << 20))
    program = CHILD.format(path=str(tmp_path / "data")) + """
    file, batch, memory = hipfile.open(PATH, "r+"), Batch(), bytearray(4096)
    array = DeviceArray.empty(4096)
    old = FileHandle(PATH, os.O_RDONLY)
    old.open()
    buffer = hipfile.Buffer(array.ptr, 4096, 0)
    batch.read(file, memory)
    batch.submit()
    queued = file.enqueue_read(memory)
    future = file.submit("read", memory)

    def work(open_own):
        if open_own:
            hipfile.Driver().open()
            own = hipfile.open(PATH)
            own.read_into(memory)
        for name, call in {
            "read_into": lambda: file.read_into(memory),
            "write_from": lambda: file.write_from(memory),
            "submit": lambda: file.submit("read", memory),
            "enqueue_read": lambda: file.enqueue_read(memory),
            "read": lambda: file.read(10),
            "info": file.info,
            "size": lambda: file.size,
            "handle": lambda: file.handle,
            "Batch.read": lambda: batch.read(file, memory),
            "Batch.wait": batch.wait,
            "Batch.cancel": batch.cancel,
            "AsyncIOHandle.wait": lambda: queued.wait(60),
            "AsyncIOHandle.done": queued.done,
            "FileHandle.read": lambda: old.read(buffer, 10, 0, 0),
            "FileHandle.read_async": lambda: old.read_async(buffer, 10, 0, 0, 0),
            "tobytes": array.tobytes,
            "set": lambda: array.set(bytes(4096)),
            "empty": lambda: DeviceArray.empty(10),
        }.items():
            tell(name, call)
        assert future.done()
        batch.close()
        file.close()
        old.close()
        assert file.closed
        print(hipfile.Driver.use_count())

    in_child(lambda: work(False))
    in_child(lambda: work(True))
    assert future.result(60) == queued.wait(60) == 4096 and len(batch.wait()) == 1
    assert file.read_into(memory) == file.read_into(array) == 4096
    """
    status, out, err = python(program, **EMULATED)
    assert (status, without_notice(err)) == (0, []), err
    lines = out.splitlines()
    assert lines.count("child 0") == 2, out
    told = [line for line in lines if line != "child 0" and not line.isdigit()]
    assert len(told) == 36
    # The driver of the child is closed, or its own.
    assert [line for line in lines if line.isdigit()] == ["0", "2"]
    for line in told:
        assert line.endswith(" fork"), line
        io = line.split()[0] in ("read_into", "write_from", "submit", "enqueue_read", "read", "size", "info", "FileHandle.read")
        assert ("22" if io or line.startswith("FileHandle") else "500") in line, line


def test_a_fork_amid_work(python, tmp_path):
    """Children of a process whose threads are in every call start afresh: none hangs on a lock that a thread held."""
    (tmp_path / "data").write_bytes(bytes(1 << 20))
    program = CHILD.format(path=str(tmp_path / "data")) + """
    file, array = hipfile.open(PATH, "r+"), DeviceArray.empty(1 << 16)
    over = threading.Event()

    def busy(call):
        while not over.is_set():
            call()

    def batches(batch=Batch()):
        batch.read(file, bytearray(100))
        batch.wait()

    calls = [lambda: file.submit("read", bytearray(100)).result(), lambda: file.read_into(array), array.tobytes, batches,
             lambda: file.enqueue_read(array).wait(), lambda: hipfile.open(PATH).close()]
    threads = [threading.Thread(target=busy, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()

    def work():
        memory = bytearray(100)
        file.close()
        with hipfile.open(PATH) as own, Batch() as batch:
            assert own.read_into(memory) == own.submit("read", memory).result(60) == 100
            batch.read(own, memory)
            assert len(batch.wait()) == 1

    for _ in range(20):
        in_child(work)
    over.set()
    for thread in threads:
        thread.join()
    assert file.read_into(array) == 1 << 16
    """
    status, out, err = python(program, **EMULATED)
    assert (status, out.splitlines(), without_notice(err)) == (0, ["child 0"] * 20, []), err


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_of_multiprocessing_finishes_what_it_submitted(tmp_path, method):
    program = tmp_path / "program.py"
    program.write_text(f"""
import multiprocessing, warnings
import hipfile
warnings.simplefilter("ignore", DeprecationWarning)
def child():
    file = hipfile.open({str(tmp_path / "out")!r}, "w")
    for i in range(64):
        file.submit("write", bytes([i]) * 100000, i * 100000)
if __name__ == "__main__":
    process = multiprocessing.get_context({method!r}).Process(target=child)
    process.start()
    process.join(60)
    print(process.exitcode)
""")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, without_notice(done.stderr)) == (0, "0\n", [])
    assert (tmp_path / "out").read_bytes() == b"".join(bytes([i]) * 100000 for i in range(64))


class TestEnd:
    def test_what_was_submitted_is_done(self, python, tmp_path):
        status, out, err = python(
            f"""
            import hipfile
            file = hipfile.open({str(tmp_path / "out")!r}, "w")
            for i in range(64):
                file.submit("write", bytes([i]) * 100000, i * 100000)
            """
        )
        assert (status, out, without_notice(err)) == (0, "", [])
        assert (tmp_path / "out").read_bytes() == b"".join(bytes([i]) * 100000 for i in range(64))

    def test_functions_of_atexit_may_submit(self, python, tmp_path):
        """Those that were registered before the import, and so come last, too."""
        (tmp_path / "data").write_bytes(bytes(10000))
        status, out, err = python(
            f"""
            import atexit
            def late(word):
                memory = bytearray(10000)
                with hipfile.open({str(tmp_path / "data")!r}) as file:
                    print(word, file.submit("read", memory).result(10), file.read_into(memory))
            atexit.register(late, "last")
            import hipfile
            atexit.register(late, "first")
            """
        )
        assert (status, out.splitlines(), without_notice(err)) == (0, ["first 10000 10000", "last 10000 10000"], []), err

    def test_threads_that_nobody_waits_for_are_silent(self, python, tmp_path):
        (tmp_path / "data").write_bytes(bytes(1 << 20))
        for _ in range(5):
            status, out, err = python(
                f"""
                import threading, time
                import hipfile
                file, array = hipfile.open({str(tmp_path / "data")!r}, "r+"), hipfile.DeviceArray.empty(4096)

                def forever(use):
                    while True:
                        use()

                def batches(batch=hipfile.Batch()):
                    batch.read(file, bytearray(100))
                    batch.wait()

                for use in (lambda: file.submit("read", bytearray(4096)).result(), lambda: file.submit("write", array).result(),
                            lambda: file.read_into(array), lambda: file.enqueue_read(array).wait(), batches,
                            lambda: hipfile.open({str(tmp_path / "data")!r}).close(), lambda: hipfile.DeviceArray.empty(10)):
                    threading.Thread(target=forever, args=(use,), daemon=True).start()
                time.sleep(0.1)
                """,
                **EMULATED,
            )
            assert (status, out, without_notice(err)) == (0, "", []), err

    def test_a_long_wait_says_what_for(self, python, tmp_path):
        (tmp_path / "data").write_bytes(bytes(1 << 20))
        status, out, err = python(
            f"""
            import hipfile
            hipfile.open({str(tmp_path / "data")!r}).submit("read", hipfile.DeviceArray.empty(1 << 20))
            """,
            HIPFILE_WAIT_NOTICE="1",
            HIP_EMU_FAULT="hipMemcpyAsync:*:delay=1200000,hipMemcpy:*:delay=1200000,hipAmdFileRead:*:delay=1200000",
            **EMULATED,
        )
        assert (status, without_notice(err)) == (0, ["hipfile: the end waits for 1 transfers that were submitted"]), err


def test_other_interpreters_are_refused(python):
    """The driver is the process's, and objects of interpreters may not meet: the main one is served, whoever came first."""
    status, out, err = python(
        """
        import sys, textwrap
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        INSIDE = textwrap.dedent(f'''
            import sys
            sys.path[:] = {sys.path!r}
            try:
                import hipfile
            except ImportError as error:
                print("refused" if "subinterpreters" in str(error) else error, flush=True)
            else:
                print("served", flush=True)
        ''')
        kinds = [{"isolated": True}, {"isolated": False}] if sys.version_info < (3, 13) else ["isolated", "legacy"]

        def attempt():
            for kind in kinds:
                made = interpreters.create(**kind) if isinstance(kind, dict) else interpreters.create(kind)
                interpreters.run_string(made, INSIDE)
                interpreters.destroy(made)

        attempt()
        import hipfile
        attempt()
        # The main one is not affected by the end of others.
        print(hipfile.open("/etc/passwd").submit("read", bytearray(4)).result(10), hipfile.Driver.use_count())
        """
    )
    assert (status, out.splitlines(), without_notice(err)) == (0, ["refused"] * 4 + ["4 0"], []), (out, err)


def test_a_setting_that_is_ignored_is_told_once(python, tmp_path):
    (tmp_path / "data").write_bytes(bytes(100))
    status, out, err = python(
        f"""
        import hipfile
        for _ in range(3):
            with hipfile.open({str(tmp_path / "data")!r}) as file:
                file.read(10)
            hipfile.available(), hipfile.settings(), hipfile.driver_get_properties(), hipfile.check()
        """,
        HIPFILE_DEVICE="",
        HIPFILE_FALLBACK="perhaps",
    )
    lines = without_notice(err)
    assert status == 0 and len(lines) == 2, err
    assert "HIPFILE_DEVICE" in err and "HIPFILE_FALLBACK" in err and "perhaps" in err


def test_killed_amid_writes_leaves_whole_files(tmp_path):
    """A file that is saved is the one of before or the new one, also after kill -9."""
    program = f"""
import numpy, hipfile, sys
path = {str(tmp_path / "a.npy")!r}
for i in range(100000):
    hipfile.save_npy(path, numpy.full(200000, i))
    if i == 0:
        print("go", flush=True)
"""
    numpy = pytest.importorskip("numpy")
    for wait in (0.0, 0.01, 0.05):
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"go\n"
        try:
            child.wait(wait)
        except subprocess.TimeoutExpired:
            pass
        child.kill()
        child.wait()
        child.stdout.close()
        array = hipfile.load_npy(tmp_path / "a.npy")
        assert array.shape == (200000,) and len(numpy.unique(array)) == 1
    assert {name for name in os.listdir(tmp_path) if not name.endswith(".part")} == {"a.npy"}
