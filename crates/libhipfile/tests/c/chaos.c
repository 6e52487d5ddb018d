/*
 * chaos SEED MILLISECONDS END: eight threads call everything at once, with handles and numbers that are right, stale or made up,
 * on files that are cut, replaced under their descriptors and limited in size, while others fork, spawn and are interrupted by
 * a timer. What calls answer is not looked at: nothing may crash or hang, and the process ends with the status it chose.
 *
 *   END  main, _exit, quick_exit, exit (in another thread), signal (_exit in its handler)
 */
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include <hipfile_ext.h>

#include "device.h"

enum { FILES = 8, BUFFERS = 6, STREAMS = 4, BATCHES = 6, THREADS = 8, LATE = 512, LEN = 1 << 20, STATUS = 42, CHILD = 7 };

extern char **environ;
static int fds[FILES];
static _Atomic(hipFileHandle_t) files[FILES];
static char *buffers[BUFFERS];
static hipStream_t streams[STREAMS];
static _Atomic(hipFileBatchHandle_t) batches[BATCHES];
static atomic_long calls;
static __thread uint64_t random_state;

/* What operations on streams read and write when their stream gets there. */
static struct {
    size_t size;
    hoff_t file_offset, buffer_offset;
    ssize_t bytes;
} late[LATE];

static uint64_t any(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

static size_t any_size(void)
{
    const size_t sizes[] = { 0, 1, LEN, LEN + 1, SIZE_MAX, (size_t)1 << 63, 0x7ffff000, 4096 * any(256), any(4096) };
    return any(2) ? any(LEN) : sizes[any(sizeof sizes / sizeof sizes[0])];
}

static hoff_t any_offset(void)
{
    const hoff_t offsets[] = { -1, INT64_MAX, INT64_MAX - (hoff_t)any(10000), INT64_MIN, (hoff_t)1 << 40, 2 * LEN };
    switch (any(4)) {
    case 0:
        return offsets[any(sizeof offsets / sizeof offsets[0])];
    case 1:
        return 4096 * (hoff_t)any(512);
    default:
        return (hoff_t)any(2 * LEN);
    }
}

static void *made_up(void)
{
    return (void *)(uintptr_t)(any(2) ? any(100000) : any(UINT64_MAX));
}

static hipFileHandle_t any_file(void)
{
    return any(8) ? files[any(FILES)] : made_up();
}

static char *any_buffer(void)
{
    return any(8) ? buffers[any(BUFFERS)] + (any(4) ? 0 : any(5000)) : (char *)made_up();
}

static hipFileBatchHandle_t any_batch(void)
{
    return any(8) ? batches[any(BATCHES)] : made_up();
}

static void register_any(void)
{
    const uint64_t i = any(FILES);
    hipFileDescr_t descr = descr_of(fds[i]);
    hipFileHandle_t fresh = NULL;
    if (hipFileHandleRegister(&fresh, &descr).err == hipFileSuccess)
        files[i] = fresh;
}

static void new_batch(uint64_t i)
{
    hipFileBatchHandle_t fresh = NULL;
    hipFileBatchIODestroy(batches[i]);
    if (hipFileBatchIOSetUp(&fresh, any(8) ? 32 : (unsigned)any_size()).err == hipFileSuccess)
        batches[i] = fresh;
}

static void submit_batch(void)
{
    hipFileIOParams_t params[16];
    memset(params, 0, sizeof params);
    const unsigned count = (unsigned)any(17);
    for (unsigned i = 0; i < count; i++) {
        params[i].mode = any(50) ? hipFileBatch : (hipFileBatchMode_t)any(9);
        params[i].fh = files[any(FILES)];
        params[i].opcode = any(50) ? (hipFileOpcode_t)any(2) : (hipFileOpcode_t)any(9);
        params[i].u.batch.devPtr_base = buffers[any(BUFFERS)];
        params[i].u.batch.devPtr_offset = any(100) ? (int64_t)any(LEN / 2) : any_offset();
        params[i].u.batch.file_offset = (int64_t)any(LEN);
        params[i].u.batch.size = any(100) ? any(LEN / 2) : any_size();
        params[i].cookie = made_up();
    }
    (void)hipFileBatchIOSubmit(any_batch(), count, params, any(30) == 0);
}

static void look_at_batch(void)
{
    hipFileIOEvents_t events[20];
    unsigned count = (unsigned)any(20);
    struct timespec limit = { 0, (long)any(3000000) };
    (void)hipFileBatchIOGetStatus(any_batch(), (unsigned)any(3), &count, events, &limit);
}

static void use_stream(void)
{
    const uint64_t i = any(LATE);
    late[i].size = any(LEN);
    late[i].file_offset = (hoff_t)any(LEN);
    late[i].buffer_offset = any(3) ? 0 : (hoff_t)any(4096);
    const hipStream_t stream = any(8) ? streams[any(STREAMS)] : NULL;
    (void)(any(2) ? hipFileReadAsync : hipFileWriteAsync)(any_file(), buffers[any(BUFFERS)], &late[i].size,
                                                          &late[i].file_offset, &late[i].buffer_offset, &late[i].bytes,
                                                          stream);
}

static void set_something(void)
{
    size_t number;
    bool flag;
    char text[40];
    (void)hipFileGetParameterSizeT((hipFileSizeTConfigParameter_t)any(14), &number);
    (void)hipFileGetParameterBool((hipFileBoolConfigParameter_t)any(14), &flag);
    (void)hipFileGetParameterString((hipFileStringConfigParameter_t)any(4), text, sizeof text);
    (void)hipFileSetParameterSizeT((hipFileSizeTConfigParameter_t)any(14), any(3) ? any(2000) : any_size());
    (void)hipFileDriverSetMaxCacheSize(any(100000));
    (void)hipFileDriverSetMaxPinnedMemSize(any(100000));
    (void)hipFileDriverSetMaxDirectIOSize(any(1000) * 64);
}

static void look_around(void)
{
    static __thread hipFileStatsLevel3_t stats;
    hipFileExtHandleInfo_t info = { .size = sizeof info };
    hipFileExtErrorInfo_t error = { .size = sizeof error };
    (void)hipFileGetStatsL3(&stats);
    (void)hipFileExtHandleGetInfo(any_file(), &info);
    (void)hipFileExtLastError(&error);
    (void)hipFileExtPoolTrim();
    (void)hipFileUseCount();
}

static void one(bool may_fork);

static void wait_for(pid_t child, int expected)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        CHECK_EQ(errno, EINTR);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != expected)
        FAIL("a child ended with %#x", (unsigned)status);
}

