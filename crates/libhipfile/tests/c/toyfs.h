/*
 * toyfs: a file system in the program, a log of blocks in memory with one file, which delays, shortens and fails at random; and
 * transfers by any of the three doors.
 */
#ifndef TOYFS_H
#define TOYFS_H

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#include <hipfile_ext.h>

#include "device.h"

enum { BLOCK = 512, BLOCKS = 1 << 10, SPACE = BLOCK * BLOCKS };

static hipFileDescr_t descr_with(int fd, const hipFileFSOps_t *ops)
{
    hipFileDescr_t descr = { .type = hipFileHandleTypeUserspaceFS, .fs_ops = ops };
    descr.handle.fd = fd;
    return descr;
}

static int any_fd(void)
{
    const int fd = memfd_create("stands for a file", 0);
    CHECK(fd >= 0);
    return fd;
}

static struct {
    unsigned char *log; /* blocks, in the order in which they were written */
    size_t used, room;
    long where[BLOCKS]; /* of each block of the file: its place in the log, -1 if it has none */
    size_t size;        /* of the file */
    uint64_t random;
    bool calm;          /* whether nothing goes wrong */
    bool serialized;    /* whether it counts on being called by one thread at a time */
    int inside;         /* threads in a function now */
    pthread_mutex_t lock;
} toy = { .lock = PTHREAD_MUTEX_INITIALIZER, .random = 88172645463325252u };

static uint64_t toy_random(void)
{
    toy.random ^= toy.random << 13;
    toy.random ^= toy.random >> 7;
    toy.random ^= toy.random << 17;
    return toy.random;
}

/* Where the library calls it from one thread at a time the toy has no lock of its own. */
static void toy_enter(void)
{
    if (!toy.serialized)
        CHECK_EQ(pthread_mutex_lock(&toy.lock), 0);
    CHECK_EQ(__atomic_fetch_add(&toy.inside, 1, __ATOMIC_ACQUIRE), 0);
}

static void toy_leave(void)
{
    const int kept = errno;
    CHECK_EQ(__atomic_sub_fetch(&toy.inside, 1, __ATOMIC_RELEASE), 0);
    if (!toy.serialized)
        CHECK_EQ(pthread_mutex_unlock(&toy.lock), 0);
    errno = kept;
}

/* Keeps the last copy of each block only. */
static void toy_compact(void)
{
    unsigned char *fresh = malloc(toy.room * BLOCK);
    CHECK(fresh != NULL);
    size_t used = 0;
    for (size_t i = 0; i < BLOCKS; i++)
        if (toy.where[i] >= 0) {
            memcpy(fresh + used * BLOCK, toy.log + (size_t)toy.where[i] * BLOCK, BLOCK);
            toy.where[i] = (long)used++;
        }
    free(toy.log);
    toy.log = fresh;
    toy.used = used;
}

/* How many of these bytes to take now, or what to answer instead. */
static ssize_t toy_mood(size_t size)
{
    if (toy.calm)
        return (ssize_t)size;
    switch (toy_random() % 16) {
    case 0:
        errno = EINTR;
        return -1;
    case 1:
        if (toy_random() % 4 == 0) {
            errno = ENOSPC;
            return -1;
        }
        return (ssize_t)size;
    case 2:
        return toy_random() % 4 == 0 ? -EACCES : (ssize_t)size;
    case 3:
    case 4:
        return 1 + (ssize_t)(toy_random() % size);
    default:
        return (ssize_t)size;
    }
}

static void toy_delay(void)
{
    if (!toy.calm && toy_random() % 32 == 0)
        usleep((useconds_t)(toy_random() % 200));
}

static ssize_t toy_read(void *handle, char *buffer, size_t size, hoff_t offset, hipFileRDMAInfo_t *info)
{
    (void)handle;
    (void)info;
    toy_enter();
    toy_delay();
    ssize_t n = toy_mood(size);
    const size_t at = (size_t)offset;
    if (n > 0) {
        const size_t there = at < toy.size ? toy.size - at : 0;
        n = (size_t)n < there ? n : (ssize_t)there;
        for (size_t i = 0; i < (size_t)n; i++) {
            const long place = toy.where[(at + i) / BLOCK];
            buffer[i] = place < 0 ? 0 : (char)toy.log[(size_t)place * BLOCK + (at + i) % BLOCK];
        }
    }
    toy_leave();
    return n;
}

static ssize_t toy_write(void *handle, const char *buffer, size_t size, hoff_t offset, hipFileRDMAInfo_t *info)
{
    (void)handle;
    (void)info;
    toy_enter();
    toy_delay();
    const ssize_t n = toy_mood(size);
    size_t at = (size_t)offset;
    for (size_t done = 0; n > 0 && done < (size_t)n;) {
        if (toy.used == toy.room)
            toy_compact();
        const size_t block = at / BLOCK, in = at % BLOCK;
        const size_t part = BLOCK - in < (size_t)n - done ? BLOCK - in : (size_t)n - done;
        unsigned char *place = toy.log + toy.used * BLOCK;
        if (toy.where[block] < 0)
            memset(place, 0, BLOCK);
        else
            memcpy(place, toy.log + (size_t)toy.where[block] * BLOCK, BLOCK);
        memcpy(place + in, buffer + done, part);
        toy.where[block] = (long)toy.used++;
        done += part;
        at += part;
        if (at > toy.size)
            toy.size = at;
    }
    toy_leave();
    return n;
}

static const char *toy_type(void *handle)
{
    (void)handle;
    return "toyfs";
}

/* A transfer by one of the three doors: bytes, or negative. */
static ssize_t by_door(int door, bool write, hipFileHandle_t file, void *memory, size_t size, hoff_t at, hoff_t offset,
                       hipStream_t stream, hipFileBatchHandle_t batch)
{
    if (door == 0)
        return write ? hipFileWrite(file, memory, size, offset, at) : hipFileRead(file, memory, size, offset, at);
    if (door == 1) {
        ssize_t bytes = -77;
        CHECK_OK(write ? hipFileWriteAsync(file, memory, &size, &offset, &at, &bytes, stream)
                       : hipFileReadAsync(file, memory, &size, &offset, &at, &bytes, stream));
        CHECK_HIP(hipStreamSynchronize(stream));
        return bytes;
    }
    hipFileIOParams_t params = { .mode = hipFileBatch, .fh = file };
    params.opcode = write ? hipFileBatchWrite : hipFileBatchRead;
    params.u.batch.devPtr_base = memory;
    params.u.batch.file_offset = offset;
    params.u.batch.devPtr_offset = at;
    params.u.batch.size = size;
    CHECK_OK(hipFileBatchIOSubmit(batch, 1, &params, 0));
    hipFileIOEvents_t event;
    unsigned nr = 1;
    CHECK_OK(hipFileBatchIOGetStatus(batch, 1, &nr, &event, NULL));
    CHECK_EQ(nr, 1);
    CHECK(event.status == hipFileComplete || event.status == hipFileFailed);
    return (ssize_t)event.ret;
}

#endif
