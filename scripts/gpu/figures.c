/* What one machine with an NVIDIA GPU gives: the link, the cost of small transfers against plain C, batches, streams.
 *
 * Build: cc -O2 -pthread -I include -o figures figures.c -L lib -lhipfile -ldl     Run: HIPFILE_DEVICE=cuda ./figures FILE
 * FILE is readable, 1 GiB or more, and is read into the page cache. Needs libcuda.so.1, no toolkit. Figures are medians
 * of rounds in which all take their turn; CPU seconds are those of the whole process. */
#define _GNU_SOURCE
#define HIPFILE_NO_HIP
#include <hipfile.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int CUresult;
typedef uint64_t CUdeviceptr;
typedef void *CUstream;

static CUresult (*Init)(unsigned), (*DriverGetVersion)(int *), (*DeviceGetName)(char *, int, int),
    (*PrimaryCtxRetain)(void **, int), (*CtxSetCurrent)(void *), (*MemAlloc)(CUdeviceptr *, size_t),
    (*MemHostAlloc)(void **, size_t, unsigned), (*MemcpyHtoD)(CUdeviceptr, const void *, size_t),
    (*MemcpyDtoH)(void *, CUdeviceptr, size_t), (*MemcpyHtoDAsync)(CUdeviceptr, const void *, size_t, CUstream),
    (*StreamCreate)(CUstream *, unsigned), (*StreamSynchronize)(CUstream);
/* CUmemcpyAttributes. */
typedef struct {
    int order, from_type, from_id, to_type, to_id;
    unsigned flags;
} CopyAttributes;
/* The second version of it; absent before CUDA 13. */
static CUresult (*MemcpyBatchAsync)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CopyAttributes *, size_t *, size_t, CUstream);

