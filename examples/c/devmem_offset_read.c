/*
 * devmem_offset_read FILE: fills one large device buffer from a file, piece by piece.
 *
 * File offset and buffer offset grow together. Every call names the registered base pointer and says by
 * `buffer_offset` where in it the bytes go; adding the offset to the pointer instead means the same.
 */
#include "common.h"

#define CHUNK (64 * KIB)

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE\nReads all of FILE into one device buffer.\n", argv[0]);
        return 2;
    }
    const char *path = argv[1];

    int fd = open_direct(path, O_RDONLY);
    size_t size = file_size(fd);
    if (size == 0)
        DIE("%s is empty", path);

    void *device = NULL;
    CHECK_HIP(hipMalloc(&device, size));
    CHECK_HIPFILE(hipFileDriverOpen());
    hipFileHandle_t file = register_fd(fd);
    CHECK_HIPFILE(hipFileBufRegister(device, size, 0));

    size_t done = 0;
    for (int piece = 0; done < size; piece++) {
        size_t len = size - done < CHUNK ? size - done : CHUNK;
        ssize_t got;
        if (piece % 2 == 0)
            got = hipFileRead(file, device, len, (hoff_t)done, (hoff_t)done);
        else
            got = hipFileRead(file, (char *)device + done, len, (hoff_t)done, 0);
        if (got < 0)
            DIE("hipFileRead of %s at %zu: %s", path, done, io_error(got));
        if (got == 0)
            DIE("%s has become shorter: %zu bytes of %zu", path, done, size);
        done += (size_t)got;
    }

    CHECK_HIPFILE(hipFileBufDeregister(device));
    hipFileHandleDeregister(file);
    CHECK_OS(close(fd));
    CHECK_HIPFILE(hipFileDriverClose());

    unsigned char *host = alloc_host(size);
    CHECK_HIP(hipMemcpy(host, device, size, hipMemcpyDeviceToHost));
    report("device buffer", path, size, fnv1a(FNV1A_START, host, size), hash_file(path, 0, size));
    CHECK_HIP(hipFree(device));
    free(host);
    return 0;
}
