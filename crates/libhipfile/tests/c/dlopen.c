/*
 * dlopen MODE: programs that are not linked with libhipfile but load it by name, as frameworks and profilers do.
 *
 *   use    load with RTLD_LOCAL, do a round trip through device memory
 *   cycle  load, use and unload 100 times (behaviour 53): no descriptor, thread or mapping piles up
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

static void cycle(void)
{
    void *hip = load("libamdhip64.so");
    int fds = 0, threads = 0, maps = 0;
    for (int i = 0; i < 100; i++) {
        void *hipfile = load("libhipfile.so");
        look_up(hipfile, hip);
        round_trip();
        CHECK_EQ(dlclose(hipfile), 0);
        if (i == 9) {
            fds = count_entries("/proc/self/fd");
            threads = count_entries("/proc/self/task");
            maps = mappings();
        }
    }
    CHECK_EQ(count_entries("/proc/self/fd"), fds);
    CHECK_EQ(count_entries("/proc/self/task"), threads);
    /* The allocator may have moved its borders a little. */
    if (mappings() > maps + 8)
        FAIL("%d mappings after 10 rounds, %d after 100", maps, mappings());
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
