/*
 * no_runtime MODE: a process without a GPU runtime, or with one that cannot serve. Compiled without HIP's header and
 * linked with libhipfile alone. Every function is callable; what needs no device works.
 *
 *   none  no runtime at all: what needs a device answers hipFilePlatformNotSupported
 *   old   one from before ROCm 6, named by HIPFILE_HIP_LIBRARY: refused with a reason
 *   bad   HIPFILE_HIP_LIBRARY names something that is no such library: the same
 */
#include <dlfcn.h>

#include <hipfile-stats.h>
#include <hipfile_ext.h>

#include "check.h"

static const char *last_error(void)
{
    static hipFileExtErrorInfo_t info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    CHECK_OK(hipFileExtLastError(&info));
    CHECK_EQ(info.size, sizeof info);
    return info.text;
}

/* What needs a device: always the same answer, and a reason in words. */
static void needs_a_device(hipFileHandle_t file, const char *reason)
{
    static unsigned char host[4096];
    for (int i = 0; i < 3; i++) {
        CHECK_CODE(hipFileBufRegister(host, sizeof host, 0), hipFilePlatformNotSupported);
        if (strstr(last_error(), reason) == NULL)
            FAIL("the reason \"%s\" does not speak of \"%s\"", last_error(), reason);
        CHECK_IO(hipFileRead(file, host, sizeof host, 0, 0), -hipFilePlatformNotSupported);
        CHECK_IO(hipFileWrite(file, host, sizeof host, 0, 0), -hipFilePlatformNotSupported);
    }
    printf("reason: %s\n", last_error());
    CHECK_CODE(hipFileBufDeregister(host), hipFileMemoryNotRegistered);

    /* What can be refused without asking a runtime still is. */
    CHECK_CODE(hipFileBufRegister(NULL, 4096, 0), hipFileInvalidValue);
    CHECK_IO(hipFileRead(NULL, host, 1, 0, 0), -hipFileHandleNotRegistered);
    CHECK_IO(hipFileRead(file, NULL, 1, 0, 0), -hipFileInvalidValue);
}

/* The part that needs no device: driver, files, version, texts. */
static void works_without(const char *reason)
{
    FdTable before;
    make_file("data", 4096, 1);
    const int fd = open_file("data", O_RDWR);
    hipFileDescr_t descr = descr_of(fd);
    fd_table(&before);

    unsigned major = 9, minor = 9, patch = 9;
    CHECK_OK(hipFileGetVersion(&major, &minor, &patch));
    CHECK_EQ(major, HIPFILE_VERSION_MAJOR);
    CHECK_EQ(minor, HIPFILE_VERSION_MINOR);
    CHECK_EQ(patch, HIPFILE_VERSION_PATCH);
    CHECK(hipFileGetOpErrorString(hipFilePlatformNotSupported)[0] != '\0');
    CHECK_ERRNO(hipFileRead(NULL, NULL, 1, 0, 0), EINVAL);
    CHECK_CODE(hipFileBufDeregister(&descr), hipFileDriverClosing);
    CHECK_CODE(hipFileDriverClose(), hipFileDriverNotInitialized);

    /* behaviour 22: opening, registering and closing in every order leaves the process's descriptors alone. */
    for (int order = 0; order < 6; order++) {
        hipFileHandle_t file = NULL;
        if (order % 3 != 1)
            CHECK_OK(hipFileDriverOpen());
        if (order % 3 != 2) {
            CHECK_OK(hipFileHandleRegister(&file, &descr));
            needs_a_device(file, reason);
            CHECK_CODE(try_register_fd(fd), hipFileHandleAlreadyRegistered);
            CHECK_CODE(try_register_fd(-1), hipFileInternalError);
            if (order < 3)
                hipFileHandleDeregister(file);
        }
        close_driver_fully();
        hipFileHandleDeregister(file);
        check_fd_table(&before);
    }
    CHECK_EQ(close(fd), 0);

    /* A failed open of the driver once closed descriptor 0, and the next file got its number. */
    const int next = open_file("data", O_RDONLY);
    CHECK(next > 2);
    CHECK_EQ(close(next), 0);
}

/* Memory of the host needs no device, where it is allowed: by calls and by a batch, registered and not. */
static void host_memory_works(void)
{
    enum { LEN = 100001 };
    static unsigned char host[LEN], expected[LEN];
    make_file("data", LEN, 3);
    pattern(expected, LEN, 3);
    const int fd = open_file("data", O_RDWR);
    CHECK_OK(hipFileSetParameterBool(hipFileParamPropertiesAllowSystemMemory, true));
    CHECK_OK(hipFileDriverOpen());
    const hipFileHandle_t file = register_fd(fd);
    for (int registered = 0; registered < 2; registered++) {
        if (registered)
            CHECK_OK(hipFileBufRegister(host, LEN, 0));
        memset(host, 0, LEN);
        CHECK_IO(hipFileRead(file, host, LEN, 0, 0), LEN);
        CHECK_BYTES(host, expected, LEN);
        CHECK_IO(hipFileWrite(file, host, LEN, LEN, 0), LEN);
        memset(host, 0, LEN);
        CHECK_IO(hipFileRead(file, host, LEN, LEN, 0), LEN);
        CHECK_BYTES(host, expected, LEN);

        hipFileBatchHandle_t batch = NULL;
        hipFileIOParams_t entry;
        hipFileIOEvents_t event;
        memset(&entry, 0, sizeof entry);
        memset(host, 0, LEN);
        entry.mode = hipFileBatch;
        entry.fh = file;
        entry.opcode = hipFileBatchRead;
        entry.u.batch.devPtr_base = host;
        entry.u.batch.size = LEN;
        unsigned nr = 1;
        CHECK_OK(hipFileBatchIOSetUp(&batch, 1));
        CHECK_OK(hipFileBatchIOSubmit(batch, 1, &entry, 0));
        CHECK_OK(hipFileBatchIOGetStatus(batch, 1, &nr, &event, NULL));
        CHECK_EQ(nr, 1);
        CHECK_EQ(event.status, hipFileComplete);
        CHECK_IO((ssize_t)event.ret, LEN);
        CHECK_BYTES(host, expected, LEN);
        hipFileBatchIODestroy(batch);
        if (registered)
            CHECK_OK(hipFileBufDeregister(host));
    }
    hipFileHandleDeregister(file);
    close_driver_fully();
    CHECK_OK(hipFileSetParameterBool(hipFileParamPropertiesAllowSystemMemory, false));
    CHECK_EQ(close(fd), 0);
}

