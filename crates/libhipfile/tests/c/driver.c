/*
 * driver: open, close, the use count, and what opens the driver implicitly. The tests of one group run in one
 * process: the count is back at 0 between them, so each starts from an uninitialised driver.
 */
#include "device.h"

static void counting(void)
{
    CHECK_EQ(hipFileUseCount(), 0);
    CHECK_CODE(hipFileDriverClose(), hipFileDriverNotInitialized);
    CHECK_EQ(hipFileUseCount(), 0);
    for (int i = 1; i <= 5; i++) {
        CHECK_OK(hipFileDriverOpen());
        CHECK_EQ(hipFileUseCount(), i);
    }
    for (int i = 4; i >= 0; i--) {
        CHECK_OK(hipFileDriverClose());
        CHECK_EQ(hipFileUseCount(), i);
    }
    CHECK_CODE(hipFileDriverClose(), hipFileDriverNotInitialized);
    CHECK_EQ(hipFileUseCount(), 0);
}

/* What a closed driver answers, and that none of it opens the driver. */
static void uninitialised(char *device)
{
    unsigned char host[16];
    hipFileHandle_t garbage = (hipFileHandle_t)(uintptr_t)0x1234;
    CHECK_ERRNO(hipFileRead(NULL, NULL, 0, 0, 0), EINVAL);
    CHECK_ERRNO(hipFileWrite(NULL, NULL, 0, 0, 0), EINVAL);
    CHECK_ERRNO(hipFileRead(garbage, device, 1, 0, 0), EINVAL);
    CHECK_ERRNO(hipFileWrite(garbage, host, sizeof host, -1, -1), EINVAL);
    hipFileHandleDeregister(NULL);
    hipFileHandleDeregister(garbage);
    CHECK_CODE(hipFileBufDeregister(device), hipFileDriverClosing);
    CHECK_CODE(hipFileBufDeregister(NULL), hipFileDriverClosing);

    unsigned major = 77, minor = 77, patch = 77;
    CHECK_OK(hipFileGetVersion(&major, &minor, &patch));
    CHECK_EQ(major, HIPFILE_VERSION_MAJOR);
    CHECK_EQ(minor, HIPFILE_VERSION_MINOR);
    CHECK_EQ(patch, HIPFILE_VERSION_PATCH);
    CHECK_EQ(hipFileUseCount(), 0);
}

static void implicit_open_by_files(void)
{
    make_file("implicit", 4096, 1);
    const int fd = open_file("implicit", O_RDONLY);
    hipFileDescr_t descr = descr_of(fd);
    hipFileHandle_t handle = NULL;

    /* Refusals before the descriptor is accepted leave the driver closed. */
    CHECK_CODE(hipFileHandleRegister(NULL, &descr), hipFileInvalidValue);
    CHECK_CODE(hipFileHandleRegister(&handle, NULL), hipFileInvalidValue);
    CHECK_CODE(hipFileHandleRegister(NULL, NULL), hipFileInvalidValue);
    CHECK_EQ(hipFileUseCount(), 0);
    descr.type = hipFileHandleTypeOpaqueWin32;
    CHECK_CODE(hipFileHandleRegister(&handle, &descr), hipFileIONotSupported);
    CHECK_EQ(hipFileUseCount(), 0);
    CHECK_CODE(try_register_fd(-1), hipFileInternalError);
    CHECK_EQ(hipFileUseCount(), 0);

    descr = descr_of(fd);
    CHECK_OK(hipFileHandleRegister(&handle, &descr));
    CHECK_EQ(hipFileUseCount(), 1);
    CHECK_CODE(try_register_fd(fd), hipFileHandleAlreadyRegistered);
    CHECK_EQ(hipFileUseCount(), 1);
    CHECK_OK(hipFileDriverOpen());
    CHECK_EQ(hipFileUseCount(), 2);

    /* Only the first registration opens; deregistering does not close. */
    hipFileHandleDeregister(handle);
    CHECK_EQ(hipFileUseCount(), 2);
    CHECK_OK(hipFileHandleRegister(&handle, &descr));
    CHECK_EQ(hipFileUseCount(), 2);
    CHECK_OK(hipFileDriverClose());
    CHECK_OK(hipFileDriverClose());
    CHECK_EQ(hipFileUseCount(), 0);

    /* The close has dropped the registration: the descriptor is free to be registered again, and still open. */
    CHECK_OK(try_register_fd(fd));
    CHECK_EQ(hipFileUseCount(), 1);
    CHECK_OK(hipFileDriverClose());
    CHECK_EQ(close(fd), 0);
}