static void fork_one(void)
{
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);
        for (int i = 0; i < 20; i++)
            one(false);
        _exit(CHILD);
    }
    if (child > 0)
        wait_for(child, CHILD);
}

static void start_one(void)
{
    char *arguments[] = { "true", NULL };
    pid_t child;
    if (any(2)) {
        if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) == 0)
            wait_for(child, 0);
        return;
    }
    child = vfork();
    if (child == 0) {
        execv("/bin/true", arguments);
        _exit(0);
    }
    if (child > 0)
        wait_for(child, 0);
}

/* Another file under a descriptor that may be registered. */
static void replace_file(void)
{
    const int fresh = open("f0", O_RDWR | O_CLOEXEC);
    if (fresh >= 0) {
        (void)dup3(fresh, fds[any(FILES)], O_CLOEXEC);
        close(fresh);
    }
}

static void one(bool may_fork)
{
    calls++;
    switch (any(40)) {
    case 0 ... 7:
        (void)!hipFileRead(any_file(), any_buffer(), any_size(), any_offset(), any(3) ? 0 : any_offset());
        break;
    case 8 ... 12: {
        /* No sparse files of terabytes. */
        const hoff_t offset = any_offset();
        (void)!hipFileWrite(any_file(), any_buffer(), any(LEN), offset > 4 * LEN ? INT64_MAX - 100 : offset, 0);
        break;
    }
    case 13 ... 14:
        register_any();
        break;
    case 15:
        hipFileHandleDeregister(any_file());
        break;
    case 16:
        (void)hipFileBufRegister(any_buffer(), any(2) ? LEN : any_size(), 0);
        break;
    case 17:
        (void)hipFileBufDeregister(any_buffer());
        break;
    case 18:
        (void)hipFileDriverOpen();
        break;
    case 19:
        (void)hipFileDriverClose();
        break;
    case 20 ... 22:
        submit_batch();
        break;
    case 23 ... 24:
        look_at_batch();
        break;
    case 25:
        (void)hipFileBatchIOCancel(any_batch());
        break;
    case 26:
        new_batch(any(BATCHES));
        break;
    case 27 ... 30:
        use_stream();
        break;
    case 31:
        (void)!ftruncate(fds[any(FILES)], (off_t)any(2 * LEN));
        break;
    case 32:
        set_something();
        break;
    case 33 ... 34:
        look_around();
        break;
    case 35:
        (void)(any(2) ? hipFileStreamRegister(streams[any(STREAMS)], (unsigned)any(20))
                      : hipFileStreamDeregister(streams[any(STREAMS)]));
        break;
    case 36:
        if (any(4) == 0)
            replace_file();
        break;
    case 37:
        if (may_fork && any(8) == 0)
            fork_one();
        break;
    case 38:
        if (may_fork && any(8) == 0)
            start_one();
        break;
    default:
        (void)!fsync(fds[any(FILES)]);
        break;
    }
}

