/* handles: what hipFileHandleRegister takes and refuses, and what happens when descriptors come and go. */
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "device.h"

enum { LEN = 8192 };

/* The handle reads `pattern(seed)`, whole and in part. */
static void check_reads(hipFileHandle_t handle, char *device, uint64_t seed)
{
    unsigned char expected[LEN];
    pattern(expected, LEN, seed);
    dev_poison(device, LEN);
    CHECK_IO(hipFileRead(handle, device, LEN, 0, 0), LEN);
    CHECK_DEVICE(device, expected, LEN);
    dev_poison(device, LEN);
    CHECK_IO(hipFileRead(handle, device, 100, 4001, 7), 100);
    CHECK_POISON(device, 7);
    CHECK_DEVICE(device + 7, expected + 4001, 100);
    CHECK_POISON(device + 107, LEN - 107);
}

/* The type decides first, and `handle.fd` is not looked at: neither a good nor a bad one. */
static void behaviour_24_other_types(void)
{
    const int fd = open_file("a", O_RDONLY);
    const int types[] = { hipFileHandleTypeOpaqueWin32, 0, 4, 77, -1 };
    const int fds[] = { fd, -1, 9999 };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        for (size_t j = 0; j < sizeof fds / sizeof fds[0]; j++) {
            hipFileHandle_t handle = NULL;
            hipFileDescr_t descr = descr_of(fds[j]);
            descr.type = (hipFileFileHandleType_t)types[i];
            CHECK_CODE(hipFileHandleRegister(&handle, &descr), hipFileIONotSupported);
        }
    CHECK_EQ(hipFileUseCount(), 0);
    CHECK_EQ(close(fd), 0);
}

/* `fs_ops` means nothing for descriptors, so it is never followed. */
static void behaviour_25_garbage_fs_ops(char *device)
{
    const int fd = open_file("a", O_RDONLY);
    hipFileDescr_t descr = descr_of(fd);
    hipFileHandle_t handle = NULL;
    descr.fs_ops = (const hipFileFSOps_t *)(uintptr_t)0xdeadbeef;
    CHECK_OK(hipFileHandleRegister(&handle, &descr));
    check_reads(handle, device, 1);
    hipFileHandleDeregister(handle);
    CHECK_EQ(close(fd), 0);
    close_driver_fully();
}

static void refused_arguments(void)
{
    const int fd = open_file("a", O_RDONLY);
    hipFileHandle_t handle = NULL;
    hipFileDescr_t descr = descr_of(fd);
    CHECK_CODE(hipFileHandleRegister(NULL, &descr), hipFileInvalidValue);
    CHECK_CODE(hipFileHandleRegister(&handle, NULL), hipFileInvalidValue);
    CHECK(handle == NULL);

    /* Bad descriptors: never open, closed just now, and beyond any table. */
    const int closed = dup(fd);
    CHECK_EQ(close(closed), 0);
    const int bad[] = { -1, -2, -100 /* AT_FDCWD */, closed, 9999, 0x7fffffff };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_CODE(try_register_fd(bad[i]), hipFileInternalError);
        CHECK_EQ(hipFileUseCount(), 0);
    }

    /* Open, but nothing with bytes at offsets. */
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    CHECK_CODE(try_register_fd(ends[0]), hipFileInvalidFileType);
    CHECK_CODE(try_register_fd(ends[1]), hipFileInvalidFileType);
    CHECK_EQ(close(ends[0]), 0);
    CHECK_EQ(close(ends[1]), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    CHECK_CODE(try_register_fd(ends[0]), hipFileInvalidFileType);
    CHECK_EQ(close(ends[0]), 0);
    CHECK_EQ(close(ends[1]), 0);
    const int folder = open_file(".", O_RDONLY | O_DIRECTORY);
    CHECK_CODE(try_register_fd(folder), hipFileInvalidFileType);
    CHECK_EQ(close(folder), 0);

    CHECK_EQ(close(fd), 0);
    CHECK_EQ(hipFileUseCount(), 0);
}

