/*
 * exit MODE: a process that ends with everything left open (behaviour 46): a driver count, a file, a buffer, a thread
 * that is in the middle of I/O. It must end at once, with the status asked for and without a word on stderr.
 *
 *   main        returns from main
 *   exit        exit() in another thread
 *   _exit       _exit()
 *   quick_exit  quick_exit()
 *   atexit      uses the library from an atexit handler
 *   held        returns from main while streams with operations are held for ever
 *   streams     returns from main while operations run on streams
 *   trap        returns from main with a trap on every function of HIP: a destructor that called one would die of it
 *   trap_works  calls one, to show that
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>

#include "device.h"

static char *device;
static hipFileHandle_t file;

/* Status 0 means too much for this test: a crash handler could end with it too. */
enum { STATUS = 42, LEN = 1 << 20 };

static void *keep_reading(void *nothing)
{
    for (;;)
        if (hipFileRead(file, device, LEN, 0, 0) < 0)
            break;
    return nothing;
}

static void *leave(void *nothing)
{
    (void)nothing;
    exit(STATUS);
}

/* What the library calls of HIP, and what a tidy destructor would be tempted to call. */
static const char *const HIP_FUNCTIONS[] = {
    "hipInit", "hipRuntimeGetVersion", "hipGetDeviceCount", "hipGetDevice", "hipSetDevice", "hipDeviceGetAttribute",
    "hipDeviceSynchronize", "hipGetLastError", "hipPointerGetAttributes", "hipMemGetAddressRange", "hipMalloc", "hipFree",
    "hipHostMalloc", "hipHostFree", "hipHostRegister", "hipHostUnregister", "hipMemcpy", "hipMemcpyAsync", "hipMemset",
    "hipStreamCreateWithFlags", "hipStreamDestroy", "hipStreamSynchronize", "hipStreamQuery", "hipEventDestroy",
    "hipEventSynchronize", "hipLaunchHostFunc", "hipGetProcAddress", "hipModuleUnload",
};

#if defined(__x86_64__)
static const unsigned char BREAKPOINT[] = { 0xcc };
#elif defined(__aarch64__)
static const unsigned char BREAKPOINT[] = { 0x00, 0x00, 0x20, 0xd4 };
#else
#error "what is a breakpoint here?"
#endif

/* Puts a breakpoint instruction at the start of each. */
static void trap_hip(void)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < sizeof HIP_FUNCTIONS / sizeof HIP_FUNCTIONS[0]; i++) {
        unsigned char *code = (unsigned char *)dlsym(RTLD_DEFAULT, HIP_FUNCTIONS[i]);
        if (code == NULL)
            FAIL("%s", dlerror());
        void *start = (void *)((uintptr_t)code & ~(page - 1));
        CHECK_EQ(mprotect(start, page, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
        memcpy(code, BREAKPOINT, sizeof BREAKPOINT);
        __builtin___clear_cache((char *)code, (char *)code + sizeof BREAKPOINT);
    }
}

enum { STREAMS = 8, EACH = 16 };

/* Operations on streams that nobody waits for. */
static void queue_operations(bool held)
{
    static size_t size = LEN;
    static hoff_t zero = 0;
    static ssize_t bytes[STREAMS * EACH];
    uint64_t *word = NULL;
    CHECK_HIP(hipHostMalloc((void **)&word, 64, hipHostMallocMapped));
    *word = 0;
    hipStream_t streams[STREAMS];
    /* All first: nothing can be made ready while a stream is held. */
    for (int s = 0; s < STREAMS; s++) {
        CHECK_HIP(hipStreamCreateWithFlags(&streams[s], hipStreamNonBlocking));
        CHECK_OK(hipFileStreamRegister(streams[s], 0));
    }
    for (int i = 0; i < STREAMS * EACH; i++) {
        if (held && i < STREAMS)
            CHECK_HIP(hipStreamWaitValue64(streams[i], word, 1, hipStreamWaitValueGte, UINT64_MAX));
        if (i % 2 == 0)
            CHECK_OK(hipFileReadAsync(file, device, &size, &zero, &zero, &bytes[i], streams[i % STREAMS]));
        else
            CHECK_OK(hipFileWriteAsync(file, device, &size, &zero, &zero, &bytes[i], streams[i % STREAMS]));
    }
}

static void last_use(void)
{
    if (hipFileRead(file, device, 4096, 0, 0) != 4096)
        _exit(1);
}

int main(int argc, char **argv)
{
    const char *mode = argc == 2 ? argv[1] : "";
    if (strcmp(mode, "atexit") == 0)
        CHECK_EQ(atexit(last_use), 0);
    device = dev_alloc(2 * LEN);
    make_file("data", LEN, 1);
    CHECK_OK(hipFileDriverOpen());
    file = register_fd(open_file("data", O_RDWR));
    CHECK_OK(hipFileBufRegister(device, LEN, 0));
    CHECK_IO(hipFileRead(file, device, LEN, 0, 0), LEN);
    CHECK_IO(hipFileWrite(file, device, LEN, 0, 0), LEN);

    if (strncmp(mode, "trap", 4) == 0) {
        printf("OK exit %s\n", mode);
        fflush(stdout);
        trap_hip();
        if (strcmp(mode, "trap_works") == 0)
            hipDeviceSynchronize();
        return STATUS;
    }

    if (strcmp(mode, "held") == 0 || strcmp(mode, "streams") == 0) {
        queue_operations(strcmp(mode, "held") == 0);
        printf("OK exit %s\n", mode);
        return STATUS;
    }

    pthread_t reader, leaver;
    CHECK_EQ(pthread_create(&reader, NULL, keep_reading, NULL), 0);
    usleep(20000);
    printf("OK exit %s\n", mode);
    fflush(stdout);

    if (strcmp(mode, "main") == 0 || strcmp(mode, "atexit") == 0)
        return STATUS;
    if (strcmp(mode, "_exit") == 0)
        _exit(STATUS);
    if (strcmp(mode, "quick_exit") == 0)
        quick_exit(STATUS);
    if (strcmp(mode, "exit") == 0) {
        CHECK_EQ(pthread_create(&leaver, NULL, leave, NULL), 0);
        pthread_join(reader, NULL);
    }
    FAIL("unknown mode \"%s\"", mode);
}