static const struct {
    void *to;
    const char *name;
} SYMBOLS[] = {
    {&Init, "cuInit"}, {&DriverGetVersion, "cuDriverGetVersion"}, {&DeviceGetName, "cuDeviceGetName"},
    {&PrimaryCtxRetain, "cuDevicePrimaryCtxRetain"}, {&CtxSetCurrent, "cuCtxSetCurrent"},
    {&MemAlloc, "cuMemAlloc_v2"}, {&MemHostAlloc, "cuMemHostAlloc"}, {&MemcpyHtoD, "cuMemcpyHtoD_v2"},
    {&MemcpyDtoH, "cuMemcpyDtoH_v2"}, {&MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2"},
    {&StreamCreate, "cuStreamCreate"}, {&StreamSynchronize, "cuStreamSynchronize"},
};

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        CUresult r_ = (call);                                                                                          \
        if (r_) {                                                                                                      \
            fprintf(stderr, "%s failed: %d\n", #call, r_);                                                             \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        hipFileError_t e_ = (call);                                                                                    \
        if (e_.err) {                                                                                                  \
            fprintf(stderr, "%s failed: %d (%s), device %d\n", #call, (int)e_.err, hipFileGetOpErrorString(e_.err),    \
                    (int)e_.hip_drv_err);                                                                              \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "line %d: not so: %s (errno %d)\n", __LINE__, #what, errno);                               \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { KIB = 1024, MIB = 1 << 20, ROUNDS = 9, MOST = 16 };

static int fd;
static hipFileHandle_t file;
static CUdeviceptr device;
static char *pinned, *plain;
static CUstream streams[64];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static double cpu(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One way to do the same; moves `bytes` in `operations`. */
typedef struct {
    const char *name;
    void (*run)(void);
    size_t operations, bytes;
} Way;

/* Called before each way is run, and not timed; may be NULL. */
static void (*before)(void);

/* Runs all ways in turn and prints the median of each, and how often the first way's time fits into it. */
static void compare(const char *title, const Way *ways, int count)
{
    double times[MOST][ROUNDS], used[MOST];
    printf("\n%s\n", title);
    for (int w = 0; w < count; w++) {
        if (before)
            before();
        ways[w].run();
        used[w] = 0;
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < count; i++) {
            const int w = (i + round) % count;
            if (before)
                before();
            const double c = cpu(), t = now();
            ways[w].run();
            times[w][round] = now() - t;
            used[w] += cpu() - c;
        }
    double first = 0;
    for (int w = 0; w < count; w++) {
        qsort(times[w], ROUNDS, sizeof(double), ascending);
        const double median = times[w][ROUNDS / 2];
        if (w == 0)
            first = median;
        printf("  %-44s %9.2f us each  %7.2f GB/s  %6.3f cpu-s/GB  %5.2f x the first's time  (%.2f..%.2f)\n", ways[w].name,
               median / ways[w].operations * 1e6, ways[w].bytes / median / 1e9, used[w] / ROUNDS / (ways[w].bytes / 1e9),
               median / first, times[w][0] / median, times[w][ROUNDS - 1] / median);
    }
    fflush(stdout);
}

/* Scattered places of 4 KiB in the first 64 MiB. */
static off_t place(int n) { return (off_t)((n * 7919 + 13) % 16384) * 4096; }

static void link_up(void) { for (int i = 0; i < 4; i++) MUST(MemcpyHtoD(device, pinned, 256 * MIB)); }
static void link_down(void) { for (int i = 0; i < 4; i++) MUST(MemcpyDtoH(pinned, device, 256 * MIB)); }

static void copy_pinned(void) { for (int i = 0; i < 1000; i++) MUST(MemcpyHtoD(device, pinned, 4096)); }
static void copy_plain(void) { for (int i = 0; i < 1000; i++) MUST(MemcpyHtoD(device, plain, 4096)); }
static void copy_default_stream(void)
{
    for (int i = 0; i < 1000; i++) {
        MUST(MemcpyHtoDAsync(device, pinned, 4096, NULL));
        MUST(StreamSynchronize(NULL));
    }
}
static void copy_own_stream(void)
{
    for (int i = 0; i < 1000; i++) {
        MUST(MemcpyHtoDAsync(device, pinned, 4096, streams[0]));
        MUST(StreamSynchronize(streams[0]));
    }
}

static void small_plain(void)
{
    for (int i = 0; i < 1000; i++) {
        CHECK(pread(fd, plain, 4096, place(i)) == 4096);
        MUST(MemcpyHtoD(device, plain, 4096));
    }
}
static void small_pinned(void)
{
    for (int i = 0; i < 1000; i++) {
        CHECK(pread(fd, pinned, 4096, place(i)) == 4096);
        MUST(MemcpyHtoD(device, pinned, 4096));
    }
}
static void small_hipfile(void)
{
    for (int i = 0; i < 1000; i++)
        CHECK(hipFileRead(file, (void *)(uintptr_t)device, 4096, place(i), 0) == 4096);
}

/* As above and done when it returns: a copy out of plain memory may be under way still. */
static void small_plain_done(void)
{
    for (int i = 0; i < 1000; i++) {
        CHECK(pread(fd, plain, 4096, place(i)) == 4096);
        MUST(MemcpyHtoD(device, plain, 4096));
        MUST(StreamSynchronize(NULL));
    }
}
static void small_plain_queued(void)
{
    for (int i = 0; i < 1000; i++) {
        CHECK(pread(fd, plain, 4096, place(i)) == 4096);
        MUST(MemcpyHtoDAsync(device, plain, 4096, NULL));
        MUST(StreamSynchronize(NULL));
    }
}
static void small_pinned_queued(void)
{
    for (int i = 0; i < 1000; i++) {
        CHECK(pread(fd, pinned, 4096, place(i)) == 4096);
        MUST(MemcpyHtoDAsync(device, pinned, 4096, NULL));
        MUST(StreamSynchronize(NULL));
    }
}

static hipFileBatchHandle_t batch;
static hoff_t spread = 4096;
static void batch_of_128(void)
{
    static hipFileIOParams_t params[128];
    static hipFileIOEvents_t events[128];
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < 128; i++) {
            params[i].mode = hipFileBatch;
            params[i].u.batch.devPtr_base = (void *)(uintptr_t)device;
            params[i].u.batch.file_offset = place(round * 128 + i);
            params[i].u.batch.devPtr_offset = spread == 4096 ? i * 4096 : (hoff_t)(i * 37 % 128) * spread;
            params[i].u.batch.size = 4096;
            params[i].fh = file;
            params[i].opcode = hipFileBatchRead;
        }
        OK(hipFileBatchIOSubmit(batch, 128, params, 0));
        for (unsigned done = 0; done < 128;) {
            unsigned got = 128;
            OK(hipFileBatchIOGetStatus(batch, 128 - done, &got, events, NULL));
            for (unsigned i = 0; i < got; i++)
                CHECK(events[i].status == hipFileComplete && events[i].ret == 4096);
            done += got;
        }
    }
}
static void one_by_one(void)
{
    for (int i = 0; i < 1024; i++) {
        CHECK(pread(fd, plain, 4096, place(i)) == 4096);
        MUST(MemcpyHtoD(device + i % 128 * 4096, plain, 4096));
    }
}
/* What a program can do by hand: all reads, all copies queued, one wait. */
static void by_hand(void)
{
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < 128; i++) {
            CHECK(pread(fd, pinned + i * 4096, 4096, place(round * 128 + i)) == 4096);
            MUST(MemcpyHtoDAsync(device + i * 4096, pinned + i * 4096, 4096, streams[0]));
        }
        MUST(StreamSynchronize(streams[0]));
    }
}

/* The same, the copies of 64 reads by one call of CUDA 12.8. */
static void by_hand_at_once(void)
{
    static CUdeviceptr to[64], from[64];
    static size_t lens[64], none[1];
    static CopyAttributes attributes = {.order = 1};
    for (int round = 0; round < 16; round++) {
        char *block = pinned + round % 2 * 64 * 4096;
        for (int i = 0; i < 64; i++) {
            CHECK(pread(fd, block + i * 4096, 4096, place(round * 64 + i)) == 4096);
            /* No two next to each other. */
            to[i] = device + (CUdeviceptr)(i * 37 % 64) * 8192;
            from[i] = (CUdeviceptr)(uintptr_t)(block + i * 4096);
            lens[i] = 4096;
        }
        MUST(MemcpyBatchAsync(to, from, lens, 64, &attributes, none, 1, streams[0]));
        if (round % 2)
            MUST(StreamSynchronize(streams[0]));
    }
}
static void scattered_batch(void)
{
    spread = 8192;
    batch_of_128();
    spread = 4096;
}

static size_t sizes[1024];
static hoff_t file_offsets[1024], buffer_offsets[1024];
static ssize_t moved[1024];

static void on_streams(int count, int operations, size_t size, int wait_each)
{
    for (int i = 0; i < operations; i++) {
        sizes[i] = size;
        file_offsets[i] = size == 4096 ? place(i) : (hoff_t)i * (hoff_t)size;
        buffer_offsets[i] = (hoff_t)(i % 64) * (hoff_t)(size == 4096 ? 4096 : size);
        moved[i] = -1;
        OK(hipFileReadAsync(file, (void *)(uintptr_t)device, &sizes[i], &file_offsets[i], &buffer_offsets[i], &moved[i],
                            (hipStream_t)streams[i % count]));
        if (wait_each)
            MUST(StreamSynchronize(streams[i % count]));
    }
    for (int s = 0; s < count; s++)
        MUST(StreamSynchronize(streams[s]));
    for (int i = 0; i < operations; i++)
        CHECK(moved[i] == (ssize_t)size);
}
static void async_1(void) { on_streams(1, 256, 4096, 0); }
static void async_1_waited(void) { on_streams(1, 256, 4096, 1); }
static void async_16(void) { on_streams(16, 1024, 4096, 0); }
static void async_64(void) { on_streams(64, 1024, 4096, 0); }
static void large_sync(void)
{
    CHECK(hipFileRead(file, (void *)(uintptr_t)device, 1024UL * MIB, 0, 0) == (ssize_t)(1024UL * MIB));
}
static void large_async(void) { on_streams(1, 1, 1024UL * MIB, 0); }
static void large_async_4(void) { on_streams(4, 4, 256UL * MIB, 0); }
static void large_async_16(void) { on_streams(16, 16, 64UL * MIB, 0); }
static void drop(void) { CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0); }
static void cold_4k_1(void) { on_streams(1, 256, 4096, 0); }
static void cold_4k_16(void) { on_streams(16, 256, 4096, 0); }
static void cold_mib_1(void) { on_streams(1, 128, MIB, 0); }
static void cold_mib_16(void) { on_streams(16, 128, MIB, 0); }
static void cold_calls(void)
{
    for (int i = 0; i < 256; i++)
        CHECK(hipFileRead(file, (void *)(uintptr_t)device, 4096, place(i), 0) == 4096);
}
static void mib_calls(void)
{
    for (int i = 0; i < 256; i++)
        CHECK(hipFileRead(file, (void *)(uintptr_t)device, MIB, (hoff_t)i * MIB, 0) == MIB);
}
static void mib_plain(void)
{
    for (int i = 0; i < 256; i++) {
        CHECK(pread(fd, pinned, MIB, (off_t)i * MIB) == MIB);
        MUST(MemcpyHtoD(device, pinned, MIB));
    }
}

