/*
 * roundtrip_verify CREATED COPIED [GPU]: the whole way, there and back.
 *
 * Device memory -> CREATED -> other device memory -> COPIED; then both files are read without hipFile and
 * compared with what the device memory held at the start.
 */
#include "common.h"

#define SIZE (4 * MIB + 321) /* ends in the middle of a block */

static void write_all(const char *path, const void *device)
{
    int fd = open_direct(path, O_WRONLY | O_CREAT | O_TRUNC);
    hipFileHandle_t file = register_fd(fd);
    ssize_t written = hipFileWrite(file, device, SIZE, 0, 0);
    if (written < 0)
        DIE("hipFileWrite to %s: %s", path, io_error(written));
    if ((size_t)written != SIZE)
        DIE("hipFileWrite to %s moved %zd bytes of %zu", path, written, SIZE);
    hipFileHandleDeregister(file);

    /* Written data is visible to every reader at once. That it survives a power cut is asked for separately. */
    CHECK_OS(fdatasync(fd));
    CHECK_OS(close(fd));
}

static void read_all(const char *path, void *device)
{
    int fd = open_direct(path, O_RDONLY);
    hipFileHandle_t file = register_fd(fd);
    ssize_t got = hipFileRead(file, device, SIZE, 0, 0);
    if (got < 0)
        DIE("hipFileRead of %s: %s", path, io_error(got));
    if ((size_t)got != SIZE)
        DIE("hipFileRead of %s moved %zd bytes of %zu", path, got, SIZE);
    hipFileHandleDeregister(file);
    CHECK_OS(close(fd));
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: %s CREATED COPIED [GPU]\nBoth files are replaced. GPU is a device number, default 0.\n",
                argv[0]);
        return 2;
    }
    const char *created = argv[1];
    const char *copied = argv[2];
    CHECK_HIP(hipSetDevice(argc == 4 ? atoi(argv[3]) : 0));

    unsigned char *pattern = alloc_host(SIZE);
    fill_pattern(pattern, SIZE, 6);
    const uint64_t expected = fnv1a(FNV1A_START, pattern, SIZE);
    void *first = NULL;
    void *second = NULL;
    CHECK_HIP(hipMalloc(&first, SIZE));
    CHECK_HIP(hipMalloc(&second, SIZE));
    CHECK_HIP(hipMemcpy(first, pattern, SIZE, hipMemcpyHostToDevice));
    CHECK_HIP(hipMemset(second, 0, SIZE));

    CHECK_HIPFILE(hipFileDriverOpen());
    CHECK_HIPFILE(hipFileBufRegister(first, SIZE, 0));
    CHECK_HIPFILE(hipFileBufRegister(second, SIZE, 0));
    write_all(created, first);
    read_all(created, second);
    write_all(copied, second);
    CHECK_HIPFILE(hipFileBufDeregister(second));
    CHECK_HIPFILE(hipFileBufDeregister(first));
    CHECK_HIPFILE(hipFileDriverClose());

    CHECK_HIP(hipFree(second));
    CHECK_HIP(hipFree(first));
    free(pattern);
    report(created, "device memory", SIZE, hash_file(created, 0, SIZE), expected);
    report(created, copied, SIZE, hash_file(copied, 0, SIZE), expected);
    return 0;
}
