/*
 * userspace_threads: random operations of several threads on a file system in the program that delays, shortens and fails, by
 * every door: with a lock of its own, by one thread at a time, and until the file is deregistered while they are at it.
 *
 * Arguments: how many random operations.
 */
#include "toyfs.h"

enum { THREADS = 4, SHARE = SPACE / THREADS, MOST_OF_A_THREAD = 9000 };

static hipFileHandle_t shared;
static unsigned char *models[THREADS]; /* what each share of the file must hold */
static int operations, refused_threads;

/* Random operations on a share of the file that only this thread uses, until there were enough or the file is gone. */
static void *roam(void *number)
{
    const size_t first = (size_t)(uintptr_t)number * SHARE;
    unsigned char *model = models[(uintptr_t)number], *memory = malloc(MOST_OF_A_THREAD), *now = malloc(MOST_OF_A_THREAD);
    CHECK(memory != NULL && now != NULL);
    char *device = dev_alloc(MOST_OF_A_THREAD);
    pattern(memory, MOST_OF_A_THREAD, 1 + (uint64_t)(uintptr_t)number);
    dev_put(device, memory, MOST_OF_A_THREAD);
    hipStream_t stream;
    CHECK_HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    hipFileBatchHandle_t batch = NULL;
    CHECK_OK(hipFileBatchIOSetUp(&batch, 4));
    uint64_t random = 99 + (uint64_t)(uintptr_t)number;
    /* Without a limit it goes on until the file is taken away. */
    for (int step = 0; operations < 0 || step < operations; step++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const bool write = random >> 40 & 1;
        const int door = operations < 0 ? 0 : (int)(random >> 41 & 7);
        const size_t len = 1 + (size_t)(random >> 20) % 5000;
        const size_t at = (size_t)(random >> 10) % (MOST_OF_A_THREAD - len);
        const size_t offset = (size_t)(random >> 5) % (SHARE - len);
        const ssize_t n = by_door(door < 5 ? 0 : door < 7 ? 2 : 1, write, shared, device, len, (hoff_t)at,
                                  (hoff_t)(first + offset), stream, batch);
        if (n == -hipFileHandleNotRegistered) {
            CHECK(operations < 0);
            __atomic_add_fetch(&refused_threads, 1, __ATOMIC_RELAXED);
            break;
        }
        CHECK(n < 0 || (size_t)n <= len);
        const size_t moved = n < 0 ? 0 : (size_t)n;
        if (write) {
            memcpy(model + offset, memory + at, moved);
            pattern(memory + at, len < 300 ? len : 300, random);
            dev_put(device + at, memory + at, len < 300 ? len : 300);
        } else {
            dev_get(now, device + at, len);
            CHECK(memcmp(now, model + offset, moved) == 0);
            memcpy(memory + at, now, len);
        }
        /* So that now and then nobody is in. */
        if (operations < 0)
            usleep((useconds_t)(random >> 33) % 500);
    }
    dev_get(now, device, MOST_OF_A_THREAD);
    CHECK(memcmp(now, memory, MOST_OF_A_THREAD) == 0);
    hipFileBatchIODestroy(batch);
    CHECK_HIP(hipStreamDestroy(stream));
    CHECK_HIP(hipFree(device));
    free(now);
    free(memory);
    return NULL;
}

/* From several threads: with a lock of the toy's own, and without one, as the library calls it one at a time; then until it is
 * deregistered while they are at it. */
static void random_operations_of_several_threads(int count)
{
    const hipFileFSOps_t ops = { .fs_type = toy_type, .read = toy_read, .write = toy_write };
    for (size_t i = 0; i < THREADS; i++)
        CHECK((models[i] = malloc(SHARE)) != NULL);
    for (int round = 0; round < 3; round++) {
        const int fd = any_fd();
        hipFileHandle_t again = NULL;
        hipFileDescr_t descr = descr_with(fd, &ops);
        memset(toy.where, -1, sizeof toy.where);
        toy.used = toy.size = 0;
        toy.room = 4 * BLOCKS;
        toy.log = malloc(toy.room * BLOCK);
        CHECK(toy.log != NULL);
        CHECK_OK(hipFileHandleRegister(&shared, &descr));
        toy.serialized = round == 1;
        CHECK_OK(hipFileExtHandleSetSerialized(shared, toy.serialized));
        operations = round == 2 ? -1 : count / (2 * THREADS);
        refused_threads = 0;
        /* All of it is there from the start. */
        toy.calm = true;
        for (size_t i = 0; i < THREADS; i++) {
            pattern(models[i], SHARE, 7 + i);
            CHECK_EQ(toy_write(shared, (const char *)models[i], SHARE, (hoff_t)(i * SHARE), NULL), SHARE);
        }
        toy.calm = false;
        pthread_t threads[THREADS];
        for (uintptr_t i = 0; i < THREADS; i++)
            CHECK_EQ(pthread_create(&threads[i], NULL, roam, (void *)i), 0);
        if (round == 2) {
            usleep(20000);
            /* It waits for no function, and is refused as long as one runs. */
            do {
                usleep(20);
                hipFileHandleDeregister(shared);
            } while (hipFileHandleRegister(&again, &descr).err != hipFileSuccess);
            CHECK(again != shared);
        }
        for (size_t i = 0; i < THREADS; i++)
            CHECK_EQ(pthread_join(threads[i], NULL), 0);
        CHECK_EQ(refused_threads, round == 2 ? THREADS : 0);
        toy.calm = true;
        for (size_t i = 0; i < THREADS; i++) {
            static char now[SHARE];
            CHECK_EQ(toy_read(shared, now, SHARE, (hoff_t)(i * SHARE), NULL), SHARE);
            CHECK(memcmp(now, models[i], SHARE) == 0);
        }
        hipFileHandleDeregister(round == 2 ? again : shared);
        CHECK_EQ(close(fd), 0);
        free(toy.log);
    }
    for (size_t i = 0; i < THREADS; i++)
        free(models[i]);
}

int main(int argc, char **argv)
{
    random_operations_of_several_threads(argc > 1 ? atoi(argv[1]) : 1000);
    while (hipFileUseCount() > 0)
        CHECK_OK(hipFileDriverClose());
    puts("OK userspace_threads");
    return 0;
}
