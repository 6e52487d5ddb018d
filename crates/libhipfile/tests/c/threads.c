/*
 * threads MODE: many threads at once. Each mode is a process of its own, because the first call of a process is
 * what most of them are about.
 *
 *   files     64 threads make their first call, each registers a file
 *   buffers   64 threads make their first call, each registers a buffer
 *   mixed     64 threads make their first call: files, buffers and opens mixed
 *   fresh     driver opened by a thread that never called HIP; I/O from fresh threads
 *   counting  8 threads open and close at random
 *   closing   the driver is closed under threads that do I/O
 *   same      all threads register the same descriptor and the same pointer
 *   disjoint  threads write neighbouring odd ranges of one file
 */
#include <pthread.h>
#include <stdatomic.h>

#include "device.h"

enum { MAX_THREADS = 64, CONTENDERS = 24 };

typedef void (*Body)(int index);

static pthread_barrier_t start;
static Body body;

static void *thread_main(void *index)
{
    pthread_barrier_wait(&start);
    body((int)(intptr_t)index);
    return NULL;
}

/* Runs `what` on `count` threads that begin at the same moment. */
static void on_threads(int count, Body what)
{
    pthread_t threads[MAX_THREADS];
    body = what;
    CHECK_EQ(pthread_barrier_init(&start, NULL, (unsigned)count), 0);
    for (int i = 0; i < count; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, thread_main, (void *)(intptr_t)i), 0);
    for (int i = 0; i < count; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(pthread_barrier_destroy(&start), 0);
}

static char *device;
static int fds[MAX_THREADS];
static hipFileHandle_t handles[MAX_THREADS];
static atomic_int successes, refusals;

static void register_file(int i)
{
    handles[i] = register_fd(fds[i]);
}

static void register_buffer(int i)
{
    CHECK_OK(hipFileBufRegister(device + i * 4096, 4096, 0));
}

static void open_driver(int i)
{
    (void)i;
    CHECK_OK(hipFileDriverOpen());
}

static void register_or_open(int i)
{
    const Body bodies[] = { register_file, register_buffer, open_driver };
    bodies[i % 3](i);
}

static void read_own(int i)
{
    unsigned char expected[4096];
    pattern(expected, sizeof expected, (uint64_t)i);
    for (int round = 0; round < 4; round++) {
        dev_poison(device + i * 4096, 4096);
        CHECK_IO(hipFileRead(handles[i], device + i * 4096, 4096, 0, 0), 4096);
        CHECK_DEVICE(device + i * 4096, expected, 4096);
        CHECK_IO(hipFileWrite(handles[i], device + i * 4096, 1001, 4096, 0), 1001);
    }
}

static void open_files(void)
{
    for (int i = 0; i < MAX_THREADS; i++) {
        char name[16];
        snprintf(name, sizeof name, "file%d", i);
        make_file(name, 4096, (uint64_t)i);
        fds[i] = open_file(name, O_RDWR);
    }
}

static void behaviour_49_first_calls(Body what, int opens)
{
    device = dev_alloc(MAX_THREADS * 4096);
    open_files();
    on_threads(MAX_THREADS, what);

    /* One implicit opening at most, and none if an explicit one came first. */
    const int64_t count = hipFileUseCount();
    if (opens == 0)
        CHECK_EQ(count, 1);
    else
        CHECK(count == opens || count == opens + 1);
    for (int i = 0; i < MAX_THREADS; i++)
        if (handles[i] == NULL)
            register_file(i);
    on_threads(MAX_THREADS, read_own);
    for (int64_t i = 0; i < count; i++)
        CHECK_OK(hipFileDriverClose());
    CHECK_CODE(hipFileDriverClose(), hipFileDriverNotInitialized);
}

static void behaviour_44_fresh_threads(void)
{
    on_threads(1, open_driver);
    open_files();
    device = dev_alloc(MAX_THREADS * 4096);
    for (int i = 0; i < MAX_THREADS; i++)
        register_file(i);
    on_threads(32, read_own);
    CHECK_OK(hipFileBufRegister(device, MAX_THREADS * 4096, 0));
    on_threads(MAX_THREADS, read_own);
}

static atomic_int balance;

/* Never closes more often than it has opened, so no close may ever be refused. */
static void open_and_close(int i)
{
    unsigned state = (unsigned)i * 7919u + 1;
    int own = 0;
    for (int step = 0; step < 2000; step++) {
        state = state * 1103515245u + 12345u;
        if (own == 0 || (state >> 16) % 2 == 0) {
            CHECK_OK(hipFileDriverOpen());
            own++;
        } else {
            CHECK(hipFileUseCount() >= own);
            CHECK_OK(hipFileDriverClose());
            own--;
        }
    }
    atomic_fetch_add(&balance, own);
}

static void behaviour_48_counting(void)
{
    on_threads(8, open_and_close);
    CHECK_EQ(hipFileUseCount(), atomic_load(&balance));
}

static atomic_bool stop;
static _Atomic(hipFileHandle_t) shared;

