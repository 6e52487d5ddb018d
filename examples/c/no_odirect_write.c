/*
 * no_odirect_write FILE: an ordinary descriptor and sizes of no particular alignment.
 *
 * O_DIRECT on the caller's descriptor is neither needed nor harmful: the library keeps descriptors of its own
 * for both ways of access, and never changes the caller's. Odd sizes and offsets work; where they meet block
 * boundaries badly, the ragged ends take a slower path and the aligned middle does not.
 */
#include "common.h"

enum { SIZE = 100003, OFFSET = 777 };

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE\nWrites 100003 bytes at offset 777 of FILE (replaced).\n", argv[0]);
        return 2;
    }
    const char *path = argv[1];

    unsigned char *pattern = alloc_host(SIZE);
    fill_pattern(pattern, SIZE, 3);
    void *device = NULL;
    CHECK_HIP(hipMalloc(&device, SIZE));
    CHECK_HIP(hipMemcpy(device, pattern, SIZE, hipMemcpyHostToDevice));

    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd == -1)
        DIE("cannot open %s: %s", path, strerror(errno));
    int flags_before = fcntl(fd, F_GETFL);
    hipFileHandle_t file = register_fd(fd);

    ssize_t written = hipFileWrite(file, device, SIZE, OFFSET, 0);
    if (written < 0)
        DIE("hipFileWrite to %s: %s", path, io_error(written));
    if (written != SIZE)
        DIE("hipFileWrite moved %zd bytes of %d", written, SIZE);

    /* The descriptor is as it was, and goes on working for ordinary calls beside the library. */
    if (fcntl(fd, F_GETFL) != flags_before)
        DIE("the descriptor's flags have changed");
    if (pwrite(fd, "abc", 3, 0) != 3)
        DIE("pwrite of three bytes to %s: %s", path, strerror(errno));

    hipFileHandleDeregister(file);
    CHECK_OS(close(fd));
    CHECK_HIPFILE(hipFileDriverClose());

    report(path, "device buffer", SIZE, hash_file(path, OFFSET, SIZE), fnv1a(FNV1A_START, pattern, SIZE));
    CHECK_HIP(hipFree(device));
    free(pattern);
    return 0;
}
