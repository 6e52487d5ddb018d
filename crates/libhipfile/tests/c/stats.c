/*
 * stats: the counters of the process in C's structures, and the client that looks at a process from outside: here at this one
 * and at one that has ended.
 */
#include <hipfile-stats.h>
#include <sys/wait.h>

#include "device.h"

/* A structure with something behind it that must be left alone. */
typedef struct {
    hipFileStatsLevel3_t stats;
    unsigned char behind[256];
} Guarded;

static hipFileStatsLevel3_t all(void)
{
    Guarded guarded;
    memset(&guarded, 0x5a, sizeof guarded);
    CHECK_OK(hipFileGetStatsL3(&guarded.stats));
    for (size_t i = 0; i < sizeof guarded.behind; i++)
        CHECK_EQ(guarded.behind[i], 0x5a);
    hipFileStatsLevel1_t one;
    hipFileStatsLevel2_t two;
    CHECK_OK(hipFileGetStatsL1(&one));
    CHECK_OK(hipFileGetStatsL2(&two));
    CHECK_EQ(memcmp(&one, &guarded.stats.detailed.basic, sizeof one), 0);
    CHECK_EQ(memcmp(&two, &guarded.stats.detailed, sizeof two), 0);
    return guarded.stats;
}

static void client(void)
{
    hipFileStatsContext_t *context = (hipFileStatsContext_t *)(uintptr_t)0x5a5a;
    CHECK(hipFileStatsCreateContext(NULL, getpid()) == hipFileStatsInvalidArgument);
    CHECK(hipFileStatsCreateContext(&context, 0) == hipFileStatsInvalidArgument);
    CHECK(context == NULL);
    CHECK(hipFileStatsConnectToTargetProcess(NULL) == hipFileStatsInvalidArgument);
    CHECK(hipFileStatsPollTargetProcess(NULL, false) == hipFileStatsInvalidArgument);
    CHECK(hipFileStatsGenerateReport(NULL, 1) == hipFileStatsInvalidArgument);
    hipFileStatsCloseContext(NULL);

    const hipFileStatsError_t created = hipFileStatsCreateContext(&context, getpid());
    if (created == hipFileStatsTargetProcessNotAccessible) {
        fprintf(stderr, "SKIP: the statistics client: processes cannot be watched here\n");
        return;
    }
    CHECK(created == hipFileStatsSuccess);
    CHECK(hipFileStatsGenerateReport(context, 1) == hipFileStatsReportGenerationFailed);
    CHECK(hipFileStatsConnectToTargetProcess(context) == hipFileStatsSuccess);
    CHECK(hipFileStatsPollTargetProcess(context, false) == hipFileStatsTargetProcessNotAccessible);
    const int report = open("report", O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(report >= 0);
    CHECK(hipFileStatsGenerateReport(context, report) == hipFileStatsSuccess);
    char text[64] = "";
    CHECK(pread(report, text, sizeof text - 1, 0) > 0);
    CHECK(strncmp(text, "AIS-STATS Version: 1\nHipFile Stats Level: 1\n", 44) == 0);
    CHECK_EQ(close(report), 0);
    hipFileStatsCloseContext(context);

    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    CHECK(hipFileStatsCreateContext(&context, child) == hipFileStatsSuccess);
    CHECK(hipFileStatsPollTargetProcess(context, true) == hipFileStatsSuccess);
    CHECK(hipFileStatsConnectToTargetProcess(context) == hipFileStatsTargetProcessNotAccessible);
    hipFileStatsCloseContext(context);
    CHECK_EQ(waitpid(child, NULL, 0), child);
    CHECK(hipFileStatsCreateContext(&context, child) == hipFileStatsTargetProcessNotFound);
    CHECK(context == NULL);
}

int main(void)
{
    CHECK_CODE(hipFileGetStatsL1(NULL), hipFileInvalidValue);
    CHECK_CODE(hipFileGetStatsL2(NULL), hipFileInvalidValue);
    CHECK_CODE(hipFileGetStatsL3(NULL), hipFileInvalidValue);
    CHECK_EQ(all().detailed.basic.read_ops.ok, 0);
    CHECK_EQ(hipFileUseCount(), 0);

    char *device = dev_pattern(1 << 20, 1);
    make_file("data", 1 << 20, 2);
    const int fd = open_file("data", O_RDWR);
    hipFileHandle_t file = register_fd(fd);
    CHECK_OK(hipFileBufRegister(device, 1 << 20, 0));
    CHECK_IO(hipFileRead(file, device, 1 << 20, 0, 0), 1 << 20);
    CHECK_IO(hipFileRead(file, device, 100, 3, 0), 100);
    CHECK_IO(hipFileWrite(file, device, 4096, 0, 0), 4096);

    const hipFileStatsLevel3_t stats = all();
    CHECK_EQ(stats.detailed.basic.read_ops.ok, 2);
    CHECK_EQ(stats.detailed.basic.read_bytes, (1 << 20) + 100);
    CHECK_EQ(stats.detailed.basic.write_bytes, 4096);
    CHECK_EQ(stats.detailed.read_size_kb_hist[0], 1);
    CHECK_EQ(stats.detailed.read_size_kb_hist[9], 1);
    CHECK_EQ(stats.detailed.write_size_kb_hist[1], 1);
    CHECK_EQ(stats.num_gpus, 1);
    CHECK_EQ(stats.per_gpu_stats[0].n_total_reads, 2);
    CHECK_EQ(stats.per_gpu_stats[0].n_unaligned_reads, 1);
    CHECK_EQ(stats.per_gpu_stats[0].reg_bytes, 1 << 20);

    client();
    CHECK_OK(hipFileBufDeregister(device));
    close_driver_fully();
    CHECK_EQ(all().detailed.basic.read_ops.ok, 2);
    CHECK_EQ(close(fd), 0);
    CHECK_HIP(hipFree(device));
    puts("OK stats");
    return 0;
}