static void stale_and_garbage_handles(char *device)
{
    const int fd = open_file("a", O_RDWR);
    hipFileHandle_t handle = register_fd(fd);
    int local = 0;
    const hipFileHandle_t garbage[] = {
        NULL, (hipFileHandle_t)(uintptr_t)1, (hipFileHandle_t)(uintptr_t)0xdeadbeef, (hipFileHandle_t)UINTPTR_MAX,
        (hipFileHandle_t)&local, (hipFileHandle_t)((uintptr_t)handle + 1), (hipFileHandle_t)((uintptr_t)handle ^ 0x100000000),
    };
    for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++) {
        CHECK(garbage[i] != handle);
        hipFileHandleDeregister(garbage[i]);
        CHECK_IO(hipFileRead(garbage[i], device, 1, 0, 0), -hipFileHandleNotRegistered);
        CHECK_IO(hipFileWrite(garbage[i], device, 1, 0, 0), -hipFileHandleNotRegistered);
    }
    check_reads(handle, device, 1);

    hipFileHandleDeregister(handle);
    hipFileHandleDeregister(handle);
    CHECK_IO(hipFileRead(handle, device, 1, 0, 0), -hipFileHandleNotRegistered);

    /* The next registration gets another handle: the stale one must not reach it. */
    for (int i = 0; i < 1000; i++) {
        hipFileHandle_t next = register_fd(fd);
        CHECK(next != handle);
        CHECK_IO(hipFileRead(handle, device, 1, 0, 0), -hipFileHandleNotRegistered);
        hipFileHandleDeregister(handle);
        CHECK_IO(hipFileRead(next, device, 1, 0, 0), 1);
        hipFileHandleDeregister(next);
    }
    CHECK_EQ(close(fd), 0);
    close_driver_fully();
}

/* The same number twice, and another number for the same open file. */
static void behaviour_30_registered_twice(char *device)
{
    const int fd = open_file("a", O_RDONLY);
    hipFileHandle_t first = register_fd(fd);
    for (int i = 0; i < 3; i++)
        CHECK_CODE(try_register_fd(fd), hipFileHandleAlreadyRegistered);
    check_reads(first, device, 1);

    const int copy = dup(fd);
    CHECK(copy != -1);
    hipFileHandle_t second = register_fd(copy);
    CHECK(second != first);
    check_reads(second, device, 1);
    hipFileHandleDeregister(second);
    CHECK_IO(hipFileRead(second, device, 1, 0, 0), -hipFileHandleNotRegistered);
    check_reads(first, device, 1);

    /* The copy's number is free again; the first one's is after deregistering. */
    second = register_fd(copy);
    hipFileHandleDeregister(first);
    first = register_fd(fd);
    check_reads(first, device, 1);
    check_reads(second, device, 1);
    CHECK_EQ(close(copy), 0);
    CHECK_EQ(close(fd), 0);
    close_driver_fully();
}

/* descriptor numbers are used again; a handle never is. */
static void behaviour_21_reused_number(char *device)
{
    unsigned char got[16], a[16], b[16];
    pattern(a, sizeof a, 1);
    pattern(b, sizeof b, 2);
    int fd = open_file("a", O_RDONLY);
    hipFileHandle_t old = register_fd(fd);
    check_reads(old, device, 1);
    CHECK_EQ(close(fd), 0);
    const int reused = open_file("b", O_RDONLY);
    CHECK_EQ(reused, fd);

    /* Before anyone registers the new file: the old file's bytes or an error, never the new file's. */
    dev_poison(device, sizeof got);
    const ssize_t result = hipFileRead(old, device, sizeof got, 0, 0);
    dev_get(got, device, sizeof got);
    if (result >= 0) {
        CHECK_EQ(result, sizeof got);
        CHECK_BYTES(got, a, sizeof got);
    } else {
        CHECK_POISON(device, sizeof got);
    }

    hipFileHandle_t fresh = register_fd(reused);
    check_reads(fresh, device, 2);
    CHECK_IO(hipFileRead(old, device, sizeof got, 0, 0), -hipFileHandleNotRegistered);
    hipFileHandleDeregister(old);
    check_reads(fresh, device, 2);
    CHECK_CODE(try_register_fd(reused), hipFileHandleAlreadyRegistered);

    /* A write through the old handle must not reach the new file either. */
    CHECK_EQ(close(reused), 0);
    fd = open_file("a", O_RDWR);
    CHECK_EQ(fd, reused);
    hipFileHandle_t writer = register_fd(fd);
    CHECK_EQ(close(fd), 0);
    const int other = open_file("b", O_RDWR);
    CHECK_EQ(other, fd);
    dev_poison(device, sizeof got);
    (void)!hipFileWrite(writer, device, sizeof got, 100, 0);
    unsigned char expected[LEN], now[LEN];
    pattern(expected, LEN, 2);
    CHECK_EQ(pread(other, now, LEN, 0), LEN);
    CHECK_BYTES(now, expected, LEN);
    CHECK_EQ(close(other), 0);
    make_file("a", LEN, 1);
    close_driver_fully();
}

