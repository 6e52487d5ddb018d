/*
 * userspace: files of file systems that live in the program: what is refused, which results mean what, several threads at a
 * time or one, deregistration while a function runs, and a log-structured toy that delays, shortens and fails at random,
 * against a model, by every door. Of several threads at random is userspace_threads.
 *
 * Arguments: how many random operations.
 */

#include "toyfs.h"

enum { LEN = 200000 };

/* --- a file system that does as it is told --- */

static struct {
    void *handle;              /* what the functions were given last */
    ssize_t results[8];        /* what to answer, in turn; then all that is asked for */
    int errnos[8];
    int calls, types;
    int inside, most_inside;   /* threads in a function now, and at most so far */
    bool blocks;               /* whether functions wait for `gate` */
    pthread_mutex_t gate;
    pthread_mutex_t lock;
} told = { .gate = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER };

static const char *told_type(void *handle)
{
    CHECK(handle != NULL);
    told.handle = handle;
    told.types++;
    return "toldfs";
}

static ssize_t told_answer(void *handle, size_t size, const hipFileRDMAInfo_t *info)
{
    CHECK(info == NULL && size > 0);
    CHECK_EQ(pthread_mutex_lock(&told.lock), 0);
    told.handle = handle;
    const int call = told.calls++;
    if (++told.inside > told.most_inside)
        told.most_inside = told.inside;
    CHECK_EQ(pthread_mutex_unlock(&told.lock), 0);
    if (told.blocks) {
        CHECK_EQ(pthread_mutex_lock(&told.gate), 0);
        CHECK_EQ(pthread_mutex_unlock(&told.gate), 0);
    }
    usleep(2000);
    CHECK_EQ(pthread_mutex_lock(&told.lock), 0);
    told.inside--;
    CHECK_EQ(pthread_mutex_unlock(&told.lock), 0);
    if (call >= 8 || told.results[call] == 0)
        return (ssize_t)size;
    errno = told.errnos[call];
    return told.results[call] == 'e' ? 0 : told.results[call];
}

static ssize_t told_read(void *handle, char *buffer, size_t size, hoff_t offset, hipFileRDMAInfo_t *info)
{
    for (size_t i = 0; i < size; i++)
        buffer[i] = (char)((offset + (hoff_t)i) % 251);
    return told_answer(handle, size, info);
}

static ssize_t told_write(void *handle, const char *buffer, size_t size, hoff_t offset, hipFileRDMAInfo_t *info)
{
    (void)offset;
    CHECK(buffer != NULL);
    return told_answer(handle, size, info);
}

static const hipFileFSOps_t told_ops = { .fs_type = told_type, .read = told_read, .write = told_write };

static void tell(const ssize_t *results, const int *errnos, int n)
{
    memset(told.results, 0, sizeof told.results);
    for (int i = 0; i < n; i++) {
        told.results[i] = results[i];
        told.errnos[i] = errnos[i];
    }
    told.calls = 0;
}

static void behaviour_24_refusals(void)
{
    const int fd = any_fd();
    hipFileHandle_t handle = NULL;
    hipFileDescr_t descr = descr_with(-1, &told_ops);
    CHECK_CODE(hipFileHandleRegister(&handle, &descr), hipFileInvalidValue);
    descr = descr_with(fd, NULL);
    CHECK_CODE(hipFileHandleRegister(&handle, &descr), hipFileInvalidValue);
    descr = descr_with(9999, &told_ops);
    CHECK_CODE(hipFileHandleRegister(&handle, &descr), hipFileInternalError);
    CHECK(handle == NULL && told.types == 0);
    CHECK_EQ(hipFileUseCount(), 0);
    descr = descr_with(fd, &told_ops);
    CHECK_OK(hipFileHandleRegister(&handle, &descr));
    CHECK(told.types == 1 && told.handle == handle);
    CHECK_CODE(hipFileHandleRegister(&handle, &descr), hipFileHandleAlreadyRegistered);
    hipFileExtHandleInfo_t info = { .size = sizeof info };
    CHECK_OK(hipFileExtHandleGetInfo(handle, &info));
    CHECK(strcmp(info.file_system, "toldfs") == 0 && strcmp(info.engine, "userspace") == 0);
    CHECK(strcmp(info.reason, "userspace-fs") == 0 && info.private_descriptors == 0);
    hipFileHandleDeregister(handle);
    CHECK_EQ(told.calls, 0);
    CHECK_EQ(close(fd), 0);
    hipFileExtBuildInfo_t build = { .size = sizeof build };
    CHECK_OK(hipFileExtGetBuildInfo(&build));
    CHECK(build.features & HIPFILE_EXT_FEATURE_USERSPACE_FS);
}

