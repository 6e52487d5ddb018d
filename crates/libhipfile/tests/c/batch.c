/*
 * batch: the batch functions as a C program sees them: handles, refusals, events, refilled places, cancelling, destroying
 * with work in flight, a write past the file-size limit.
 */
#include <sys/resource.h>
#include <time.h>

#include "device.h"

enum { PIECE = 4096, PIECES = 64 };

static hipFileIOParams_t entry(hipFileHandle_t file, hipFileOpcode_t opcode, char *device, size_t piece)
{
    hipFileIOParams_t params;
    memset(&params, 0, sizeof params);
    params.mode = hipFileBatch;
    params.u.batch.devPtr_base = device;
    params.u.batch.devPtr_offset = (int64_t)(piece * PIECE);
    params.u.batch.file_offset = (int64_t)(piece * PIECE);
    params.u.batch.size = PIECE;
    params.fh = file;
    params.opcode = opcode;
    params.cookie = (void *)(uintptr_t)(piece + 1000);
    return params;
}

/* Collects `count` events that are complete and whole, each cookie once. */
static void collect(hipFileBatchHandle_t batch, unsigned count)
{
    bool seen[PIECES] = { false };
    while (count > 0) {
        hipFileIOEvents_t events[5];
        unsigned nr = 5;
        CHECK_OK(hipFileBatchIOGetStatus(batch, 1, &nr, events, NULL));
        CHECK(nr >= 1 && nr <= 5 && nr <= count);
        for (unsigned i = 0; i < nr; i++) {
            const size_t piece = (uintptr_t)events[i].cookie - 1000;
            CHECK_EQ(events[i].status, hipFileComplete);
            CHECK_EQ(events[i].ret, PIECE);
            CHECK(piece < PIECES && !seen[piece]);
            seen[piece] = true;
        }
        count -= nr;
    }
}

static void handles(void)
{
    hipFileBatchHandle_t one = NULL, two = NULL;
    CHECK_CODE(hipFileBatchIOSetUp(NULL, 1), hipFileInvalidValue);
    CHECK_CODE(hipFileBatchIOSetUp(&one, 0), hipFileInvalidValue);
    CHECK_CODE(hipFileBatchIOSetUp(&one, 4097), hipFileInvalidValue);
    CHECK(one == NULL);
    CHECK_OK(hipFileBatchIOSetUp(&one, 4096));
    CHECK_OK(hipFileBatchIOSetUp(&two, 128));
    CHECK(one != NULL && two != NULL && one != two);
    hipFileBatchIODestroy(one);
    hipFileBatchIODestroy(one);
    hipFileBatchIODestroy(NULL);
    CHECK_CODE(hipFileBatchIOCancel(one), hipFileInvalidValue);
    CHECK_CODE(hipFileBatchIOCancel(NULL), hipFileInvalidValue);
    CHECK_OK(hipFileBatchIOCancel(two));
    hipFileBatchIODestroy(two);
    CHECK_EQ(hipFileUseCount(), 0);
}