static void read_until_stopped(int i)
{
    if (i == 0) {
        for (int round = 0; round < 60; round++) {
            const int before = atomic_load(&successes);
            CHECK_OK(hipFileDriverOpen());
            atomic_store(&shared, register_fd(fds[0]));
            CHECK_OK(hipFileBufRegister(device, 4096, 0));
            /* Close in the middle of things, not before they have begun. */
            while (atomic_load(&successes) < before + round % 7)
                usleep(50);
            if (round % 3 == 0) {
                const hipFileError_t status = hipFileBufDeregister(device);
                CHECK(status.err == hipFileSuccess || status.err == hipFileInternalError /* in use */);
            }
            CHECK_OK(hipFileDriverClose());
        }
        atomic_store(&stop, true);
        return;
    }
    while (!atomic_load(&stop)) {
        const hipFileHandle_t handle = atomic_load(&shared);
        errno = 0;
        const ssize_t got = i % 2 == 0 ? hipFileRead(handle, device, 4096, 0, 0)
                                       : hipFileWrite(handle, device + i * 4096, 4096, i * 4096, 0);
        if (got == 4096)
            atomic_fetch_add(&successes, 1);
        else if (got == -hipFileHandleNotRegistered || (got == -1 && errno == EINVAL))
            atomic_fetch_add(&refusals, 1), usleep(50);
        else
            FAIL("I/O beside a closing driver returns %zd, errno %d", got, errno);
    }
}

static void behaviour_49_closing(void)
{
    device = dev_alloc(MAX_THREADS * 4096);
    open_files();
    on_threads(5, read_until_stopped);
    CHECK_EQ(hipFileUseCount(), 0);
    CHECK(successes > 0);
    printf("%d transfers, %d refusals\n", successes, refusals);
}

static void register_same_file(int i)
{
    (void)i;
    const hipFileError_t status = try_register_fd(fds[0]);
    if (status.err == hipFileSuccess)
        atomic_fetch_add(&successes, 1);
    else if (status.err == hipFileHandleAlreadyRegistered)
        atomic_fetch_add(&refusals, 1);
    else
        FAIL("registering at the same time gives %d", (int)status.err);
}

static void register_same_buffer(int i)
{
    (void)i;
    const hipFileError_t status = hipFileBufRegister(device, 4096, 0);
    if (status.err == hipFileSuccess)
        atomic_fetch_add(&successes, 1);
    else if (status.err == hipFileMemoryAlreadyRegistered)
        atomic_fetch_add(&refusals, 1);
    else
        FAIL("registering at the same time gives %d", (int)status.err);
}

static void deregister_same_buffer(int i)
{
    (void)i;
    const hipFileError_t status = hipFileBufDeregister(device);
    if (status.err == hipFileSuccess)
        atomic_fetch_add(&successes, 1);
    else if (status.err == hipFileMemoryNotRegistered)
        atomic_fetch_add(&refusals, 1);
    else
        FAIL("deregistering at the same time gives %d", (int)status.err);
}

/* Exactly one of the threads may win. */
static void one_winner(Body what)
{
    atomic_store(&successes, 0);
    atomic_store(&refusals, 0);
    on_threads(CONTENDERS, what);
    CHECK_EQ(successes, 1);
    CHECK_EQ(refusals, CONTENDERS - 1);
}

static void same(void)
{
    device = dev_alloc(4096);
    open_files();
    one_winner(register_same_file);
    for (int round = 0; round < 3; round++) {
        one_winner(register_same_buffer);
        one_winner(deregister_same_buffer);
    }
    CHECK_EQ(hipFileUseCount(), 1);
}

enum { SLICE = 3000 };

static int rounds = 200;

static void write_slice(int i)
{
    unsigned char bytes[SLICE];
    for (int round = 0; round < rounds; round++) {
        pattern(bytes, SLICE, (uint64_t)(i * rounds + round));
        dev_put(device + i * SLICE, bytes, SLICE);
        CHECK_IO(hipFileWrite(handles[0], device, SLICE, i * SLICE, i * SLICE), SLICE);
        unsigned char now[SLICE];
        CHECK_EQ(pread(fds[0], now, SLICE, i * SLICE), SLICE);
        CHECK_BYTES(now, bytes, SLICE);
    }
}

/* Each writes its own bytes, several in one block, and always finds them again. */
static void behaviour_68_disjoint(int threads)
{
    device = dev_alloc(8 * SLICE);
    open_files();
    handles[0] = register_fd(fds[0]);
    on_threads(threads, write_slice);
    for (int i = 0; i < threads; i++) {
        unsigned char bytes[SLICE], now[SLICE];
        pattern(bytes, SLICE, (uint64_t)(i * rounds + rounds - 1));
        CHECK_EQ(pread(fds[0], now, SLICE, i * SLICE), SLICE);
        CHECK_BYTES(now, bytes, SLICE);
    }
}

static void behaviour_68_disjoint_long(void)
{
    rounds = 10000;
    behaviour_68_disjoint(2);
}

int main(int argc, char **argv)
{
    const char *mode = argc == 2 ? argv[1] : "";
    if (strcmp(mode, "files") == 0)
        behaviour_49_first_calls(register_file, 0);
    else if (strcmp(mode, "buffers") == 0)
        behaviour_49_first_calls(register_buffer, 0);
    else if (strcmp(mode, "mixed") == 0)
        behaviour_49_first_calls(register_or_open, MAX_THREADS / 3);
    else if (strcmp(mode, "fresh") == 0)
        behaviour_44_fresh_threads();
    else if (strcmp(mode, "counting") == 0)
        behaviour_48_counting();
    else if (strcmp(mode, "closing") == 0)
        behaviour_49_closing();
    else if (strcmp(mode, "same") == 0)
        same();
    else if (strcmp(mode, "disjoint") == 0)
        behaviour_68_disjoint(8);
    else if (strcmp(mode, "disjoint_long") == 0)
        behaviour_68_disjoint_long();
    else
        FAIL("unknown mode \"%s\"", mode);
    printf("OK threads %s\n", mode);
    return 0;
}
