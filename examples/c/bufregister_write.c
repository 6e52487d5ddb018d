/*
 * bufregister_write FILE: writes a registered device buffer to a file.
 *
 * Registering a buffer tells the library once what it would otherwise ask on every call: which GPU the memory
 * is on, and how far it reaches. Worth it for buffers that are used again and again.
 */
#include "common.h"

enum { SIZE = 1024 * 1024 };

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE\nWrites 1 MiB from a registered device buffer to FILE (replaced).\n", argv[0]);
        return 2;
    }
    const char *path = argv[1];

    /* Device memory with something to recognise in it. */
    unsigned char *pattern = alloc_host(SIZE);
    fill_pattern(pattern, SIZE, 1);
    void *device = NULL;
    CHECK_HIP(hipMalloc(&device, SIZE));
    CHECK_HIP(hipMemcpy(device, pattern, SIZE, hipMemcpyHostToDevice));

    CHECK_HIPFILE(hipFileDriverOpen());
    int fd = open_direct(path, O_WRONLY | O_CREAT | O_TRUNC);
    hipFileHandle_t file = register_fd(fd);
    CHECK_HIPFILE(hipFileBufRegister(device, SIZE, 0));

    ssize_t written = hipFileWrite(file, device, SIZE, 0, 0);
    if (written < 0)
        DIE("hipFileWrite to %s: %s", path, io_error(written));
    if (written != SIZE)
        DIE("hipFileWrite moved %zd bytes of %d", written, SIZE);

    /* In the reverse order; the handle goes before its descriptor. */
    CHECK_HIPFILE(hipFileBufDeregister(device));
    hipFileHandleDeregister(file);
    CHECK_OS(close(fd));
    CHECK_HIPFILE(hipFileDriverClose());

    report(path, "device buffer", SIZE, hash_file(path, 0, SIZE), fnv1a(FNV1A_START, pattern, SIZE));
    CHECK_HIP(hipFree(device));
    free(pattern);
    return 0;
}