static void there_and_back(hipFileHandle_t file, char *device)
{
    unsigned char expected[PIECE * PIECES];
    hipFileBatchHandle_t batch = NULL;
    CHECK_OK(hipFileBatchIOSetUp(&batch, PIECES));
    hipFileIOParams_t params[PIECES + 1];
    for (size_t i = 0; i <= PIECES; i++)
        params[i] = entry(file, hipFileBatchWrite, device, i % PIECES);
    CHECK_CODE(hipFileBatchIOSubmit(batch, PIECES + 1, params, 0), hipFileBatchFull);
    CHECK_OK(hipFileBatchIOSubmit(batch, PIECES, params, 0));
    collect(batch, PIECES);
    dev_poison(device, sizeof expected);
    for (size_t i = 0; i < PIECES; i++)
        params[i].opcode = hipFileBatchRead;
    CHECK_OK(hipFileBatchIOSubmit(batch, 40, params, 0));
    CHECK_CODE(hipFileBatchIOSubmit(batch, 40, params, 0), hipFileBatchFull);
    collect(batch, 40);
    CHECK_OK(hipFileBatchIOSubmit(batch, 24, params + 40, 0));
    memset(params, 0x5a, sizeof params);
    collect(batch, 24);
    pattern(expected, sizeof expected, 1);
    CHECK_DEVICE(device, expected, sizeof expected);

    /* One bad entry among good ones: nothing happens. */
    for (size_t i = 0; i < 3; i++)
        params[i] = entry(file, hipFileBatchRead, device, i);
    params[1].u.batch.size = PIECE * PIECES;
    CHECK_CODE(hipFileBatchIOSubmit(batch, 3, params, 0), hipFileInvalidValue);
    unsigned nr = 1;
    hipFileIOEvents_t event;
    struct timespec none = { 0, 0 };
    CHECK_OK(hipFileBatchIOGetStatus(batch, 1, &nr, &event, &none));
    CHECK_EQ(nr, 0);
    hipFileBatchIODestroy(batch);
}

/* Each accepted entry gives one event, whatever becomes of it. */
static void cancel_and_destroy(hipFileHandle_t file, char *device)
{
    hipFileIOParams_t params[PIECES];
    for (size_t i = 0; i < PIECES; i++)
        params[i] = entry(file, hipFileBatchRead, device, i);
    for (int round = 0; round < 20; round++) {
        hipFileBatchHandle_t batch = NULL;
        CHECK_OK(hipFileBatchIOSetUp(&batch, PIECES));
        CHECK_OK(hipFileBatchIOSubmit(batch, PIECES, params, 0));
        if (round % 2 == 0) {
            CHECK_OK(hipFileBatchIOCancel(batch));
            hipFileIOEvents_t events[PIECES];
            unsigned nr = PIECES;
            CHECK_OK(hipFileBatchIOGetStatus(batch, PIECES, &nr, events, NULL));
            CHECK_EQ(nr, PIECES);
            for (unsigned i = 0; i < nr; i++) {
                const bool whole = events[i].status == hipFileComplete && events[i].ret == PIECE;
                CHECK(whole || (events[i].status == hipFileCanceled && events[i].ret == 0));
            }
        }
        hipFileBatchIODestroy(batch);
    }
}

static void past_the_limit(hipFileHandle_t file, char *device)
{
    struct rlimit before, limit;
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = PIECE * PIECES;
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    hipFileBatchHandle_t batch = NULL;
    CHECK_OK(hipFileBatchIOSetUp(&batch, 1));
    hipFileIOParams_t params = entry(file, hipFileBatchWrite, device, 0);
    params.u.batch.file_offset = PIECE * PIECES;
    CHECK_OK(hipFileBatchIOSubmit(batch, 1, &params, 0));
    hipFileIOEvents_t event;
    unsigned nr = 1;
    CHECK_OK(hipFileBatchIOGetStatus(batch, 1, &nr, &event, NULL));
    CHECK_EQ(nr, 1);
    CHECK_EQ(event.status, hipFileFailed);
    CHECK_EQ((ssize_t)event.ret, -EFBIG);
    hipFileBatchIODestroy(batch);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
}

int main(void)
{
    handles();
    char *device = dev_pattern(PIECE * PIECES, 1);
    make_file("data", PIECE * PIECES, 2);
    const int fd = open_file("data", O_RDWR);
    hipFileHandle_t file = register_fd(fd);
    CHECK_OK(hipFileBufRegister(device, PIECE * PIECES, 0));
    there_and_back(file, device);
    cancel_and_destroy(file, device);
    past_the_limit(file, device);
    CHECK_OK(hipFileBufDeregister(device));
    hipFileHandleDeregister(file);
    close_driver_fully();
    CHECK_EQ(close(fd), 0);
    CHECK_HIP(hipFree(device));
    puts("OK batch");
    return 0;
}
