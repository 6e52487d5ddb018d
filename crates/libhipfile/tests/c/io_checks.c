/* io_checks: what hipFileRead and hipFileWrite refuse, and in which order they look at their arguments. */
#include <signal.h>
#include <sys/resource.h>

#include "device.h"

#define SIZE ((size_t)65536)

typedef enum { READ, WRITE } Direction;

static ssize_t io(Direction direction, hipFileHandle_t file, void *buffer, size_t size, hoff_t file_offset,
                  hoff_t buffer_offset)
{
    return direction == READ ? hipFileRead(file, buffer, size, file_offset, buffer_offset)
                             : hipFileWrite(file, buffer, size, file_offset, buffer_offset);
}

static void behaviour_12_negative_offsets(Direction direction, hipFileHandle_t file, char *device)
{
    CHECK_ERRNO(io(direction, file, device, 1, -1, 0), EINVAL);
    CHECK_ERRNO(io(direction, file, device, 1, 0, -1), EINVAL);
    CHECK_ERRNO(io(direction, file, device, 1, -4096, -4096), EINVAL);
    CHECK_ERRNO(io(direction, file, device, SIZE_MAX, -1, 0), EINVAL);
    CHECK_ERRNO(io(direction, file, device, 1, INT64_MIN, 0), EINVAL);
    CHECK_ERRNO(io(direction, file, device, 1, 0, INT64_MIN), EINVAL);
}

/* Size 0 moves nothing and still validates. */
static void behaviour_11_size_zero(Direction direction, hipFileHandle_t file, char *device)
{
    unsigned char host[64];
    CHECK_IO(io(direction, file, device, 0, 0, 0), 0);
    CHECK_IO(io(direction, file, device, 0, 12345, 77), 0);
    CHECK_IO(io(direction, file, device, 0, (hoff_t)1 << 40, 0), 0);
    CHECK_IO(io(direction, file, device, 0, 0, (hoff_t)SIZE), -hipFileInvalidValue);
    CHECK_IO(io(direction, file, NULL, 0, 0, 0), -hipFileInvalidValue);
    CHECK_IO(io(direction, file, host, 0, 0, 0), -hipFileHipMemoryTypeInvalid);
    CHECK_ERRNO(io(direction, file, device, 0, -1, 0), EINVAL);
    CHECK_ERRNO(io(direction, file, device, 0, 0, -1), EINVAL);
    hipFileHandle_t garbage = (hipFileHandle_t)(uintptr_t)0x7777;
    CHECK_IO(io(direction, garbage, device, 0, 0, 0), -hipFileHandleNotRegistered);
}

/* Each call breaks several rules; the answer names the first one. */
static void order_of_checks(Direction direction, hipFileHandle_t file, char *device)
{
    unsigned char host[64];
    hipFileHandle_t garbage = (hipFileHandle_t)(uintptr_t)0x7777;

    /* 1. the handle, before the buffer, the offsets and the range */
    CHECK_IO(io(direction, garbage, NULL, SIZE_MAX, -1, -1), -hipFileHandleNotRegistered);
    CHECK_IO(io(direction, NULL, host, 1, -1, -1), -hipFileHandleNotRegistered);

    /* 2. the buffer, before the offsets and the range */
    CHECK_IO(io(direction, file, NULL, 1, 0, 0), -hipFileInvalidValue);
    CHECK_IO(io(direction, file, NULL, SIZE_MAX, -1, -1), -hipFileInvalidValue);
    CHECK_IO(io(direction, file, host, sizeof host, 0, 0), -hipFileHipMemoryTypeInvalid);
    CHECK_IO(io(direction, file, host, SIZE_MAX, -1, -1), -hipFileHipMemoryTypeInvalid);
    void *memory = NULL;
    CHECK_HIP(hipHostMalloc(&memory, 4096, hipHostMallocDefault));
    CHECK_IO(io(direction, file, memory, 4096, 0, 0), -hipFileHipMemoryTypeInvalid);
    CHECK_HIP(hipHostFree(memory));
    CHECK_HIP(hipMallocManaged(&memory, 4096, hipMemAttachGlobal));
    CHECK_IO(io(direction, file, memory, 4096, 0, 0), -hipFileHipMemoryTypeInvalid);
    CHECK_HIP(hipFree(memory));

    /* 3. the offsets' signs, before the range */
    behaviour_12_negative_offsets(direction, file, device);

    /* 4. the range in the buffer */
    CHECK_IO(io(direction, file, device, SIZE + 1, 0, 0), -hipFileInvalidValue);
    CHECK_IO(io(direction, file, device, SIZE, 0, 1), -hipFileInvalidValue);
    CHECK_IO(io(direction, file, device, 1, 0, (hoff_t)SIZE), -hipFileInvalidValue);
    CHECK_IO(io(direction, file, device, 1, 0, INT64_MAX), -hipFileInvalidValue);
    CHECK_IO(io(direction, file, device, SIZE_MAX, 0, 1), -hipFileInvalidValue);
    CHECK_IO(io(direction, file, device, SIZE_MAX, 0, 0), -hipFileInvalidValue);
}

