/*
 * check.h: checks that print where, what and which values, and end the program with status 1. Also files with
 * a known content. Needs no HIP: programs that run without any runtime include only this.
 */
#ifndef HIPFILE_TEST_CHECK_H
#define HIPFILE_TEST_CHECK_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hipfile.h>

#define FAIL(...)                                                                                                      \
    (fprintf(stderr, "%s:%d: ", __FILE__, __LINE__), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), _exit(1))

/* A case that cannot run here; the harness passes the line on. */
#define SKIP(what, ...)                                                                                                \
    (fprintf(stderr, "SKIP: %s: ", what), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr))

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            FAIL("%s does not hold (errno %d)", #condition, errno);                                                    \
    } while (0)

/* Integers of any width. */
#define CHECK_EQ(actual, expected)                                                                                     \
    do {                                                                                                               \
        const long long actual_ = (long long)(actual);                                                                 \
        const long long expected_ = (long long)(expected);                                                             \
        if (actual_ != expected_)                                                                                      \
            FAIL("%s is %lld, expected %s = %lld (errno %d)", #actual, actual_, #expected, expected_, errno);          \
    } while (0)

/* A hipFileError_t with this code, and hipSuccess beside it. */
#define CHECK_CODE(call, code)                                                                                         \
    do {                                                                                                               \
        const hipFileError_t status_ = (call);                                                                         \
        if ((int)status_.err != (int)(code) || (int)status_.hip_drv_err != 0)                                          \
            FAIL("%s gives {%d, %d}, expected {%s = %d, 0}", #call, (int)status_.err, (int)status_.hip_drv_err, #code, \
                 (int)(code));                                                                                         \
    } while (0)
#define CHECK_OK(call) CHECK_CODE(call, hipFileSuccess)

/* A hipFileError_t that hands on HIP's own code. */
#define CHECK_HIP_CODE(call, hip_code)                                                                                 \
    do {                                                                                                               \
        const hipFileError_t status_ = (call);                                                                         \
        if (status_.err != hipFileHipDriverError || (int)status_.hip_drv_err != (int)(hip_code))                       \
            FAIL("%s gives {%d, %d}, expected {5011, %s = %d}", #call, (int)status_.err, (int)status_.hip_drv_err,     \
                 #hip_code, (int)(hip_code));                                                                          \
    } while (0)

/* hipFileRead or hipFileWrite that moves this many bytes, or refuses with this negative code. Either way errno
 * is left alone: only a result of -1 sets it. */
enum { ERRNO_SENTINEL = 7777 };
#define CHECK_IO(call, expected)                                                                                       \
    do {                                                                                                               \
        errno = ERRNO_SENTINEL;                                                                                        \
        const ssize_t result_ = (call);                                                                                \
        const int errno_ = errno;                                                                                      \
        const ssize_t wanted_ = (ssize_t)(expected);                                                                   \
        if (result_ != wanted_)                                                                                        \
            FAIL("%s returns %zd, expected %s = %zd (errno %d)", #call, result_, #expected, wanted_, errno_);          \
        if (errno_ != ERRNO_SENTINEL)                                                                                  \
            FAIL("%s returns %zd and yet sets errno to %d", #call, result_, errno_);                                   \
    } while (0)

/* ... that returns -1 with this errno. */
#define CHECK_ERRNO(call, code)                                                                                        \
    do {                                                                                                               \
        errno = ERRNO_SENTINEL;                                                                                        \
        const ssize_t result_ = (call);                                                                                \
        const int errno_ = errno;                                                                                      \
        if (result_ != -1 || errno_ != (code))                                                                         \
            FAIL("%s returns %zd with errno %d, expected -1 with %s = %d", #call, result_, errno_, #code, (code));     \
    } while (0)

/* The same bytes; else the first place where they differ. */
#define CHECK_BYTES(actual, expected, len) check_bytes(__FILE__, __LINE__, #actual, actual, expected, len)

static inline void check_bytes(const char *file, int line, const char *what, const void *actual, const void *expected,
                               size_t len)
{
    const unsigned char *a = (const unsigned char *)actual;
    const unsigned char *e = (const unsigned char *)expected;
    if (len == 0 || memcmp(a, e, len) == 0)
        return;
    size_t at = 0;
    while (a[at] == e[at])
        at++;
    fprintf(stderr, "%s:%d: %s differs at byte %zu of %zu: 0x%02x, expected 0x%02x\n", file, line, what, at, len, a[at],
            e[at]);
    _exit(1);
}

static inline unsigned char *host_alloc(size_t len)
{
    unsigned char *bytes = (unsigned char *)malloc(len == 0 ? 1 : len);
    CHECK(bytes != NULL);
    return bytes;
}

/* Bytes that tell the place they belong to: every byte depends on its index and on the seed. */
static inline void pattern(void *to, size_t len, uint64_t seed)
{
    unsigned char *bytes = (unsigned char *)to;
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)(((i + 1) * UINT64_C(0x9e3779b97f4a7c15) + seed * UINT64_C(0xbf58476d1ce4e5b9)) >> 56);
}

static inline int open_file(const char *name, int flags)
{
    const int fd = open(name, flags | O_CLOEXEC, 0644);
    if (fd == -1)
        FAIL("cannot open %s: %s", name, strerror(errno));
    return fd;
}

/* Replaces `name` with `len` bytes of `pattern(seed)`. */
static inline void make_file(const char *name, size_t len, uint64_t seed)
{
    const int fd = open_file(name, O_WRONLY | O_CREAT | O_TRUNC);
    unsigned char *bytes = host_alloc(len);
    pattern(bytes, len, seed);
    CHECK_EQ(write(fd, bytes, len), len);
    free(bytes);
    CHECK_EQ(close(fd), 0);
}

static inline long long size_of(int fd)
{
    struct stat status;
    CHECK_EQ(fstat(fd, &status), 0);
    return (long long)status.st_size;
}

static inline hipFileDescr_t descr_of(int fd)
{
    hipFileDescr_t descr;
    memset(&descr, 0, sizeof descr);
    descr.type = hipFileHandleTypeOpaqueFD;
    descr.handle.fd = fd;
    return descr;
}

static inline hipFileHandle_t register_fd(int fd)
{
    hipFileDescr_t descr = descr_of(fd);
    hipFileHandle_t handle = NULL;
    CHECK_OK(hipFileHandleRegister(&handle, &descr));
    CHECK(handle != NULL);
    return handle;
}

static inline hipFileError_t try_register_fd(int fd)
{
    hipFileDescr_t descr = descr_of(fd);
    hipFileHandle_t handle = NULL;
    return hipFileHandleRegister(&handle, &descr);
}

/* Which file each descriptor of the process names. Equal before and after means: none lost, added or replaced. */
enum { FD_LIMIT = 256 };
typedef struct {
    dev_t dev[FD_LIMIT];
    ino_t ino[FD_LIMIT];
    int open[FD_LIMIT];
} FdTable;

static inline void fd_table(FdTable *table)
{
    memset(table, 0, sizeof *table);
    for (int fd = 0; fd < FD_LIMIT; fd++) {
        struct stat status;
        if (fstat(fd, &status) != 0)
            continue;
        table->open[fd] = 1;
        table->dev[fd] = status.st_dev;
        table->ino[fd] = status.st_ino;
    }
}

static inline void check_fd_table(const FdTable *before)
{
    FdTable now;
    fd_table(&now);
    for (int fd = 0; fd < FD_LIMIT; fd++) {
        if (before->open[fd] != now.open[fd])
            FAIL("descriptor %d was %s and is now %s", fd, before->open[fd] ? "open" : "closed",
                 now.open[fd] ? "open" : "closed");
        if (before->dev[fd] != now.dev[fd] || before->ino[fd] != now.ino[fd])
            FAIL("descriptor %d names another file now", fd);
    }
}

static inline int count_entries(const char *folder)
{
    DIR *dir = opendir(folder);
    CHECK(dir != NULL);
    int count = 0;
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

/* As many closes as it takes, then the count is 0 and one more is refused. */
static inline void close_driver_fully(void)
{
    while (hipFileUseCount() > 0)
        CHECK_OK(hipFileDriverClose());
    CHECK_EQ(hipFileUseCount(), 0);
    CHECK_CODE(hipFileDriverClose(), hipFileDriverNotInitialized);
}

#endif
