/*
 * lifecycle MODE: what programs do to themselves while everything of the library is open: a driver count, a file, memory, a
 * stream, a batch in flight.
 *
 *   fork       the child is answered, with nothing but answers; the parent goes on (every function, every kind of object)
 *   exec       fork and exec: the new program inherits no descriptor of the library's
 *   vfork      vfork and exec; posix_spawn
 *   forking    8 threads fork while 8 others do I/O
 *   batch      ends with a batch in flight
 *   signal     ends by _exit in the handler of a signal, I/O in flight
 *   killed     ends by SIGTERM itself
 *   close_64   the driver is closed while 64 threads read, again and again
 *   storm      8 threads open and close the driver while 8 others do I/O
 *   inherited  (started by exec and vfork: tells which descriptors it has)
 */
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "device.h"

enum { STATUS = 42, LEN = 1 << 20, PIECE = 16384, ENTRIES = 64 };

extern char **environ;
static char *device;
static hipFileHandle_t file;
static hipFileBatchHandle_t batch;
static hipStream_t stream;
static int fd;
static atomic_bool stop;
static atomic_int done, refused;

static void open_everything(void)
{
    device = dev_alloc(2 * LEN);
    make_file("data", LEN, 1);
    CHECK_OK(hipFileDriverOpen());
    fd = open_file("data", O_RDWR);
    file = register_fd(fd);
    CHECK_OK(hipFileBufRegister(device, LEN, 0));
    CHECK_HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    CHECK_OK(hipFileStreamRegister(stream, 0));
    CHECK_OK(hipFileBatchIOSetUp(&batch, ENTRIES));
    CHECK_IO(hipFileRead(file, device, LEN, 0, 0), LEN);
}

static void submit_batch(void)
{
    hipFileIOParams_t params[ENTRIES];
    memset(params, 0, sizeof params);
    for (int i = 0; i < ENTRIES; i++) {
        params[i].mode = hipFileBatch;
        params[i].fh = file;
        params[i].opcode = hipFileBatchRead;
        params[i].u.batch.devPtr_base = device;
        params[i].u.batch.devPtr_offset = params[i].u.batch.file_offset = i * (LEN / ENTRIES);
        params[i].u.batch.size = LEN / ENTRIES;
    }
    CHECK_OK(hipFileBatchIOSubmit(batch, ENTRIES, params, 0));
}

static void collect_batch(void)
{
    hipFileIOEvents_t events[ENTRIES];
    unsigned left = ENTRIES;
    while (left > 0) {
        unsigned count = left;
        CHECK_OK(hipFileBatchIOGetStatus(batch, 1, &count, events, NULL));
        for (unsigned i = 0; i < count; i++)
            CHECK_EQ(events[i].ret, LEN / ENTRIES);
        left -= count;
    }
}

static bool is_one_of(hipFileError_t status, int a, int b)
{
    return (int)status.err == a || (int)status.err == b;
}

/* In the child, where nothing of the parent's may be used. */
static int child_is_answered(void)
{
    static size_t size = 4096;
    static hoff_t zero = 0;
    static ssize_t bytes = 7;
    hipFileIOEvents_t events[4];
    unsigned count = 4;
    enum { CLOSING = hipFileDriverClosing, UNKNOWN = hipFileHandleNotRegistered };
    errno = 0;
    if (hipFileRead(file, device, 4096, 0, 0) != -1 || errno != EINVAL)
        return 2;
    if (hipFileWrite(file, device, 4096, 0, 0) != -1)
        return 3;
    if (hipFileUseCount() != 0)
        return 4;
    if (hipFileBatchIOGetStatus(batch, 0, &count, events, NULL).err == hipFileSuccess && count != 0)
        return 6;
    hipFileBatchIOCancel(batch);
    hipFileBatchIODestroy(batch);
    if (!is_one_of(hipFileBufDeregister(device), CLOSING, UNKNOWN))
        return 7;
    hipFileHandleDeregister(file);
    hipFileStreamDeregister(stream);
    if (hipFileDriverClose().err != hipFileDriverNotInitialized)
        return 8;
    if (hipFileDriverOpen().err != hipFileSuccess || hipFileUseCount() != 1)
        return 9;
    hipFileDescr_t descr = descr_of(fd);
    hipFileHandle_t mine = NULL;
    if (hipFileHandleRegister(&mine, &descr).err != hipFileSuccess)
        return 10;
    hipFileHandleDeregister(mine);
    if (hipFileReadAsync(file, device, &size, &zero, &zero, &bytes, stream).err == hipFileSuccess || bytes != 7)
        return 5;
    return hipFileDriverClose().err == hipFileSuccess ? 0 : 11;
}

/* Waits for a child; one that hangs is a failure. */
static void wait_for(pid_t child, const char *what)
{
    int status = 0;
    for (int i = 0; i < 6000; i++) {
        const pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child) {
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                FAIL("%s: status %d", what, status);
            return;
        }
        usleep(5000);
    }
    kill(child, SIGKILL);
    FAIL("%s hangs", what);
}

