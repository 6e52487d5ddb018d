/*
 * dlopen MODE: programs that are not linked with libhipfile but load it by name, as frameworks and profilers do.
 *
 *   use    load with RTLD_LOCAL, do a round trip through device memory
 *   cycle  load, use and unload 100 times (behaviour 53): no descriptor, thread or mapping piles up. In every other round the
 *          driver stays open with a batch in flight, so that threads of the library's run on while it is not loaded
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"

/* One pointer for each function that the program uses, with the type that the header gives it. */
#define POINTER(name) static __typeof__(&name) p_##name
POINTER(hipFileGetVersion);
POINTER(hipFileGetOpErrorString);
POINTER(hipFileUseCount);
POINTER(hipFileDriverOpen);
POINTER(hipFileDriverClose);
POINTER(hipFileHandleRegister);
POINTER(hipFileHandleDeregister);
POINTER(hipFileBufRegister);
POINTER(hipFileBufDeregister);
POINTER(hipFileRead);
POINTER(hipFileWrite);
POINTER(hipFileBatchIOSetUp);
POINTER(hipFileBatchIOSubmit);
POINTER(hipFileBatchIOGetStatus);
POINTER(hipFileBatchIODestroy);
POINTER(hipMalloc);
POINTER(hipFree);
POINTER(hipMemcpy);
POINTER(hipMemset);

#define LOOK_UP(library, name)                                                                                         \
    do {                                                                                                               \
        *(void **)&p_##name = dlsym(library, #name);                                                                   \
        if (p_##name == NULL)                                                                                          \
            FAIL("%s", dlerror());                                                                                     \
    } while (0)

static void *load(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        FAIL("%s", dlerror());
    return library;
}

static void look_up(void *hipfile, void *hip)
{
    LOOK_UP(hipfile, hipFileGetVersion);
    LOOK_UP(hipfile, hipFileGetOpErrorString);
    LOOK_UP(hipfile, hipFileUseCount);
    LOOK_UP(hipfile, hipFileDriverOpen);
    LOOK_UP(hipfile, hipFileDriverClose);
    LOOK_UP(hipfile, hipFileHandleRegister);
    LOOK_UP(hipfile, hipFileHandleDeregister);
    LOOK_UP(hipfile, hipFileBufRegister);
    LOOK_UP(hipfile, hipFileBufDeregister);
    LOOK_UP(hipfile, hipFileRead);
    LOOK_UP(hipfile, hipFileWrite);
    LOOK_UP(hipfile, hipFileBatchIOSetUp);
    LOOK_UP(hipfile, hipFileBatchIOSubmit);
    LOOK_UP(hipfile, hipFileBatchIOGetStatus);
    LOOK_UP(hipfile, hipFileBatchIODestroy);
    LOOK_UP(hip, hipMalloc);
    LOOK_UP(hip, hipFree);
    LOOK_UP(hip, hipMemcpy);
    LOOK_UP(hip, hipMemset);
}

static void round_trip(void)
{
    enum { LEN = 70000 };
    unsigned char bytes[LEN], now[LEN];
    void *device = NULL;
    CHECK_EQ(p_hipMalloc(&device, LEN), hipSuccess);
    pattern(bytes, LEN, 1);
    CHECK_EQ(p_hipMemcpy(device, bytes, LEN, hipMemcpyHostToDevice), hipSuccess);

    const int fd = open_file("data", O_RDWR | O_CREAT | O_TRUNC);
    hipFileDescr_t descr = descr_of(fd);
    hipFileHandle_t file = NULL;
    CHECK_OK(p_hipFileDriverOpen());
    CHECK_OK(p_hipFileHandleRegister(&file, &descr));
    CHECK_OK(p_hipFileBufRegister(device, LEN, 0));
    CHECK_IO(p_hipFileWrite(file, device, LEN, 0, 0), LEN);
    CHECK_EQ(p_hipMemset(device, 0, LEN), hipSuccess);
    CHECK_IO(p_hipFileRead(file, device, LEN, 0, 0), LEN);
    CHECK_EQ(p_hipMemcpy(now, device, LEN, hipMemcpyDeviceToHost), hipSuccess);
    CHECK_BYTES(now, bytes, LEN);
    CHECK_OK(p_hipFileBufDeregister(device));
    p_hipFileHandleDeregister(file);
    CHECK_OK(p_hipFileDriverClose());
    CHECK_EQ(p_hipFileUseCount(), 0);
    CHECK_EQ(close(fd), 0);
    CHECK_EQ(p_hipFree(device), hipSuccess);
}

static void use(void)
{
    look_up(load("libhipfile.so"), load("libamdhip64.so"));
    unsigned major = 9, minor = 9, patch = 9;
    CHECK_OK(p_hipFileGetVersion(&major, &minor, &patch));
    CHECK_EQ(major, HIPFILE_VERSION_MAJOR);
    CHECK_EQ(minor, HIPFILE_VERSION_MINOR);
    CHECK(p_hipFileGetOpErrorString(hipFileInvalidValue)[0] != '\0');
    round_trip();

    /* By soname it is the same library, not a second copy. */
    CHECK(dlsym(load("libhipfile.so.0"), "hipFileRead") == *(void **)&p_hipFileRead);
    /* RTLD_LOCAL: the names are nobody else's business. */
    CHECK(dlsym(RTLD_DEFAULT, "hipFileRead") == NULL);
}

enum { ENTRIES = 32, PIECE = 8192 };

/* What is in flight over an unloading. */
static struct {
    void *device;
    int fd;
    hipFileHandle_t file;
    hipFileBatchHandle_t batch;
} left;

static void leave_in_flight(void)
{
    static hipFileIOParams_t params[ENTRIES];
    left.fd = open_file("data", O_RDWR);
    hipFileDescr_t descr = descr_of(left.fd);
    CHECK_EQ(p_hipMalloc(&left.device, ENTRIES * PIECE), hipSuccess);
    CHECK_OK(p_hipFileDriverOpen());
    CHECK_OK(p_hipFileHandleRegister(&left.file, &descr));
    CHECK_OK(p_hipFileBatchIOSetUp(&left.batch, ENTRIES));
    memset(params, 0, sizeof params);
    for (int i = 0; i < ENTRIES; i++) {
        params[i].mode = hipFileBatch;
        params[i].fh = left.file;
        params[i].opcode = hipFileBatchRead;
        params[i].u.batch.devPtr_base = left.device;
        params[i].u.batch.devPtr_offset = i * PIECE;
        params[i].u.batch.file_offset = i * 1024;
        params[i].u.batch.size = PIECE;
    }
    CHECK_OK(p_hipFileBatchIOSubmit(left.batch, ENTRIES, params, 0));
}

static void take_up(void)
{
    for (unsigned got = 0; got < ENTRIES;) {
        hipFileIOEvents_t events[ENTRIES];
        unsigned nr = ENTRIES;
        CHECK_OK(p_hipFileBatchIOGetStatus(left.batch, 1, &nr, events, NULL));
        for (unsigned i = 0; i < nr; i++) {
            CHECK_EQ(events[i].status, hipFileComplete);
            CHECK_EQ(events[i].ret, PIECE);
        }
        got += nr;
    }
    p_hipFileBatchIODestroy(left.batch);
    p_hipFileHandleDeregister(left.file);
    CHECK_OK(p_hipFileDriverClose());
    CHECK_EQ(close(left.fd), 0);
    CHECK_EQ(p_hipFree(left.device), hipSuccess);
    left.device = NULL;
}

static int mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps != NULL);
    int lines = 0;
    for (int c; (c = getc(maps)) != EOF;)
        lines += c == '\n';
    fclose(maps);
    return lines;
}