static void *call_for_ever(void *seed)
{
    random_state = 0x9e3779b97f4a7c15 * ((uintptr_t)seed + 1);
    for (;;)
        one(true);
    return NULL;
}

static void *leave(void *nothing)
{
    (void)nothing;
    exit(STATUS);
}

static void on_signal(int number)
{
    if (number == SIGUSR1)
        _exit(STATUS);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        FAIL("usage: chaos SEED MILLISECONDS END");
    const uint64_t seed = strtoull(argv[1], NULL, 10);
    const char *end = argv[3];
    random_state = 0x2545f4914f6cdd1d * (seed + 1);

    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit most = { LEN + LEN / 2 + 1000, RLIM_INFINITY };
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &most), 0);
    for (int i = 0; i < FILES; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", i);
        make_file(name, LEN, (uint64_t)i);
        /* Where O_DIRECT is refused that one is as the others. */
        fds[i] = open(name, O_RDWR | O_CLOEXEC | (i == 3 ? O_APPEND : 0) | (i == 4 ? O_DIRECT : 0));
        if (fds[i] < 0)
            fds[i] = open_file(name, O_RDWR);
    }
    for (int i = 0; i < BUFFERS; i++)
        buffers[i] = dev_alloc(LEN);
    for (int i = 0; i < STREAMS; i++)
        CHECK_HIP(hipStreamCreateWithFlags(&streams[i], i % 2 ? hipStreamNonBlocking : hipStreamDefault));
    for (int i = 0; i < FILES; i++)
        register_any();
    for (uint64_t i = 0; i < BATCHES; i++)
        new_batch(i);

    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    CHECK_EQ(sigaction(SIGALRM, &action, NULL), 0);
    const struct itimerval often = { { 0, 500 }, { 0, 500 } };
    CHECK_EQ(setitimer(ITIMER_REAL, &often, NULL), 0);

    pthread_t thread;
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&thread, NULL, call_for_ever, (void *)(uintptr_t)(seed * THREADS + i)), 0);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const long long nanoseconds = until.tv_nsec + 1000000ll * atoi(argv[2]);
    until.tv_sec += nanoseconds / 1000000000;
    until.tv_nsec = nanoseconds % 1000000000;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {}
    printf("OK chaos: %ld calls\n", (long)calls);
    fflush(stdout);

    if (strcmp(end, "main") == 0)
        return STATUS;
    if (strcmp(end, "_exit") == 0)
        _exit(STATUS);
    if (strcmp(end, "quick_exit") == 0)
        quick_exit(STATUS);
    if (strcmp(end, "exit") == 0) {
        CHECK_EQ(pthread_create(&thread, NULL, leave, NULL), 0);
        for (;;)
            pause();
    }
    if (strcmp(end, "signal") == 0)
        raise(SIGUSR1);
    FAIL("unknown end \"%s\"", end);
}