static char *filled;
static size_t filled_len;
static void *fill(void *part)
{
    const size_t piece = filled_len / 16;
    memset(filled + (uintptr_t)part * piece, 1, piece);
    return NULL;
}

/* Has the machine's memory backed: the first touch of a page costs a virtual machine more than any copy. */
static int fill_memory(void)
{
    pthread_t threads[16];
    const size_t available = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    filled_len = available / 10 * 8;
    filled = mmap(NULL, filled_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(filled != MAP_FAILED);
    const double began = now();
    for (uintptr_t i = 0; i < 16; i++)
        CHECK(pthread_create(&threads[i], NULL, fill, (void *)i) == 0);
    for (int i = 0; i < 16; i++)
        pthread_join(threads[i], NULL);
    printf("filled %.1f GB of memory in %.0f s\n", filled_len / 1e9, now() - began);
    return 0;
}

/* What was read is what is in the file, byte for byte, over the first GiB. */
static void verify(void)
{
    char *want = malloc(64 * MIB);
    CHECK(want != NULL);
    for (int i = 0; i < 16; i++) {
        CHECK(hipFileRead(file, (void *)(uintptr_t)device, 64 * MIB, (hoff_t)i * 64 * MIB, 0) == 64 * MIB);
        MUST(MemcpyDtoH(pinned, device, 64 * MIB));
        CHECK(pread(fd, want, 64 * MIB, (off_t)i * 64 * MIB) == 64 * MIB);
        CHECK(memcmp(pinned, want, 64 * MIB) == 0);
    }
    large_async_16();
    for (int i = 0; i < 16; i++) {
        MUST(MemcpyDtoH(pinned, device + i * 64UL * MIB, 64 * MIB));
        CHECK(pread(fd, want, 64 * MIB, (off_t)i * 64 * MIB) == 64 * MIB);
        CHECK(memcmp(pinned, want, 64 * MIB) == 0);
    }
    free(want);
    printf("verified: 1 GiB by calls and 1 GiB on 16 streams are what the file holds\n");
}

#define COMPARE(title, ...)                                                                                            \
    do {                                                                                                               \
        const Way ways_[] = {__VA_ARGS__};                                                                             \
        compare(title, ways_, (int)(sizeof ways_ / sizeof *ways_));                                                    \
    } while (0)

static void large_on_streams(void)
{
    const size_t gib = 1024UL * MIB;
    COMPARE("1 GiB, cached", {"hipFileRead", large_sync, 1, gib}, {"hipFileReadAsync, one stream", large_async, 1, gib},
            {"hipFileReadAsync, 4 streams of 256 MiB", large_async_4, 4, gib},
            {"hipFileReadAsync, 16 streams of 64 MiB", large_async_16, 16, gib});
}

int main(int argc, char **argv)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context;
    struct stat status;
    if (argc == 2 && strcmp(argv[1], "--fill-memory") == 0)
        return fill_memory();
    const int streams_only = argc == 3 && strcmp(argv[1], "--streams") == 0;
    if (streams_only)
        argv++;
    if (argc < 2 || (fd = open(argv[1], O_RDONLY)) < 0 || fstat(fd, &status) || status.st_size < 1024L * MIB) {
        fprintf(stderr, "usage: %s [--streams] FILE, of 1 GiB or more; or --fill-memory\n", argv[0]);
        return 2;
    }
    if (!cuda) {
        printf("SKIP: figures: %s\n", dlerror());
        return 0;
    }
    for (size_t i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS; i++)
        if (!(*(void **)SYMBOLS[i].to = dlsym(cuda, SYMBOLS[i].name))) {
            fprintf(stderr, "libcuda has no %s\n", SYMBOLS[i].name);
            return 1;
        }
    char name[64] = "";
    int version = 0;
    *(void **)&MemcpyBatchAsync = dlsym(cuda, "cuMemcpyBatchAsync_v2");
    MUST(Init(0));
    MUST(DriverGetVersion(&version));
    MUST(DeviceGetName(name, sizeof name, 0));
    printf("%s, CUDA driver API %d.%d\n", name, version / 1000, version % 1000 / 10);
    MUST(PrimaryCtxRetain(&context, 0));
    MUST(CtxSetCurrent(context));
    MUST(MemAlloc(&device, 1024UL * MIB));
    void *memory;
    MUST(MemHostAlloc(&memory, 256 * MIB, 1));
    pinned = memory;
    memset(pinned, 1, 256 * MIB);
    plain = malloc(MIB);
    CHECK(plain != NULL);
    memset(plain, 1, MIB);
    for (int i = 0; i < 64; i++)
        MUST(StreamCreate(&streams[i], 1));
    for (off_t at = 0; at < 1024L * MIB; at += 256 * MIB)
        CHECK(pread(fd, pinned, 256 * MIB, at) == 256 * MIB);

    OK(hipFileDriverOpen());
    hipFileDescr_t description = {.type = hipFileHandleTypeOpaqueFD, .handle.fd = fd};
    OK(hipFileHandleRegister(&file, &description));
    OK(hipFileBufRegister((void *)(uintptr_t)device, 1024UL * MIB, 0));
    OK(hipFileBatchIOSetUp(&batch, 128));
    for (int i = 0; i < 64; i++)
        OK(hipFileStreamRegister((hipStream_t)streams[i], 0xf));
    verify();

    const size_t gib = 1024UL * MIB;
    if (streams_only) {
        large_on_streams();
        return 0;
    }
    COMPARE("the link, 256 MiB of pinned memory", {"to the GPU", link_up, 4, gib}, {"from the GPU", link_down, 4, gib});
    COMPARE("one copy of 4 KiB to the GPU", {"cuMemcpyHtoD, pinned", copy_pinned, 1000, 4096000},
            {"cuMemcpyHtoD, plain memory", copy_plain, 1000, 4096000},
            {"async on the default stream, waited for", copy_default_stream, 1000, 4096000},
            {"async on a stream of its own, waited for", copy_own_stream, 1000, 4096000});
    COMPARE("4 KiB, cached, one call", {"pread + cuMemcpyHtoD, plain memory", small_plain, 1000, 4096000},
            {"pread + cuMemcpyHtoD, pinned", small_pinned, 1000, 4096000},
            {"pread + cuMemcpyHtoD, plain, waited for", small_plain_done, 1000, 4096000},
            {"pread + copy queued from plain, waited for", small_plain_queued, 1000, 4096000},
            {"pread + copy queued from pinned, waited for", small_pinned_queued, 1000, 4096000},
            {"hipFileRead", small_hipfile, 1000, 4096000});
    COMPARE("1 MiB, cached, one call", {"pread + cuMemcpyHtoD, pinned", mib_plain, 256, 256 * MIB},
            {"hipFileRead", mib_calls, 256, 256 * MIB});
    COMPARE("128 x 4 KiB, cached", {"one by one: pread + cuMemcpyHtoD", one_by_one, 1024, 4194304},
            {"by hand: reads and copies queued, one wait", by_hand, 1024, 4194304},
            {"hipFileBatchIOSubmit", batch_of_128, 1024, 4194304},
            {"the same, to scattered places", scattered_batch, 1024, 4194304},
            {"by hand: 64 copies by one call", MemcpyBatchAsync ? by_hand_at_once : by_hand, 1024, 4194304});
    COMPARE("4 KiB, cached, on streams", {"hipFileReadAsync, one stream, in order", async_1, 256, 1048576},
            {"the same, each waited for", async_1_waited, 256, 1048576}, {"16 streams", async_16, 1024, 4194304},
            {"64 streams", async_64, 1024, 4194304});
    large_on_streams();
    before = drop;
    COMPARE("4 KiB, not cached", {"hipFileReadAsync, one stream", cold_4k_1, 256, MIB},
            {"16 streams", cold_4k_16, 256, MIB}, {"hipFileRead", cold_calls, 256, MIB});
    COMPARE("1 MiB, not cached", {"hipFileReadAsync, one stream", cold_mib_1, 128, 128 * MIB},
            {"16 streams", cold_mib_16, 128, 128 * MIB});
    return 0;
}
