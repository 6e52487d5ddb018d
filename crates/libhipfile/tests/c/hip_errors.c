/*
 * hip_errors MODE: a runtime that fails. The harness injects the fault; the mode says which, and what must come of it.
 *
 *   attributes  hipPointerGetAttributes fails with hipErrorUnknown
 *   unknown     hipPointerGetAttributes fails with hipErrorInvalidValue: it does not know the pointer
 *   range       hipMemGetAddressRange fails with hipErrorLaunchFailure
 *   no_range    hipMemGetAddressRange fails with hipErrorNotFound
 *   copy        the first copy between host and device fails with hipErrorLaunchFailure
 *   no_device   there is a runtime but no device
 */
#include "device.h"

enum { LEN = 8192 };

static const char *mode;
static char *device;
static hipFileHandle_t file;

static bool is(const char *name)
{
    return strcmp(mode, name) == 0;
}

/* A failure stays as long as its cause does, and leaves nothing behind. */
static void check_all(int register_code, int hip_code, ssize_t result)
{
    for (int i = 0; i < 3; i++) {
        if (hip_code != 0)
            CHECK_HIP_CODE(hipFileBufRegister(device, LEN, 0), hip_code);
        else
            CHECK_CODE(hipFileBufRegister(device, LEN, 0), register_code);
        CHECK_EQ(hipFileUseCount(), 1);
        CHECK_CODE(hipFileBufDeregister(device), hipFileMemoryNotRegistered);
        CHECK_IO(hipFileRead(file, device, LEN, 0, 0), result);
        CHECK_IO(hipFileWrite(file, device, LEN, 0, 0), result);
    }
}

int main(int argc, char **argv)
{
    mode = argc == 2 ? argv[1] : "";
    FdTable before;
    static char host[LEN];
    make_file("data", LEN, 1);
    const int fd = open_file("data", O_RDWR);
    if (is("no_device"))
        device = host;
    else
        device = dev_alloc(LEN);
    fd_table(&before);
    file = register_fd(fd);

    if (is("attributes"))
        check_all(hipFileHipDriverError, hipErrorUnknown, -hipErrorUnknown);
    else if (is("unknown"))
        check_all(hipFileInvalidValue, 0, -hipFileInvalidValue);
    else if (is("range"))
        check_all(hipFileHipDriverError, hipErrorLaunchFailure, -hipErrorLaunchFailure);
    else if (is("no_range"))
        check_all(hipFileInvalidValue, 0, -hipFileInvalidValue);
    else if (is("no_device"))
        check_all(hipFileHipDriverError, hipErrorNoDevice, -hipErrorNoDevice);
    else if (is("copy")) {
        unsigned char expected[LEN];
        pattern(expected, LEN, 1);
        /* The error is HIP's own, negated; errno stays. The next call works, and so does HIP for the caller. */
        CHECK_IO(hipFileRead(file, device, LEN, 0, 0), -hipErrorLaunchFailure);
        CHECK_EQ(hipGetLastError(), hipSuccess);
        CHECK_IO(hipFileRead(file, device, LEN, 0, 0), LEN);
        CHECK_DEVICE(device, expected, LEN);
    } else {
        FAIL("unknown mode \"%s\"", mode);
    }
    hipFileHandleDeregister(file);
    check_fd_table(&before);
    CHECK_EQ(close(fd), 0);
    close_driver_fully();
    printf("OK hip_errors %s\n", mode);
    return 0;
}