/* flags, position and use of the caller's descriptor are the caller's. */
static void behaviour_19_descriptor_untouched(char *device)
{
    const int extra[] = { 0, O_DIRECT, O_APPEND, O_NONBLOCK, O_SYNC };
    for (size_t i = 0; i < sizeof extra / sizeof extra[0]; i++) {
        make_file("untouched", LEN, 4);
        const int fd = open("untouched", O_RDWR | O_CLOEXEC | extra[i]);
        if (fd == -1) {
            CHECK_EQ(errno, EINVAL);
            SKIP("flags of an O_DIRECT descriptor", "this file system has no O_DIRECT");
            continue;
        }
        CHECK_EQ(lseek(fd, 4096, SEEK_SET), 4096);
        const int flags = fcntl(fd, F_GETFL);
        const int descriptor_flags = fcntl(fd, F_GETFD);
        hipFileHandle_t handle = register_fd(fd);
        CHECK_EQ(fcntl(fd, F_GETFL), flags);
        check_reads(handle, device, 4);
        CHECK_IO(hipFileWrite(handle, device, 4096, 0, 0), 4096);
        CHECK_IO(hipFileWrite(handle, device, 11, 4097, 3), 11);
        CHECK_EQ(fcntl(fd, F_GETFL), flags);
        CHECK_EQ(fcntl(fd, F_GETFD), descriptor_flags);
        CHECK_EQ(lseek(fd, 0, SEEK_CUR), 4096);
        if (extra[i] == 0)
            CHECK_EQ(pwrite(fd, "abc", 3, 1), 3);
        hipFileHandleDeregister(handle);
        CHECK_EQ(fcntl(fd, F_GETFL), flags);
        CHECK_EQ(lseek(fd, 0, SEEK_CUR), 4096);
        CHECK_EQ(close(fd), 0);
    }
    close_driver_fully();
}

/* many handles under a small descriptor limit. All work, and nothing is left behind. */
static void behaviour_20_small_descriptor_limit(char *device)
{
    enum { HANDLES = 50 };
    FdTable before;
    fd_table(&before);
    struct rlimit old, small;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
    small = old;
    small.rlim_cur = 64;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &small), 0);

    int fds[HANDLES];
    hipFileHandle_t handles[HANDLES];
    for (int i = 0; i < HANDLES; i++) {
        fds[i] = open("a", O_RDWR | O_CLOEXEC);
        if (fds[i] == -1)
            FAIL("only %d descriptors fit into the limit: %s", i, strerror(errno));
        handles[i] = register_fd(fds[i]);
    }
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < HANDLES; i++)
            check_reads(handles[i], device, 1);
    unsigned char byte;
    dev_get(&byte, device, 1);
    for (int i = 0; i < HANDLES; i++)
        CHECK_IO(hipFileWrite(handles[i], device, 1, LEN + i, 0), 1);
    for (int i = 0; i < HANDLES; i++) {
        hipFileHandleDeregister(handles[i]);
        CHECK_EQ(close(fds[i]), 0);
    }
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
    check_fd_table(&before);
    make_file("a", LEN, 1);
    close_driver_fully();
}

