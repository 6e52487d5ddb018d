/*
 * copies: ways in which the library comes into a process more than once, or before everything else.
 *
 *   two      a second copy under another name, as a package that brings its own does; both work on one file
 *   global   RTLD_GLOBAL: the names are everybody's; loaded again RTLD_LOCAL it is the same library
 *   preload  (with LD_PRELOAD) a program that never heard of the library
 */
#include <dlfcn.h>

#include "device.h"

enum { LEN = 300000 };

#define POINTER(name) __typeof__(&name) name
struct Copy {
    POINTER(hipFileDriverOpen);
    POINTER(hipFileDriverClose);
    POINTER(hipFileHandleRegister);
    POINTER(hipFileHandleDeregister);
    POINTER(hipFileRead);
    POINTER(hipFileWrite);
    POINTER(hipFileUseCount);
};

static void *load(const char *name, int flags)
{
    void *library = dlopen(name, RTLD_NOW | flags);
    if (library == NULL)
        FAIL("%s", dlerror());
    return library;
}

#define LOOK_UP(name)                                                                                                  \
    do {                                                                                                               \
        *(void **)&copy.name = dlsym(library, #name);                                                                  \
        if (copy.name == NULL)                                                                                         \
            FAIL("%s", dlerror());                                                                                     \
    } while (0)

static struct Copy look_up(void *library)
{
    struct Copy copy;
    LOOK_UP(hipFileDriverOpen);
    LOOK_UP(hipFileDriverClose);
    LOOK_UP(hipFileHandleRegister);
    LOOK_UP(hipFileHandleDeregister);
    LOOK_UP(hipFileRead);
    LOOK_UP(hipFileWrite);
    LOOK_UP(hipFileUseCount);
    return copy;
}

/* Where the loader found it. */
static void copy_library(const char *to)
{
    void *library = load("libhipfile.so.0", RTLD_LOCAL);
    Dl_info info;
    CHECK(dladdr(dlsym(library, "hipFileRead"), &info) != 0);
    char command[8192];
    snprintf(command, sizeof command, "cp '%s' '%s'", info.dli_fname, to);
    CHECK_EQ(system(command), 0);
}

static void *hip;
static __typeof__(&hipMalloc) p_hipMalloc;
static __typeof__(&hipMemcpy) p_hipMemcpy;
static __typeof__(&hipFree) p_hipFree;

static void round_trip(const struct Copy *writer, const struct Copy *reader)
{
    unsigned char *bytes = host_alloc(LEN), *now = host_alloc(LEN);
    void *from = NULL, *to = NULL;
    pattern(bytes, LEN, 5);
    CHECK_EQ(p_hipMalloc(&from, LEN), hipSuccess);
    CHECK_EQ(p_hipMalloc(&to, LEN), hipSuccess);
    CHECK_EQ(p_hipMemcpy(from, bytes, LEN, hipMemcpyHostToDevice), hipSuccess);
    const int fd = open_file("data", O_RDWR | O_CREAT | O_TRUNC);
    const int other = open_file("data", O_RDWR);
    hipFileDescr_t descr = descr_of(fd), second = descr_of(other);
    hipFileHandle_t out = NULL, in = NULL;
    CHECK_OK(writer->hipFileDriverOpen());
    CHECK_OK(reader->hipFileDriverOpen());
    CHECK_OK(writer->hipFileHandleRegister(&out, &descr));
    CHECK_OK(reader->hipFileHandleRegister(&in, &second));
    CHECK_IO(writer->hipFileWrite(out, from, LEN, 0, 0), LEN);
    CHECK_IO(reader->hipFileRead(in, to, LEN, 0, 0), LEN);
    CHECK_EQ(p_hipMemcpy(now, to, LEN, hipMemcpyDeviceToHost), hipSuccess);
    CHECK_BYTES(now, bytes, LEN);
    writer->hipFileHandleDeregister(out);
    reader->hipFileHandleDeregister(in);
    CHECK_OK(writer->hipFileDriverClose());
    CHECK_OK(reader->hipFileDriverClose());
    CHECK_EQ(writer->hipFileUseCount(), 0);
    CHECK_EQ(reader->hipFileUseCount(), 0);
    CHECK_EQ(close(fd), 0);
    CHECK_EQ(close(other), 0);
    CHECK_EQ(p_hipFree(from), hipSuccess);
    CHECK_EQ(p_hipFree(to), hipSuccess);
    free(bytes);
    free(now);
}

int main(int argc, char **argv)
{
    const char *mode = argc == 2 ? argv[1] : "";
    if (strcmp(mode, "preload") == 0) {
        CHECK(dlsym(RTLD_DEFAULT, "hipFileRead") != NULL);
        printf("OK copies preload\n");
        return 0;
    }
    hip = load("libamdhip64.so", RTLD_LOCAL);
    *(void **)&p_hipMalloc = dlsym(hip, "hipMalloc");
    *(void **)&p_hipMemcpy = dlsym(hip, "hipMemcpy");
    *(void **)&p_hipFree = dlsym(hip, "hipFree");
    if (strcmp(mode, "two") == 0) {
        copy_library("libother.so");
        const struct Copy one = look_up(load("libhipfile.so", RTLD_LOCAL));
        const struct Copy other = look_up(load("./libother.so", RTLD_LOCAL));
        CHECK(one.hipFileRead != other.hipFileRead);
        for (int i = 0; i < 10; i++) {
            round_trip(&one, &other);
            round_trip(&other, &one);
        }
    } else if (strcmp(mode, "global") == 0) {
        const struct Copy one = look_up(load("libhipfile.so", RTLD_GLOBAL));
        CHECK(dlsym(RTLD_DEFAULT, "hipFileRead") == *(void **)&one.hipFileRead);
        const struct Copy again = look_up(load("libhipfile.so.0", RTLD_LOCAL));
        CHECK(again.hipFileRead == one.hipFileRead);
        round_trip(&one, &again);
    } else {
        FAIL("unknown mode \"%s\"", mode);
    }
    printf("OK copies %s\n", mode);
    return 0;
}
