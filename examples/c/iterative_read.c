/*
 * iterative_read FILE: reads a file of any size through a small device buffer, piece by piece.
 *
 * The file offset grows, the buffer is used from its start each time. A count below the size asked for means
 * the end of the file is reached; 0 that there was nothing left at all.
 */
#include "common.h"

enum { CHUNK = 256 * 1024 };

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE\nReads FILE into device memory in pieces of 256 KiB.\n", argv[0]);
        return 2;
    }
    const char *path = argv[1];

    void *device = NULL;
    CHECK_HIP(hipMalloc(&device, CHUNK));
    unsigned char *host = alloc_host(CHUNK);

    CHECK_HIPFILE(hipFileDriverOpen());
    int fd = open_direct(path, O_RDONLY);
    hipFileHandle_t file = register_fd(fd);
    CHECK_HIPFILE(hipFileBufRegister(device, CHUNK, 0));

    uint64_t hash = FNV1A_START;
    hoff_t offset = 0;
    for (;;) {
        ssize_t got = hipFileRead(file, device, CHUNK, offset, 0);
        if (got < 0)
            DIE("hipFileRead of %s at %lld: %s", path, (long long)offset, io_error(got));
        if (got == 0)
            break;

        /* A kernel would use the bytes where they are; this program takes them to the host to hash them. */
        CHECK_HIP(hipMemcpy(host, device, (size_t)got, hipMemcpyDeviceToHost));
        hash = fnv1a(hash, host, (size_t)got);
        offset += got;
    }

    size_t size = file_size(fd);
    if ((size_t)offset != size)
        DIE("read %lld bytes of a file of %zu", (long long)offset, size);

    CHECK_HIPFILE(hipFileBufDeregister(device));
    hipFileHandleDeregister(file);
    CHECK_OS(close(fd));
    CHECK_HIPFILE(hipFileDriverClose());

    report("pieces in device memory", path, size, hash, hash_file(path, 0, size));
    CHECK_HIP(hipFree(device));
    free(host);
    return 0;
}
