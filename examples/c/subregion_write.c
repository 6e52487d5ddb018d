/*
 * subregion_write FILE: replaces the middle of a file with the middle of a device buffer.
 *
 * Nothing outside the named ranges is touched: neither the file before and after, nor its length. The range
 * here ends in the middle of a block on purpose.
 */
#include "common.h"

enum {
    FILE_SIZE = 512 * 1024,
    BUFFER_SIZE = 256 * 1024,
    FILE_OFFSET = 100 * 1024, /* where in the file the new bytes go */
    BUFFER_OFFSET = 16 * 1024, /* where in the buffer they come from */
    LEN = 123457,
};

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE\nCreates FILE (replaced) and overwrites a part of it from device memory.\n",
                argv[0]);
        return 2;
    }
    const char *path = argv[1];

    /* The old content, written without hipFile; `expected` follows what the file should hold. */
    unsigned char *expected = alloc_host(FILE_SIZE);
    fill_pattern(expected, FILE_SIZE, 4);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd == -1)
        DIE("cannot open %s: %s", path, strerror(errno));
    if (pwrite(fd, expected, FILE_SIZE, 0) != FILE_SIZE)
        DIE("cannot write %s: %s", path, strerror(errno));

    unsigned char *pattern = alloc_host(BUFFER_SIZE);
    fill_pattern(pattern, BUFFER_SIZE, 5);
    void *device = NULL;
    CHECK_HIP(hipMalloc(&device, BUFFER_SIZE));
    CHECK_HIP(hipMemcpy(device, pattern, BUFFER_SIZE, hipMemcpyHostToDevice));

    hipFileHandle_t file = register_fd(fd);
    CHECK_HIPFILE(hipFileBufRegister(device, BUFFER_SIZE, 0));
    ssize_t written = hipFileWrite(file, device, LEN, FILE_OFFSET, BUFFER_OFFSET);
    if (written < 0)
        DIE("hipFileWrite to %s: %s", path, io_error(written));
    if (written != LEN)
        DIE("hipFileWrite moved %zd bytes of %d", written, LEN);
    memcpy(expected + FILE_OFFSET, pattern + BUFFER_OFFSET, LEN);

    CHECK_HIPFILE(hipFileBufDeregister(device));
    hipFileHandleDeregister(file);
    if (file_size(fd) != FILE_SIZE)
        DIE("%s is %zu bytes long, not %d", path, file_size(fd), FILE_SIZE);
    CHECK_OS(close(fd));
    CHECK_HIPFILE(hipFileDriverClose());

    report(path, "old content with the new middle", FILE_SIZE, hash_file(path, 0, FILE_SIZE),
           fnv1a(FNV1A_START, expected, FILE_SIZE));
    CHECK_HIP(hipFree(device));
    free(pattern);
    free(expected);
    return 0;
}