static void check_round_trip(int fd, char *device)
{
    unsigned char bytes[LEN], now[LEN + 100];
    pattern(bytes, LEN, 5);
    dev_put(device, bytes, LEN);
    hipFileHandle_t handle = register_fd(fd);
    CHECK_IO(hipFileWrite(handle, device, LEN, 0, 0), LEN);
    CHECK_IO(hipFileWrite(handle, device, 100, LEN, 0), 100);
    CHECK_EQ(pread(fd, now, sizeof now, 0), sizeof now);
    CHECK_BYTES(now, bytes, LEN);
    CHECK_BYTES(now + LEN, bytes, 100);
    check_reads(handle, device, 5);
    hipFileHandleDeregister(handle);
    CHECK_EQ(close(fd), 0);
}

/* Files without a name, or that cannot be opened a second time: the caller's descriptor carries them. */
static void files_without_a_path(char *device)
{
    int fd = memfd_create("hipfile-test", MFD_CLOEXEC);
    CHECK(fd != -1);
    check_round_trip(fd, device);

    fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd == -1)
        SKIP("O_TMPFILE", "%s", strerror(errno));
    else
        check_round_trip(fd, device);

    fd = open_file("unlinked", O_RDWR | O_CREAT | O_TRUNC);
    CHECK_EQ(unlink("unlinked"), 0);
    check_round_trip(fd, device);

    /* Another file takes the name: the handle is for the old one. */
    make_file("replaced", LEN, 1);
    fd = open_file("replaced", O_RDWR);
    CHECK_EQ(unlink("replaced"), 0);
    make_file("replaced", LEN, 2);
    hipFileHandle_t handle = register_fd(fd);
    check_reads(handle, device, 1);
    CHECK_EQ(close(fd), 0);
    close_driver_fully();
}

/* A process that was started without standard streams: what the library opens must not become one of them, or the next
 * message of somebody's would be written into a data file. */
static void behaviour_22_closed_standard_descriptors(char *device)
{
    int saved[3], copies[3];
    const int fd = open_file("a", O_RDWR);
    for (int i = 0; i < 3; i++)
        saved[i] = fcntl(i, F_DUPFD_CLOEXEC, 10);
    for (int i = 0; i < 3; i++)
        close(i);
    hipFileHandle_t handle = register_fd(fd);
    const ssize_t got = hipFileRead(handle, device, LEN, 0, 0);
    const ssize_t put = hipFileWrite(handle, device, LEN, 0, 0);
    for (int i = 0; i < 3; i++)
        copies[i] = fcntl(i, F_GETFD);
    hipFileHandleDeregister(handle);
    for (int i = 0; i < 3; i++)
        if (saved[i] != -1) {
            CHECK_EQ(dup2(saved[i], i), i);
            CHECK_EQ(close(saved[i]), 0);
        }
    CHECK_EQ(got, LEN);
    CHECK_EQ(put, LEN);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(copies[i], -1);
    CHECK_EQ(close(fd), 0);
    close_driver_fully();
}

/* 0 is a descriptor like any other. */
static void behaviour_22_standard_descriptors(char *device)
{
    const int saved = dup(0);
    close(0);
    const int fd = open("a", O_RDONLY);
    CHECK_EQ(fd, 0);
    FdTable before;
    fd_table(&before);
    hipFileHandle_t handle = register_fd(0);
    check_reads(handle, device, 1);
    hipFileHandleDeregister(handle);
    handle = register_fd(0);
    close_driver_fully();
    check_fd_table(&before);
    if (saved != -1) {
        CHECK_EQ(dup2(saved, 0), 0);
        CHECK_EQ(close(saved), 0);
    }
}

int main(void)
{
    make_file("a", LEN, 1);
    make_file("b", LEN, 2);
    char *device = dev_alloc(LEN);
    refused_arguments();
    behaviour_24_other_types();
    behaviour_25_garbage_fs_ops(device);
    stale_and_garbage_handles(device);
    behaviour_30_registered_twice(device);
    behaviour_21_reused_number(device);
    behaviour_19_descriptor_untouched(device);
    behaviour_20_small_descriptor_limit(device);
    files_without_a_path(device);
    behaviour_22_closed_standard_descriptors(device);
    behaviour_22_standard_descriptors(device);
    CHECK_HIP(hipFree(device));
    puts("OK handles");
    return 0;
}
