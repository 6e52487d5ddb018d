/*
 * stubs: functions of the interface that this version does not offer. Each answers {hipFileInternalError, hipSuccess}
 * whatever its arguments, in any state of the driver, changes nothing and opens nothing.
 */
#include <hipfile-stats.h>

#include "device.h"

#define CHECK_STUB(call) CHECK_CODE(call, hipFileInternalError)

/* Memory that a stub is handed and must leave alone. */
typedef struct {
    unsigned char bytes[8192];
} Untouched;

static Untouched fresh(void)
{
    Untouched memory;
    memset(&memory, 0x5a, sizeof memory);
    return memory;
}

static void check_untouched(const Untouched *memory)
{
    const Untouched expected = fresh();
    CHECK_BYTES(memory->bytes, expected.bytes, sizeof expected.bytes);
}

static void all_stubs(void)
{
    const int64_t count = hipFileUseCount();
    Untouched memory = fresh();
    void *out = memory.bytes;

    CHECK_STUB(hipFileGetStatsL1((hipFileStatsLevel1_t *)out));
    CHECK_STUB(hipFileGetStatsL2((hipFileStatsLevel2_t *)out));
    CHECK_STUB(hipFileGetStatsL3((hipFileStatsLevel3_t *)out));
    CHECK_STUB(hipFileGetStatsL1(NULL));
    CHECK_STUB(hipFileGetStatsL2(NULL));
    CHECK_STUB(hipFileGetStatsL3(NULL));

    check_untouched(&memory);
    CHECK_EQ(hipFileUseCount(), count);
}

/* The client of another process's statistics: wrong arguments are refused, nothing can be reported. */
static void statistics_client(void)
{
    hipFileStatsContext_t *context = (hipFileStatsContext_t *)(uintptr_t)0x5a5a;
    CHECK(hipFileStatsCreateContext(NULL, getpid()) == hipFileStatsInvalidArgument);
    CHECK(hipFileStatsCreateContext(&context, 0) == hipFileStatsInvalidArgument);
    CHECK(context == NULL);
    CHECK(hipFileStatsConnectToTargetProcess(NULL) == hipFileStatsInvalidArgument);
    CHECK(hipFileStatsPollTargetProcess(NULL, false) == hipFileStatsInvalidArgument);
    CHECK(hipFileStatsGenerateReport(NULL, 1) == hipFileStatsInvalidArgument);
    hipFileStatsCloseContext(NULL);
}

int main(void)
{
    char *device = dev_pattern(4096, 1);
    make_file("data", 4096, 2);
    const int fd = open_file("data", O_RDWR);
    unsigned char expected[4096], now[4096];

    all_stubs();
    CHECK_EQ(hipFileUseCount(), 0);
    hipFileHandle_t file = register_fd(fd);
    CHECK_OK(hipFileBufRegister(device, 4096, 0));
    all_stubs();
    CHECK_EQ(hipFileUseCount(), 1);

    /* No byte has moved, in either direction. */
    pattern(expected, sizeof expected, 1);
    CHECK_DEVICE(device, expected, sizeof expected);
    pattern(expected, sizeof expected, 2);
    CHECK_EQ(pread(fd, now, sizeof now, 0), sizeof now);
    CHECK_BYTES(now, expected, sizeof expected);

    /* And the driver is as good as before. */
    CHECK_IO(hipFileRead(file, device, 4096, 0, 0), 4096);
    CHECK_DEVICE(device, expected, sizeof expected);
    CHECK_OK(hipFileBufDeregister(device));
    close_driver_fully();
    all_stubs();
    statistics_client();
    CHECK_EQ(hipFileUseCount(), 0);
    CHECK_EQ(close(fd), 0);
    CHECK_HIP(hipFree(device));
    puts("OK stubs");
    return 0;
}
