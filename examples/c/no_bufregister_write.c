/*
 * no_bufregister_write FILE: writes device memory that was never registered.
 *
 * Any pointer into a device allocation will do, here one into its middle. The library looks it up and takes
 * the rest of the allocation as the bound: asking for more is refused, nothing is written.
 */
#include "common.h"

enum { SIZE = 256 * 1024, START = 64 * 1024 };

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE\nWrites 192 KiB from an unregistered device pointer to FILE (replaced).\n",
                argv[0]);
        return 2;
    }
    const char *path = argv[1];
    const size_t rest = SIZE - START;

    unsigned char *pattern = alloc_host(SIZE);
    fill_pattern(pattern, SIZE, 2);
    void *device = NULL;
    CHECK_HIP(hipMalloc(&device, SIZE));
    CHECK_HIP(hipMemcpy(device, pattern, SIZE, hipMemcpyHostToDevice));
    char *middle = (char *)device + START;

    /* Registering the file opens the driver too; a program need not call hipFileDriverOpen. */
    int fd = open_direct(path, O_WRONLY | O_CREAT | O_TRUNC);
    hipFileHandle_t file = register_fd(fd);

    ssize_t written = hipFileWrite(file, middle, rest, 0, 0);
    if (written < 0)
        DIE("hipFileWrite to %s: %s", path, io_error(written));
    if ((size_t)written != rest)
        DIE("hipFileWrite moved %zd bytes of %zu", written, rest);

    /* One byte too many. */
    written = hipFileWrite(file, middle, rest + 1, 0, 0);
    if (written != -hipFileInvalidValue)
        DIE("a write beyond the allocation returned %zd", written);

    hipFileHandleDeregister(file);
    CHECK_OS(close(fd));
    CHECK_HIPFILE(hipFileDriverClose()); /* for the open that the registration did */

    report(path, "device memory", rest, hash_file(path, 0, rest), fnv1a(FNV1A_START, pattern + START, rest));
    CHECK_HIP(hipFree(device));
    free(pattern);
    return 0;
}