static void results(hipFileHandle_t handle, char *device)
{
    static const struct {
        ssize_t results[4];
        int errnos[4];
        ssize_t read, write;
        int read_errno, write_errno;
    } cases[] = {
        { { 0 }, { 0 }, 1000, 1000, 0, 0 },
        { { 10, 20, 0 }, { 0 }, 1000, 1000, 0, 0 },
        { { 10, 'e' }, { 0 }, 10, 10, 0, 0 },
        { { 'e' }, { 0 }, 0, -1, 0, EIO },
        { { -1 }, { ENOSPC }, -1, -1, ENOSPC, ENOSPC },
        { { -1 }, { 0 }, -1, -1, EIO, EIO },
        { { -EACCES }, { 0 }, -1, -1, EACCES, EACCES },
        { { -5008 }, { 0 }, -1, -1, EIO, EIO },
        { { 1001 }, { 0 }, -1, -1, EIO, EIO },
        { { -1, 0 }, { EINTR }, 1000, 1000, 0, 0 },
        { { 600, -1 }, { 0, ENOSPC }, 600, 600, 0, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int write = 0; write < 2; write++) {
            tell(cases[i].results, cases[i].errnos, 4);
            errno = 0;
            const ssize_t n = write ? hipFileWrite(handle, device, 1000, 5, 0) : hipFileRead(handle, device, 1000, 5, 0);
            CHECK_EQ(n, write ? cases[i].write : cases[i].read);
            CHECK_EQ(errno, write ? cases[i].write_errno : cases[i].read_errno);
        }
    tell(NULL, NULL, 0);
    unsigned char expected[1000];
    for (size_t i = 0; i < sizeof expected; i++)
        expected[i] = (unsigned char)((12345 + i) % 251);
    CHECK_IO(hipFileRead(handle, device, sizeof expected, 12345, 77), sizeof expected);
    CHECK_DEVICE(device + 77, expected, sizeof expected);
    CHECK(told.handle == handle);
}

static void *reader(void *handle)
{
    char *device = dev_alloc(4096);
    for (int i = 0; i < 8; i++)
        CHECK_EQ(hipFileRead((hipFileHandle_t)handle, device, 4096, 0, 0), 4096);
    CHECK_HIP(hipFree(device));
    return NULL;
}

/* Several threads at a time unless told otherwise. */
static void at_the_same_time(hipFileHandle_t handle)
{
    CHECK_CODE(hipFileExtHandleSetSerialized(NULL, 1), hipFileHandleNotRegistered);
    for (int serialized = 0; serialized < 2; serialized++) {
        CHECK_OK(hipFileExtHandleSetSerialized(handle, serialized));
        tell(NULL, NULL, 0);
        told.most_inside = 0;
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            CHECK_EQ(pthread_create(&threads[i], NULL, reader, handle), 0);
        for (int i = 0; i < 4; i++)
            CHECK_EQ(pthread_join(threads[i], NULL), 0);
        CHECK(serialized ? told.most_inside == 1 : told.most_inside > 1);
    }
    CHECK_OK(hipFileExtHandleSetSerialized(handle, 0));
}

/* A handle stays as long as a function of its file runs. */
static void deregistered_meanwhile(int fd, hipFileHandle_t handle)
{
    tell(NULL, NULL, 0);
    CHECK_EQ(pthread_mutex_lock(&told.gate), 0);
    told.blocks = true;
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, reader, handle), 0);
    for (int inside = 0; inside == 0; usleep(100)) {
        CHECK_EQ(pthread_mutex_lock(&told.lock), 0);
        inside = told.inside;
        CHECK_EQ(pthread_mutex_unlock(&told.lock), 0);
    }
    hipFileHandleDeregister(handle);
    hipFileHandle_t again = NULL;
    hipFileDescr_t descr = descr_with(fd, &told_ops);
    CHECK_CODE(hipFileHandleRegister(&again, &descr), hipFileHandleAlreadyRegistered);
    told.blocks = false;
    CHECK_EQ(pthread_mutex_unlock(&told.gate), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    hipFileHandleDeregister(handle);
    char *device = dev_alloc(10);
    CHECK_IO(hipFileRead(handle, device, 10, 0, 0), -hipFileHandleNotRegistered);
    CHECK_HIP(hipFree(device));
}

/* What has no function goes to the kernel's file. */
static void the_kernels_file(char *device)
{
    const int fd = open_file("half", O_RDWR | O_CREAT | O_TRUNC);
    CHECK_EQ(pwrite(fd, "kernel", 6, 0), 6);
    const hipFileFSOps_t ops = { .write = told_write };
    hipFileHandle_t handle = NULL;
    hipFileDescr_t descr = descr_with(fd, &ops);
    CHECK_OK(hipFileHandleRegister(&handle, &descr));
    tell(NULL, NULL, 0);
    CHECK_IO(hipFileWrite(handle, device, 100, 0, 0), 100);
    CHECK_EQ(told.calls, 1);
    CHECK_IO(hipFileRead(handle, device, 100, 0, 0), 6);
    CHECK_EQ(told.calls, 1);
    CHECK_DEVICE(device, "kernel", 6);
    hipFileHandleDeregister(handle);
    /* A pipe has no file to fall back on. */
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    descr = descr_with(ends[0], &ops);
    CHECK_CODE(hipFileHandleRegister(&handle, &descr), hipFileInvalidFileType);
    descr = descr_with(ends[0], &told_ops);
    CHECK_OK(hipFileHandleRegister(&handle, &descr));
    CHECK_IO(hipFileRead(handle, device, 100, 0, 0), 100);
    hipFileHandleDeregister(handle);
    CHECK_EQ(close(fd) + close(ends[0]) + close(ends[1]), 0);
}

