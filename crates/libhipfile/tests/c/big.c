/*
 * big: sizes above the kernel's limit for one call (behaviour 10), and offsets that need more than 32 bits. Needs
 * more than 2 GiB of device memory; the files are sparse.
 */
#include <sys/mman.h>

#include "device.h"

#define GIB ((size_t)1 << 30)
#define LIMIT ((size_t)0x7ffff000)

/* Eight bytes that tell their place, at places around every border. */
static void mark(int fd, hoff_t at)
{
    const uint64_t value = (uint64_t)at * UINT64_C(0x9e3779b97f4a7c15) + 1;
    CHECK_EQ(pwrite(fd, &value, sizeof value, at), sizeof value);
}

static void check_mark(const char *device, hoff_t at)
{
    const uint64_t value = (uint64_t)at * UINT64_C(0x9e3779b97f4a7c15) + 1;
    CHECK_DEVICE(device, &value, sizeof value);
}

int main(void)
{
    const hoff_t file_size = 3 * (hoff_t)GIB;
    const hoff_t marks[] = { 0, 4091, (hoff_t)GIB - 4, (hoff_t)LIMIT - 8, (hoff_t)LIMIT, 2 * (hoff_t)GIB, file_size - 8 };
    enum { MARKS = sizeof marks / sizeof marks[0] };
    const int fd = open_file("sparse", O_RDWR | O_CREAT | O_TRUNC);
    CHECK_EQ(ftruncate(fd, file_size), 0);
    for (int i = 0; i < MARKS; i++)
        mark(fd, marks[i]);

    const size_t room = 2 * GIB + 8192;
    void *memory = NULL;
    CHECK_HIP(hipMalloc(&memory, room));
    char *device = (char *)memory;
    dev_poison(device + LIMIT, room - LIMIT);
    CHECK_OK(hipFileDriverOpen());
    hipFileHandle_t file = register_fd(fd);

    /* One call stops at the limit and leaves alone what lies behind. */
    CHECK_IO(hipFileRead(file, device, 0x80000000, 0, 0), LIMIT);
    for (int i = 0; i < MARKS && marks[i] < (hoff_t)LIMIT; i++)
        check_mark(device + marks[i], marks[i]);
    CHECK_POISON(device + LIMIT, room - LIMIT);

    /* The rest in a second call, at a place beyond 2^31 in file and buffer. */
    CHECK_IO(hipFileRead(file, device, room - LIMIT, (hoff_t)LIMIT, (hoff_t)LIMIT), room - LIMIT);
    check_mark(device + LIMIT, (hoff_t)LIMIT);
    check_mark(device + 2 * GIB, 2 * (hoff_t)GIB);
    CHECK_IO(hipFileRead(file, device, 4096, file_size - 8, 0), 8);
    check_mark(device, file_size - 8);

    /* Offsets beyond 2^32. */
    const hoff_t far = ((hoff_t)5 << 30) + 3;
    dev_put(device, "far away", 8);
    CHECK_IO(hipFileWrite(file, device, 8, far, 0), 8);
    CHECK_EQ(size_of(fd), far + 8);
    dev_poison(device, 16);
    CHECK_IO(hipFileRead(file, device, 16, far, 0), 8);
    CHECK_DEVICE(device, "far away", 8);
    CHECK_POISON(device + 8, 8);
    hipFileHandleDeregister(file);
    CHECK_EQ(close(fd), 0);
    CHECK_EQ(unlink("sparse"), 0);

    /* Writing is cut at the same place. A memory file: two GiB are not written to a disk for this. */
    const int memfd = memfd_create("big", MFD_CLOEXEC);
    CHECK(memfd != -1);
    file = register_fd(memfd);
    const char end[8] = "the end";
    dev_put(device + LIMIT - 8, end, 8);
    CHECK_IO(hipFileWrite(file, device, 0x80000000, 0, 0), LIMIT);
    CHECK_EQ(size_of(memfd), LIMIT);
    char now[8];
    CHECK_EQ(pread(memfd, now, 8, (hoff_t)LIMIT - 8), 8);
    CHECK_BYTES(now, end, 8);
    hipFileHandleDeregister(file);
    CHECK_EQ(close(memfd), 0);
    close_driver_fully();
    CHECK_HIP(hipFree(device));
    puts("OK big");
    return 0;
}