/* How many entries a folder has once there were no fewer for a while: nobody waits for the threads of a driver that is closed. */
static int settled(const char *folder)
{
    int least = count_entries(folder);
    for (int same = 0; same < 100; same++) {
        usleep(2000);
        const int now = count_entries(folder);
        if (now < least) {
            least = now;
            same = 0;
        }
    }
    return least;
}

static void cycle(void)
{
    void *hip = load("libamdhip64.so");
    int fds = 0, threads = 0, maps = 0;
    for (int i = 0; i < 100; i++) {
        void *hipfile = load("libhipfile.so");
        look_up(hipfile, hip);
        if (left.device != NULL)
            take_up();
        round_trip();
        if (i % 2 == 0)
            leave_in_flight();
        CHECK_EQ(dlclose(hipfile), 0);
        if (i == 49) {
            threads = settled("/proc/self/task");
            fds = settled("/proc/self/fd");
            maps = mappings();
        }
    }
    for (int tries = 20000; count_entries("/proc/self/task") > threads || count_entries("/proc/self/fd") > fds; tries--) {
        if (tries == 0)
            FAIL("%d threads and %d descriptors after 50 rounds, %d and %d after 100", threads, fds,
                 count_entries("/proc/self/task"), count_entries("/proc/self/fd"));
        usleep(1000);
    }
    /* Stacks and heaps of threads that have ended are kept by the C library, up to a limit. */
    if (mappings() > maps + 24)
        FAIL("%d mappings after 50 rounds, %d after 100", maps, mappings());
}

int main(int argc, char **argv)
{
    const char *mode = argc == 2 ? argv[1] : "";
    if (strcmp(mode, "use") == 0)
        use();
    else if (strcmp(mode, "cycle") == 0)
        cycle();
    else
        FAIL("unknown mode \"%s\"", mode);
    printf("OK dlopen %s\n", mode);
    return 0;
}
