/* Which path a file's transfers take, why, and what moved: hipFileExtHandleGetInfo and its neighbours. */
#include "device.h"

#include <hipfile_ext.h>
#include <stddef.h>

static const hipFileExtEngineCounters_t *engine(const hipFileExtHandleInfo_t *info, const char *name)
{
    for (uint32_t i = 0; i < info->engine_count; i++)
        if (strcmp(info->engines[i].name, name) == 0)
            return &info->engines[i];
    return NULL;
}

int main(void)
{
    enum { SIZE = 1 << 20 };
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0);
    CHECK(ftruncate(fd, SIZE + 1) == 0);

    hipFileDescr_t descr = { .type = hipFileHandleTypeOpaqueFD, .handle.fd = fd };
    hipFileHandle_t fh;
    CHECK_OK(hipFileHandleRegister(&fh, &descr));
    void *mem;
    CHECK(hipMalloc(&mem, SIZE + 4096) == hipSuccess);

    hipFileExtHandleInfo_t info = { .size = sizeof info };
    CHECK_OK(hipFileExtHandleGetInfo(fh, &info));
    CHECK_EQ(info.size, sizeof info);
    CHECK(info.path[0] == '/' && strstr(info.path, "file") != NULL);
    CHECK(info.engine_count > 0 && info.engine_count <= HIPFILE_EXT_MAX_ENGINES);
    CHECK(info.reason_count > 0 && info.reason_count <= HIPFILE_EXT_MAX_REASONS);
    CHECK(info.page_cache == hipFileExtPageCacheAuto);
    CHECK_EQ(info.emulated, 1);
    /* Direct without a reason, or staged with one. */
    CHECK((strcmp(info.engine, "p2p") == 0) == (info.reason[0] == '\0'));

    CHECK_EQ(hipFileRead(fh, mem, SIZE + 1, 0, 0), SIZE + 1);
    CHECK_EQ(hipFileRead(fh, mem, 10, 1, 1), 10);
    CHECK_OK(hipFileExtHandleGetInfo(fh, &info));
    uint64_t bytes = 0, staged = 0, counted = 0;
    for (uint32_t i = 0; i < info.engine_count; i++) {
        bytes += info.engines[i].read_bytes;
        if (strcmp(info.engines[i].name, "p2p") != 0)
            staged += info.engines[i].read_bytes;
    }
    for (uint32_t i = 0; i < info.reason_count; i++) {
        CHECK(info.reasons[i].word[0] != '\0' && info.reasons[i].text[0] != '\0');
        counted += info.reasons[i].read_bytes;
    }
    CHECK_EQ(bytes, SIZE + 1 + 10);
    CHECK_EQ(counted, staged);
    CHECK(engine(&info, "bounce") != NULL && engine(&info, "bounce")->read_operations >= 1);

    CHECK_OK(hipFileExtHandleSetPageCache(fh, hipFileExtPageCacheBuffered));
    CHECK_OK(hipFileExtHandleGetInfo(fh, &info));
    CHECK(info.page_cache == hipFileExtPageCacheBuffered);
    CHECK_CODE(hipFileExtHandleSetPageCache(fh, (hipFileExtPageCache_t)77), hipFileInvalidValue);

    /* Overlapping registrations: of those that hold the range, the one that begins last. */
    char *base = mem;
    CHECK_OK(hipFileBufRegister(base, SIZE, 0));
    CHECK_OK(hipFileBufRegister(base + 4096, SIZE, 0));
    hipFileExtBufInfo_t buf = { .size = sizeof buf };
    CHECK_OK(hipFileExtBufGetInfo(base + 4097, 10, &buf));
    CHECK(buf.start == base + 4096 && buf.length == SIZE && buf.gpu == 0 && buf.current == 1 && buf.pieces == 1);
    CHECK_OK(hipFileExtBufGetInfo(base + 10, SIZE - 10, &buf));
    CHECK(buf.start == base);
    CHECK_CODE(hipFileExtBufGetInfo(base + 10, SIZE + 4096, &buf), hipFileMemoryNotRegistered);
    CHECK_CODE(hipFileExtBufGetInfo(NULL, 1, &buf), hipFileMemoryNotRegistered);
    CHECK_CODE(hipFileExtBufGetInfo(base, 1, NULL), hipFileInvalidValue);
    CHECK_OK(hipFileBufDeregister(base + 4096));
    CHECK_OK(hipFileBufDeregister(base));

    hipFileExtPoolInfo_t pool = { .size = sizeof pool };
    CHECK_OK(hipFileExtPoolGetInfo(&pool));
    CHECK(pool.held_bytes > 0 && pool.held_bytes <= pool.most_bytes);
    CHECK_OK(hipFileExtPoolTrim());
    CHECK_OK(hipFileExtPoolGetInfo(&pool));
    CHECK_EQ(pool.held_bytes, 0);
    CHECK_EQ(hipFileRead(fh, mem, 10, 1, 1), 10);

    /* A smaller, older structure gets what it has room for. */
    union {
        hipFileExtHandleInfo_t whole;
        unsigned char raw[sizeof(hipFileExtHandleInfo_t)];
    } older;
    memset(&older, 0xa5, sizeof older);
    older.whole.size = offsetof(hipFileExtHandleInfo_t, path);
    CHECK_OK(hipFileExtHandleGetInfo(fh, &older.whole));
    CHECK_EQ(older.whole.size, offsetof(hipFileExtHandleInfo_t, path));
    CHECK(older.raw[offsetof(hipFileExtHandleInfo_t, path)] == 0xa5);

    CHECK_CODE(hipFileExtHandleGetInfo(fh, NULL), hipFileInvalidValue);
    CHECK_CODE(hipFileExtHandleGetInfo((hipFileHandle_t)0x1234, &info), hipFileHandleNotRegistered);
    hipFileHandleDeregister(fh);
    CHECK_CODE(hipFileExtHandleGetInfo(fh, &info), hipFileHandleNotRegistered);
    CHECK(hipFree(mem) == hipSuccess);
    puts("OK handle_info");
    return 0;
}
