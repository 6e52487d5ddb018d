/*
 * exit MODE [HIP FUNCTIONS]: a process that ends with everything left open (behaviour 46): a driver count, a file, a buffer, a thread
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
 *   trap_thread the same by exit() in another thread, whose own variables end then
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

#if defined(__x86_64__)
static const unsigned char BREAKPOINT[] = { 0xcc };
#elif defined(__aarch64__)
static const unsigned char BREAKPOINT[] = { 0x00, 0x00, 0x20, 0xd4 };
#else
#error "what is a breakpoint here?"
#endif

/* Puts a breakpoint instruction at the start of each function of HIP that the emulation has, of those named on the command
 * line, separated by blanks. */
static void trap_hip(char *names)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    int trapped = 0;
    for (char *rest = names, *name; (name = strtok_r(rest, " ", &rest)) != NULL; trapped++) {
        unsigned char *code = (unsigned char *)dlsym(RTLD_DEFAULT, name);
        if (code == NULL) {
            /* Of another runtime's table, or without a name of its own. */
            trapped--;
            continue;
        }
        void *start = (void *)((uintptr_t)code & ~(page - 1));
        CHECK_EQ(mprotect(start, page, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
        memcpy(code, BREAKPOINT, sizeof BREAKPOINT);
        __builtin___clear_cache((char *)code, (char *)code + sizeof BREAKPOINT);
    }
    if (trapped < 60)
        FAIL("only %d functions of HIP have a trap", trapped);
}

/* Every kind of object was used, and is left: an operation on a stream, a batch, another thread's. */
static void *use_everything(void *nothing)
{
    static size_t size = LEN;
    static hoff_t zero = 0;
    static ssize_t bytes = -1;
    static hipStream_t stream;
    CHECK_HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    CHECK_OK(hipFileStreamRegister(stream, 0));
    CHECK_OK(hipFileReadAsync(file, device, &size, &zero, &zero, &bytes, stream));
    CHECK_HIP(hipStreamSynchronize(stream));
    CHECK_IO(bytes, LEN);
    static hipFileBatchHandle_t batch;
    static hipFileIOParams_t entry;
    hipFileIOEvents_t event;
    unsigned nr = 1;
    entry.mode = hipFileBatch;
    entry.fh = file;
    entry.opcode = hipFileBatchRead;
    entry.u.batch.devPtr_base = device;
    entry.u.batch.size = LEN;
    CHECK_OK(hipFileBatchIOSetUp(&batch, 4));
    CHECK_OK(hipFileBatchIOSubmit(batch, 1, &entry, 0));
    CHECK_OK(hipFileBatchIOGetStatus(batch, 1, &nr, &event, NULL));
    CHECK_EQ(event.status, hipFileComplete);
    CHECK_IO(hipFileRead(file, device, 4096, 0, 0), 4096);
    return nothing;
}

static char *hip_functions;

/* Ends the process from a thread whose own variables the library has used. */
static void *leave_trapped(void *nothing)
{
    (void)use_everything(nothing);
    trap_hip(hip_functions);
    exit(STATUS);
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
    const char *mode = argc >= 2 ? argv[1] : "";
    if (argc == 3)
        hip_functions = argv[2];
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
        CHECK(hip_functions != NULL);
        pthread_t other;
        if (strcmp(mode, "trap_thread") == 0) {
            CHECK_EQ(pthread_create(&other, NULL, leave_trapped, NULL), 0);
            pthread_join(other, NULL);
        }
        (void)use_everything(NULL);
        CHECK_EQ(pthread_create(&other, NULL, use_everything, NULL), 0);
        CHECK_EQ(pthread_join(other, NULL), 0);
        trap_hip(hip_functions);
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