/* None of these may crash; what they answer is the business of the test `stubs`. */
static void every_other_function(void)
{
    union {
        hipFileDriverProps_t props;
        hipFileStatsLevel3_t stats;
        size_t number;
        bool flag;
        char text[64];
    } out;
    memset(&out, 0, sizeof out);
    hipFileBatchHandle_t batch = NULL;
    unsigned nr = 1;
    size_t size = 1;
    hoff_t at = 0;
    ssize_t bytes = 0;
    (void)hipFileDriverGetProperties(&out.props);
    (void)hipFileDriverSetPollMode(true, 4);
    (void)hipFileDriverSetMaxDirectIOSize(1024);
    (void)hipFileDriverSetMaxCacheSize(1024);
    (void)hipFileDriverSetMaxPinnedMemSize(1024);
    (void)hipFileGetParameterSizeT(hipFileParamProfileStats, &out.number);
    (void)hipFileGetParameterBool(hipFileParamForceCompatMode, &out.flag);
    (void)hipFileGetParameterString(hipFileParamLogDir, out.text, sizeof out.text);
    (void)hipFileSetParameterSizeT(hipFileParamProfileStats, 1);
    (void)hipFileSetParameterBool(hipFileParamForceCompatMode, false);
    (void)hipFileSetParameterString(hipFileParamLogDir, "/");
    (void)hipFileBatchIOSetUp(&batch, 1);
    (void)hipFileBatchIOSubmit(batch, 0, NULL, 0);
    (void)hipFileBatchIOGetStatus(batch, 0, &nr, NULL, NULL);
    (void)hipFileBatchIOCancel(batch);
    hipFileBatchIODestroy(batch);
    (void)hipFileReadAsync(NULL, NULL, &size, &at, &at, &bytes, NULL);
    (void)hipFileWriteAsync(NULL, NULL, &size, &at, &at, &bytes, NULL);
    (void)hipFileStreamRegister(NULL, 0);
    (void)hipFileStreamDeregister(NULL);
    (void)hipFileGetStatsL1(&out.stats.detailed.basic);
    (void)hipFileGetStatsL2(&out.stats.detailed);
    (void)hipFileGetStatsL3(&out.stats);
    hipFileExtBuildInfo_t build = { .size = sizeof build };
    CHECK_OK(hipFileExtGetBuildInfo(&build));
    CHECK(build.name[0] != '\0' && build.version[0] != '\0');
    hipFileExtHandleInfo_t info = { .size = sizeof info };
    hipFileExtBufInfo_t buffer = { .size = sizeof buffer };
    hipFileExtPoolInfo_t pool = { .size = sizeof pool };
    hipFileExtErrorInfo_t error = { .size = sizeof error };
    CHECK_CODE(hipFileExtHandleGetInfo(NULL, &info), hipFileHandleNotRegistered);
    CHECK_CODE(hipFileExtHandleSetPageCache(NULL, hipFileExtPageCacheAuto), hipFileHandleNotRegistered);
    CHECK_CODE(hipFileExtHandleSetSerialized(NULL, 1), hipFileHandleNotRegistered);
    (void)hipFileExtBufGetInfo(&out, sizeof out, &buffer);
    (void)hipFileExtPoolGetInfo(&pool);
    (void)hipFileExtPoolTrim();
    (void)hipFileExtStreamError(&bytes, &error);
    hipFileStatsContext_t *context = NULL;
    CHECK_EQ(hipFileStatsCreateContext(&context, 0), hipFileStatsInvalidArgument);
    CHECK_EQ(hipFileStatsConnectToTargetProcess(NULL), hipFileStatsInvalidArgument);
    CHECK_EQ(hipFileStatsPollTargetProcess(NULL, false), hipFileStatsInvalidArgument);
    CHECK_EQ(hipFileStatsGenerateReport(NULL, 1), hipFileStatsInvalidArgument);
    hipFileStatsCloseContext(NULL);
    close_driver_fully();
    CHECK_EQ(hipFileUseCount(), 0);
}

int main(int argc, char **argv)
{
    const char *mode = argc == 2 ? argv[1] : "";
    if (strcmp(mode, "none") == 0) {
        const char *names[] = { "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", "libcuda.so.1" };
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            if (dlopen(names[i], RTLD_NOW | RTLD_LOCAL) != NULL) {
                SKIP("no GPU runtime", "this machine has %s", names[i]);
                return 0;
            }
        works_without("libamdhip64");
    } else if (strcmp(mode, "old") == 0) {
        works_without("5.");
    } else if (strcmp(mode, "bad") == 0) {
        works_without("cannot be loaded");
    } else {
        FAIL("unknown mode \"%s\"", mode);
    }
    host_memory_works();
    every_other_function();
    printf("OK no_runtime %s\n", mode);
    return 0;
}