/* --- the log-structured toy of toyfs.h --- */

static void random_operations(int count)
{
    enum { MEMORY = 90000, MOST = 70000 };
    static unsigned char model[SPACE], memory[MEMORY], now[MEMORY];
    size_t size = 0;
    toy.room = 4 * BLOCKS;
    toy.log = malloc(toy.room * BLOCK);
    CHECK(toy.log != NULL);
    memset(toy.where, -1, sizeof toy.where);
    const hipFileFSOps_t ops = { .fs_type = toy_type, .read = toy_read, .write = toy_write };
    const int fd = any_fd();
    hipFileHandle_t file = NULL;
    hipFileDescr_t descr = descr_with(fd, &ops);
    CHECK_OK(hipFileHandleRegister(&file, &descr));
    char *device = dev_alloc(MEMORY);
    pattern(memory, MEMORY, 1);
    dev_put(device, memory, MEMORY);
    CHECK_OK(hipFileBufRegister(device, MEMORY, 0));
    hipStream_t stream;
    CHECK_HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    hipFileBatchHandle_t batch = NULL;
    CHECK_OK(hipFileBatchIOSetUp(&batch, 4));
    uint64_t random = 42;
    int failed = 0, partly = 0;
    for (int step = 0; step < count; step++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const bool write = random >> 40 & 1;
        const int door = (int)(random >> 41 & 7);
        const size_t most = (random >> 44 & 7) == 0 ? MOST : 5000;
        const size_t len = 1 + (size_t)(random >> 20) % most;
        const size_t at = (size_t)(random >> 10) % (MEMORY - len);
        const size_t offset = (size_t)(random >> 5) % (SPACE - len);
        const ssize_t n = by_door(door < 5 ? 0 : door < 7 ? 2 : 1, write, file, device, len, (hoff_t)at, (hoff_t)offset,
                                  stream, batch);
        const size_t there = write ? len : offset >= size ? 0 : size - offset < len ? size - offset : len;
        CHECK(n < 0 || (size_t)n <= there);
        failed += n < 0;
        partly += n >= 0 && (size_t)n < there;
        const size_t moved = n < 0 ? 0 : (size_t)n;
        if (write) {
            memcpy(model + offset, memory + at, moved);
            if (moved > 0 && offset + moved > size)
                size = offset + moved;
            /* Other bytes, so that a read that moves nothing is noticed. */
            pattern(memory + at, len < 300 ? len : 300, random);
            dev_put(device + at, memory + at, len < 300 ? len : 300);
        } else {
            memcpy(memory + at, model + offset, moved);
            /* Behind the counted bytes, up to the end of the request, anything may be. */
            dev_get(now, device + at, len);
            CHECK(memcmp(now, memory + at, moved) == 0);
            memcpy(memory + at, now, len);
        }
        if (step % 500 == 499 || step + 1 == count) {
            dev_get(now, device, MEMORY);
            CHECK(memcmp(now, memory, MEMORY) == 0);
        }
    }
    CHECK(count < 1000 || (failed > 0 && partly > 0));
    toy.calm = true;
    CHECK_EQ(toy.size, size);
    for (size_t offset = 0; offset < size; offset += MEMORY) {
        const size_t len = size - offset < MEMORY ? size - offset : MEMORY;
        CHECK_IO(hipFileRead(file, device, len, (hoff_t)offset, 0), len);
        CHECK_DEVICE(device, model + offset, len);
    }
    hipFileBatchIODestroy(batch);
    CHECK_HIP(hipStreamDestroy(stream));
    CHECK_OK(hipFileBufDeregister(device));
    CHECK_HIP(hipFree(device));
    hipFileHandleDeregister(file);
    CHECK_EQ(close(fd), 0);
    free(toy.log);
}

int main(int argc, char **argv)
{
    behaviour_24_refusals();
    char *device = dev_alloc(LEN);
    const int fd = any_fd();
    hipFileHandle_t handle = NULL;
    hipFileDescr_t descr = descr_with(fd, &told_ops);
    CHECK_OK(hipFileHandleRegister(&handle, &descr));
    results(handle, device);
    at_the_same_time(handle);
    deregistered_meanwhile(fd, handle);
    the_kernels_file(device);
    CHECK_EQ(close(fd), 0);
    CHECK_HIP(hipFree(device));
    random_operations(argc > 1 ? atoi(argv[1]) : 1000);
    while (hipFileUseCount() > 0)
        CHECK_OK(hipFileDriverClose());
    puts("OK userspace");
    return 0;
}