static void refusals(char *device)
{
    unsigned char expected[4096], now[4096];
    pattern(expected, sizeof expected, 1);
    make_file("refused", sizeof expected, 1);
    const int fd = open_file("refused", O_RDWR);
    hipFileHandle_t file = register_fd(fd);
    for (int registered = 0; registered < 2; registered++) {
        if (registered)
            CHECK_OK(hipFileBufRegister(device, SIZE, 0));
        dev_poison(device, SIZE);
        order_of_checks(READ, file, device);
        behaviour_11_size_zero(READ, file, device);
        CHECK_POISON(device, SIZE);
        order_of_checks(WRITE, file, device);
        behaviour_11_size_zero(WRITE, file, device);
        /* Nothing that was refused, and nothing of size 0, has reached the file. */
        CHECK_EQ(size_of(fd), sizeof expected);
        CHECK_EQ(pread(fd, now, sizeof now, 0), sizeof now);
        CHECK_BYTES(now, expected, sizeof now);
    }
    CHECK_OK(hipFileBufDeregister(device));
    hipFileHandleDeregister(file);
    CHECK_EQ(close(fd), 0);
}

/* The descriptor's own limits come back as the kernel states them. */
static void access_mode(char *device)
{
    make_file("mode", 8192, 2);
    for (int direct = 0; direct < 2; direct++) {
        const int flag = direct ? O_DIRECT : 0;
        const int reader = open("mode", O_RDONLY | O_CLOEXEC | flag);
        const int writer = open("mode", O_WRONLY | O_CLOEXEC | flag);
        if (reader == -1) {
            SKIP("access modes with O_DIRECT", "this file system has no O_DIRECT");
            return;
        }
        hipFileHandle_t read_only = register_fd(reader);
        hipFileHandle_t write_only = register_fd(writer);
        const hoff_t offsets[] = { 0, 4096, 5, 100000 };
        for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
            CHECK_ERRNO(hipFileWrite(read_only, device, 4096, offsets[i], 0), EBADF);
            CHECK_ERRNO(hipFileWrite(read_only, device, 11, offsets[i], 3), EBADF);
            CHECK_ERRNO(hipFileRead(write_only, device, 4096, offsets[i], 0), EBADF);
            CHECK_ERRNO(hipFileRead(write_only, device, 11, offsets[i], 3), EBADF);
        }
        CHECK_EQ(size_of(reader), 8192);
        CHECK_IO(hipFileRead(read_only, device, 8192, 0, 0), 8192);
        CHECK_IO(hipFileWrite(write_only, device, 8192, 0, 0), 8192);
        CHECK_IO(hipFileWrite(write_only, device, 11, 5, 5), 11);
        hipFileHandleDeregister(read_only);
        hipFileHandleDeregister(write_only);
        CHECK_EQ(close(reader), 0);
        CHECK_EQ(close(writer), 0);
    }
}

/* A write that meets a limit: what fits is written and counted, the next call shows the error. */
static void file_size_limit(char *device)
{
    struct rlimit old, limit;
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    limit.rlim_cur = 20000;
    const int fd = open_file("limited", O_RDWR | O_CREAT | O_TRUNC);
    hipFileHandle_t file = register_fd(fd);
    unsigned char bytes[32768], now[32768];
    pattern(bytes, sizeof bytes, 3);
    dev_put(device, bytes, sizeof bytes);

    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK_IO(hipFileWrite(file, device, 32768, 0, 0), 20000);
    CHECK_ERRNO(hipFileWrite(file, device, 12768, 20000, 20000), EFBIG);
    CHECK_ERRNO(hipFileWrite(file, device, 4096, 1 << 20, 0), EFBIG);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);

    CHECK_EQ(pread(fd, now, sizeof now, 0), 20000);
    CHECK_BYTES(now, bytes, 20000);
    CHECK_IO(hipFileWrite(file, device, 12768, 20000, 20000), 12768);
    CHECK_EQ(pread(fd, now, sizeof now, 0), sizeof now);
    CHECK_BYTES(now, bytes, sizeof now);

    /* Offsets that no file can have: whatever the kernel says of them. */
    const hoff_t far[] = { INT64_MAX, INT64_MAX - 1, INT64_MAX - 4096, (hoff_t)1 << 62 };
    for (size_t i = 0; i < sizeof far / sizeof far[0]; i++) {
        CHECK_EQ(pwrite(fd, now, 1, far[i]), -1);
        CHECK_ERRNO(hipFileWrite(file, device, 1, far[i], 0), errno);
        errno = 0;
        const ssize_t expected = pread(fd, now, 1, far[i]);
        if (expected == -1)
            CHECK_ERRNO(hipFileRead(file, device, 1, far[i], 0), errno);
        else
            CHECK_IO(hipFileRead(file, device, 1, far[i], 0), expected);
    }
    CHECK_EQ(size_of(fd), 32768);
    hipFileHandleDeregister(file);
    CHECK_EQ(close(fd), 0);
}

int main(void)
{
    char *device = dev_alloc(SIZE);
    CHECK_OK(hipFileDriverOpen());
    refusals(device);
    access_mode(device);
    file_size_limit(device);
    close_driver_fully();

    /* 0. a closed driver, before everything else */
    hipFileHandle_t garbage = (hipFileHandle_t)(uintptr_t)0x7777;
    CHECK_ERRNO(hipFileRead(garbage, NULL, 1, 0, 0), EINVAL);
    CHECK_ERRNO(hipFileWrite(garbage, NULL, 1, 0, 0), EINVAL);
    CHECK_EQ(hipFileUseCount(), 0);
    CHECK_HIP(hipFree(device));
    puts("OK io_checks");
    return 0;
}
