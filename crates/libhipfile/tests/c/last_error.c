/* last_error: the reason in words (behaviour 88): file, offset, size, errno name; per thread. And hipFileExtGetBuildInfo. */
#include <pthread.h>

#include <hipfile_ext.h>

#include "device.h"

static hipFileExtErrorInfo_t last_error(void)
{
    hipFileExtErrorInfo_t info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    CHECK_OK(hipFileExtLastError(&info));
    CHECK_EQ(info.size, sizeof info);
    CHECK(info.function != NULL && info.text != NULL);
    CHECK(strchr(info.text, '\n') == NULL);
    return info;
}

static void check_mentions(const hipFileExtErrorInfo_t *info, const char *what)
{
    if (strstr(info->text, what) == NULL)
        FAIL("\"%s\" does not mention \"%s\"", info->text, what);
}

static void *in_another_thread(void *nothing)
{
    const hipFileExtErrorInfo_t info = last_error();
    CHECK_EQ(info.err, hipFileSuccess);
    CHECK_EQ(strlen(info.text), 0);
    CHECK_EQ(strlen(info.function), 0);
    return nothing;
}

int main(void)
{
    hipFileExtErrorInfo_t info = last_error();
    CHECK_EQ(info.err, hipFileSuccess);
    CHECK_EQ(info.os_error, 0);
    CHECK_EQ(strlen(info.text), 0);

    char *device = dev_alloc(65536);
    make_file("some-file-name", 4096, 1);
    const int fd = open_file("some-file-name", O_WRONLY);
    hipFileHandle_t file = register_fd(fd);

    CHECK_ERRNO(hipFileRead(file, device, 4242, 1313, 0), EBADF);
    info = last_error();
    CHECK_EQ(info.os_error, EBADF);
    CHECK_EQ(info.err, hipFileSuccess);
    CHECK(strcmp(info.function, "hipFileRead") == 0);
    check_mentions(&info, "some-file-name");
    check_mentions(&info, "4242");
    check_mentions(&info, "1313");
    check_mentions(&info, "EBADF");
    printf("%s\n", info.text);

    /* A success does not clear it, another thread does not see it. */
    CHECK_OK(hipFileDriverOpen());
    CHECK_EQ(last_error().os_error, EBADF);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, in_another_thread, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);

    CHECK_IO(hipFileWrite(file, device, 65537, 0, 0), -hipFileInvalidValue);
    info = last_error();
    CHECK_EQ(info.err, hipFileInvalidValue);
    CHECK_EQ(info.os_error, 0);
    CHECK(strcmp(info.function, "hipFileWrite") == 0);
    check_mentions(&info, "65537");
    printf("%s\n", info.text);

    CHECK_CODE(try_register_fd(-1), hipFileInternalError);
    info = last_error();
    CHECK_EQ(info.err, hipFileInternalError);
    CHECK(strcmp(info.function, "hipFileHandleRegister") == 0);
    check_mentions(&info, "-1");
    printf("%s\n", info.text);

    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    CHECK_CODE(try_register_fd(ends[0]), hipFileInvalidFileType);
    info = last_error();
    check_mentions(&info, "pipe");
    printf("%s\n", info.text);

    CHECK_CODE(hipFileBufRegister(&info, sizeof info, 0), hipFileHipMemoryTypeInvalid);
    info = last_error();
    CHECK_EQ(info.err, hipFileHipMemoryTypeInvalid);
    CHECK(strcmp(info.function, "hipFileBufRegister") == 0);
    printf("%s\n", info.text);

    /* The size field comes first, and tells both ways how much is meant. */
    CHECK_CODE(hipFileExtLastError(NULL), hipFileInvalidValue);
    info.size = 0;
    CHECK_CODE(hipFileExtLastError(&info), hipFileInvalidValue);
    struct {
        hipFileExtBuildInfo_t build;
        char beyond[64];
    } larger;
    memset(&larger, 0x5a, sizeof larger);
    larger.build.size = sizeof larger;
    CHECK_OK(hipFileExtGetBuildInfo(&larger.build));
    CHECK_EQ(larger.build.size, sizeof larger.build);
    CHECK(larger.beyond[0] == 0x5a && larger.beyond[63] == 0x5a);
    CHECK(strstr(larger.build.name, "hipfile") != NULL);
    CHECK((larger.build.features & HIPFILE_EXT_FEATURE_SYNC_IO) != 0);
    CHECK_CODE(hipFileExtGetBuildInfo(NULL), hipFileInvalidValue);

    /* A caller from before the last field existed. */
    memset(&larger, 0x5a, sizeof larger);
    larger.build.size = offsetof(hipFileExtBuildInfo_t, emulation_available);
    CHECK_OK(hipFileExtGetBuildInfo(&larger.build));
    CHECK_EQ(larger.build.size, offsetof(hipFileExtBuildInfo_t, emulation_available));
    CHECK_EQ(larger.build.emulation_available, 0x5a5a5a5a);
    close_driver_fully();
    CHECK_HIP(hipFree(device));
    puts("OK last_error");
    return 0;
}
