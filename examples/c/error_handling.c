/*
 * error_handling FILE: every way in which hipFile reports a failure, provoked one after the other.
 *
 * Functions that return hipFileError_t carry two numbers: `err` (0 or 5001 and up) and, when `err` is
 * hipFileHipDriverError, HIP's own code in `hip_drv_err`. hipFileRead and hipFileWrite return a byte count, or
 * one negative number that stands for one of three things; `io_error` in common.h tells them apart.
 */
#include "common.h"

static void show(const char *what, hipFileError_t status, hipFileOpError_t expected)
{
    printf("%-42s %d: %s\n", what, (int)status.err, hipFileGetOpErrorString(status.err));
    if (status.err != expected)
        DIE("%s: expected %d, got %d", what, (int)expected, (int)status.err);
}

static void show_io(const char *what, ssize_t result, ssize_t expected)
{
    const int os_error = errno; /* before anything else can change it */
    printf("%-42s %zd: %s\n", what, result, io_error(result));
    if (result != expected)
        DIE("%s: expected %zd, got %zd (errno %d)", what, expected, result, os_error);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE\nProvokes errors on FILE (replaced).\n", argv[0]);
        return 2;
    }
    const char *path = argv[1];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd == -1)
        DIE("cannot open %s: %s", path, strerror(errno));
    void *device = NULL;
    CHECK_HIP(hipMalloc(&device, 64 * KIB));
    unsigned char *host = alloc_host(64 * KIB);

    /* Before the driver is open. */
    show("close without open", hipFileDriverClose(), hipFileDriverNotInitialized);
    show("deregister a buffer without open", hipFileBufDeregister(device), hipFileDriverClosing);
    show_io("read without open", hipFileRead(NULL, device, 1, 0, 0), -1);

    CHECK_HIPFILE(hipFileDriverOpen());
    hipFileHandle_t file = register_fd(fd);
    hipFileDescr_t descr;
    memset(&descr, 0, sizeof descr);
    descr.type = hipFileHandleTypeOpaqueFD;
    descr.handle.fd = fd;
    hipFileHandle_t other = NULL;
    show("register a descriptor twice", hipFileHandleRegister(&other, &descr), hipFileHandleAlreadyRegistered);
    descr.type = hipFileHandleTypeOpaqueWin32;
    show("register a Windows handle", hipFileHandleRegister(&other, &descr), hipFileIONotSupported);

    show("register host memory", hipFileBufRegister(host, 64 * KIB, 0), hipFileHipMemoryTypeInvalid);
    show("register more than was allocated", hipFileBufRegister(device, 65 * KIB, 0), hipFileHipPointerRangeError);
    show("deregister an unknown buffer", hipFileBufDeregister(device), hipFileMemoryNotRegistered);

    /* The operating system's own refusals come as -1 with errno: this descriptor is open for writing only. */
    show_io("read a write-only descriptor", hipFileRead(file, device, 4 * KIB, 0, 0), -1);
    show_io("negative file offset", hipFileWrite(file, device, 1, -1, 0), -1);
    /* The library's own come as its code, negated. */
    show_io("write host memory", hipFileWrite(file, host, 1, 0, 0), -hipFileHipMemoryTypeInvalid);
    show_io("write more than was allocated", hipFileWrite(file, device, 65 * KIB, 0, 0), -hipFileInvalidValue);
    hipFileHandleDeregister(file);
    show_io("write to a handle that is gone", hipFileWrite(file, device, 1, 0, 0), -hipFileHandleNotRegistered);

    if (file_size(fd) != 0)
        DIE("a refused call has changed %s", path);
    CHECK_OS(close(fd));
    CHECK_HIPFILE(hipFileDriverClose());
    CHECK_HIP(hipFree(device));
    free(host);
    puts("OK every failure was reported as documented");
    return 0;
}