static void implicit_open_by_buffers(char *device)
{
    unsigned char host[4096];
    CHECK_CODE(hipFileBufRegister(NULL, 4096, 0), hipFileInvalidValue);
    CHECK_EQ(hipFileUseCount(), 1);
    CHECK_OK(hipFileDriverClose());

    CHECK_CODE(hipFileBufRegister(host, sizeof host, 0), hipFileHipMemoryTypeInvalid);
    CHECK_EQ(hipFileUseCount(), 1);
    CHECK_CODE(hipFileBufRegister(host, sizeof host, 0), hipFileHipMemoryTypeInvalid);
    CHECK_EQ(hipFileUseCount(), 1);
    CHECK_OK(hipFileDriverClose());

    CHECK_OK(hipFileBufRegister(device, 4096, 0));
    CHECK_EQ(hipFileUseCount(), 1);
    CHECK_CODE(hipFileBufRegister(device, 4096, 0), hipFileMemoryAlreadyRegistered);
    CHECK_OK(hipFileDriverOpen());
    CHECK_EQ(hipFileUseCount(), 2);
    CHECK_OK(hipFileDriverClose());
    CHECK_OK(hipFileDriverClose());

    /* The close has dropped the registration. */
    CHECK_OK(hipFileBufRegister(device, 4096, 0));
    CHECK_OK(hipFileBufDeregister(device));
    CHECK_EQ(hipFileUseCount(), 1);
    CHECK_OK(hipFileDriverClose());
}

/* The first of two closers must not pull the driver from under the other. */
static void behaviour_48_nested_open(char *device)
{
    make_file("nested", 4096, 2);
    const int fd = open_file("nested", O_RDWR);
    CHECK_OK(hipFileDriverOpen());
    CHECK_OK(hipFileDriverOpen());
    hipFileHandle_t handle = register_fd(fd);
    CHECK_EQ(hipFileUseCount(), 2);
    CHECK_OK(hipFileBufRegister(device, 4096, 0));
    CHECK_OK(hipFileDriverClose());
    CHECK_EQ(hipFileUseCount(), 1);
    CHECK_IO(hipFileRead(handle, device, 4096, 0, 0), 4096);
    CHECK_IO(hipFileWrite(handle, device, 4096, 0, 0), 4096);
    CHECK_OK(hipFileDriverClose());
    CHECK_EQ(hipFileUseCount(), 0);
    CHECK_ERRNO(hipFileRead(handle, device, 4096, 0, 0), EINVAL);
    CHECK_CODE(hipFileDriverClose(), hipFileDriverNotInitialized);

    /* Opened afresh, the old handle stays unknown, and the library has let go of every descriptor of its own. */
    CHECK_OK(hipFileDriverOpen());
    CHECK_IO(hipFileRead(handle, device, 4096, 0, 0), -hipFileHandleNotRegistered);
    hipFileHandleDeregister(handle);
    CHECK_CODE(hipFileBufDeregister(device), hipFileMemoryNotRegistered);
    hipFileHandle_t again = register_fd(fd);
    CHECK(again != handle);
    CHECK_IO(hipFileRead(again, device, 4096, 0, 0), 4096);
    CHECK_IO(hipFileRead(handle, device, 4096, 0, 0), -hipFileHandleNotRegistered);
    CHECK_OK(hipFileDriverClose());
    CHECK_EQ(close(fd), 0);
}

/* Many times over, with objects left registered: nothing piles up. */
static void open_close_many_times(char *device)
{
    FdTable before;
    make_file("many", 4096, 3);
    const int fd = open_file("many", O_RDWR);
    fd_table(&before);
    for (int i = 0; i < 200; i++) {
        CHECK_OK(hipFileDriverOpen());
        hipFileHandle_t handle = register_fd(fd);
        CHECK_OK(hipFileBufRegister(device, 4096, 0));
        CHECK_IO(hipFileRead(handle, device, 4096, 0, 0), 4096);
        CHECK_OK(hipFileDriverClose());
        CHECK_EQ(hipFileUseCount(), 0);
    }
    check_fd_table(&before);
    CHECK_EQ(close(fd), 0);
}

int main(void)
{
    counting();
    char *device = dev_alloc(8192);
    uninitialised(device);
    counting();
    implicit_open_by_files();
    implicit_open_by_buffers(device);
    behaviour_48_nested_open(device);
    open_close_many_times(device);
    uninitialised(device);
    CHECK_HIP(hipFree(device));
    puts("OK driver");
    return 0;
}
