/*
 * reopen_refused: the process may use its descriptors but not open the file a second time. Registration and I/O
 * still work through the caller's descriptor. Only where that one insists on aligned access and a ragged write
 * cannot be done without breaking its neighbours is the write refused.
 */
#include <sys/prctl.h>

#include "device.h"

enum { LEN = 16384 };

/* Opens the file, then takes away the right to open it again. */
static int open_and_lock(const char *name, int flags)
{
    const int fd = open(name, flags | O_CLOEXEC);
    if (fd != -1)
        CHECK_EQ(fchmod(fd, 0), 0);
    return fd;
}

static void check_reads(hipFileHandle_t handle, char *device, const unsigned char *expected)
{
    const struct {
        hoff_t at;
        size_t len;
    } ranges[] = { { 0, LEN }, { 0, 1 }, { 1, 1 }, { 511, 2 }, { 4096, 4096 }, { 4095, 4098 }, { LEN - 3, 3 } };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        dev_poison(device, LEN);
        CHECK_IO(hipFileRead(handle, device, ranges[i].len, ranges[i].at, 0), ranges[i].len);
        CHECK_DEVICE(device, expected + ranges[i].at, ranges[i].len);
        CHECK_POISON(device + ranges[i].len, LEN - ranges[i].len);
    }
    CHECK_IO(hipFileRead(handle, device, 100, LEN - 3, 0), 3);
    CHECK_IO(hipFileRead(handle, device, 100, LEN, 0), 0);
}

int main(void)
{
    unsigned char expected[LEN], now[LEN];
    pattern(expected, LEN, 1);
    char *device = dev_alloc(LEN);
    make_file("buffered", LEN, 1);
    make_file("direct", LEN, 1);
    const int buffered = open_and_lock("buffered", O_RDWR);
    CHECK(buffered != -1);
    const int direct = open_and_lock("direct", O_RDWR | O_DIRECT);

    /* Root passes every permission check; become somebody else for the rest. */
    if (geteuid() == 0) {
        CHECK_EQ(setegid(65534), 0);
        CHECK_EQ(seteuid(65534), 0);
    }
    CHECK(open("buffered", O_RDWR) == -1 && errno == EACCES);

    hipFileHandle_t handle = register_fd(buffered);
    check_reads(handle, device, expected);
    dev_put(device, "0123456789", 10);
    CHECK_IO(hipFileWrite(handle, device, 10, 4091, 0), 10);
    memcpy(expected + 4091, "0123456789", 10);
    CHECK_EQ(pread(buffered, now, LEN, 0), LEN);
    CHECK_BYTES(now, expected, LEN);
    hipFileHandleDeregister(handle);

    if (direct == -1) {
        SKIP("only an O_DIRECT descriptor", "this file system has no O_DIRECT");
    } else {
        pattern(expected, LEN, 1);
        handle = register_fd(direct);
        check_reads(handle, device, expected);
        dev_put(device, expected + 8192, 4096);
        CHECK_IO(hipFileWrite(handle, device, 4096, 0, 0), 4096);
        memcpy(expected, expected + 8192, 4096);
        check_reads(handle, device, expected);
        /* A device whose blocks are of one byte (tmpfs) takes what ext4 and xfs must refuse. */
        unsigned char *aligned = NULL;
        CHECK_EQ(posix_memalign((void **)&aligned, 4096, 4096), 0);
        const bool any_size = pread(direct, aligned, 100, 4091) == 100;
        free(aligned);
        if (any_size)
            SKIP("ragged write through an O_DIRECT descriptor", "this file system takes any alignment");
        else
            CHECK_ERRNO(hipFileWrite(handle, device, 10, 4091, 0), EINVAL);
        check_reads(handle, device, expected);
    }
    /* The sanitizer looks at the process when it ends, and may not after a change of user. */
    CHECK_EQ(seteuid(getuid()), 0);
    CHECK_EQ(prctl(PR_SET_DUMPABLE, 1), 0);
    puts("OK reopen_refused");
    return 0;
}