static void forks(void)
{
    open_everything();
    for (int round = 0; round < 10; round++) {
        submit_batch();
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            _exit(child_is_answered());
        wait_for(child, "the child");
        collect_batch();
        CHECK_IO(hipFileRead(file, device, LEN, 0, 0), LEN);
    }
}

static char *self;

/* What this program was started with is not the library's. */
static void keep_to_ourselves(void)
{
    for (int number = 3; number < 1024; number++)
        fcntl(number, F_SETFD, FD_CLOEXEC);
}

/* Started anew: it has the three standard streams, and what reads the folder. */
static int inherited(void)
{
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const int number = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && number > 2 && number != dirfd(folder))
            FAIL("descriptor %d was inherited", number);
    }
    closedir(folder);
    CHECK_OK(hipFileDriverOpen());
    CHECK_OK(hipFileDriverClose());
    return 0;
}

static void executes(void)
{
    open_everything();
    submit_batch();
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execl(self, self, "inherited", (char *)NULL);
        _exit(12);
    }
    wait_for(child, "exec");
    collect_batch();
}

static void vforks(void)
{
    open_everything();
    for (int round = 0; round < 5; round++) {
        submit_batch();
        const pid_t child = vfork();
        CHECK(child >= 0);
        if (child == 0) {
            execl(self, self, "inherited", (char *)NULL);
            _exit(12);
        }
        wait_for(child, "vfork");
        char *arguments[] = { self, (char *)"inherited", NULL };
        pid_t spawned;
        CHECK_EQ(posix_spawn(&spawned, self, NULL, NULL, arguments, environ), 0);
        wait_for(spawned, "posix_spawn");
        collect_batch();
        CHECK_IO(hipFileRead(file, device, LEN, 0, 0), LEN);
    }
}

static void *read_on(void *nothing)
{
    while (!atomic_load(&stop)) {
        errno = 0;
        const ssize_t got = hipFileRead(file, device, PIECE, 0, 0);
        if (got == PIECE)
            atomic_fetch_add(&done, 1);
        else if (got == -hipFileHandleNotRegistered || (got == -1 && errno == EINVAL))
            atomic_fetch_add(&refused, 1), usleep(100);
        else
            FAIL("a read gives %zd, errno %d", got, errno);
    }
    return nothing;
}

static void *fork_on(void *nothing)
{
    for (int i = 0; i < 12; i++) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            _exit(child_is_answered());
        wait_for(child, "a thread's child");
    }
    return nothing;
}

static void *open_and_close(void *nothing)
{
    for (int i = 0; i < 2000; i++) {
        CHECK_OK(hipFileDriverOpen());
        CHECK_OK(hipFileDriverClose());
    }
    return nothing;
}

enum { MANY = 64 };

/* Some threads that read until the others are done. */
static void beside_readers(int readers, int others, void *(*other)(void *))
{
    pthread_t threads[2 * MANY];
    for (int i = 0; i < readers + others; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, i < readers ? read_on : other, NULL), 0);
    for (int i = readers; i < readers + others; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    atomic_store(&stop, true);
    for (int i = 0; i < readers; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK(atomic_load(&done) > 0);
}

/* The last close; the handle and the memory are forgotten by it. */
static void *close_again_and_again(void *nothing)
{
    for (int round = 0; round < 20; round++) {
        const int before = atomic_load(&done);
        while (round % 2 == 0 && atomic_load(&done) < before + 20)
            usleep(100);
        CHECK_OK(hipFileDriverClose());
        CHECK_EQ(hipFileUseCount(), 0);
        CHECK_OK(hipFileDriverOpen());
        file = register_fd(fd);
    }
    return nothing;
}

static void leave(int signal)
{
    (void)signal;
    _exit(STATUS);
}

static void end_by_signal(bool handled)
{
    open_everything();
    pthread_t readers[4];
    for (int i = 0; i < 4; i++)
        CHECK_EQ(pthread_create(&readers[i], NULL, read_on, NULL), 0);
    submit_batch();
    usleep(10000);
    if (handled)
        CHECK(signal(SIGTERM, leave) != SIG_ERR);
    printf("OK lifecycle\n");
    fflush(stdout);
    kill(getpid(), SIGTERM);
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    const char *mode = argc == 2 ? argv[1] : "";
    self = argv[0];
    if (strcmp(mode, "inherited") == 0)
        return inherited();
    keep_to_ourselves();
    if (strcmp(mode, "fork") == 0)
        forks();
    else if (strcmp(mode, "exec") == 0)
        executes();
    else if (strcmp(mode, "vfork") == 0)
        vforks();
    else if (strcmp(mode, "forking") == 0)
        open_everything(), beside_readers(8, 8, fork_on);
    else if (strcmp(mode, "storm") == 0)
        open_everything(), beside_readers(8, 8, open_and_close);
    else if (strcmp(mode, "close_64") == 0)
        open_everything(), beside_readers(MANY, 1, close_again_and_again);
    else if (strcmp(mode, "batch") == 0)
        open_everything(), submit_batch();
    else if (strcmp(mode, "signal") == 0 || strcmp(mode, "killed") == 0)
        end_by_signal(strcmp(mode, "signal") == 0);
    else
        FAIL("unknown mode \"%s\"", mode);
    printf("OK lifecycle %s\n", mode);
    return 0;
}
