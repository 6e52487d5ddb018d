/*
 * What the examples share: checks that end the program, a test pattern, a hash, and the one way to read
 * the result of hipFileRead and hipFileWrite. Not part of the library; copy what you need.
 */
#ifndef HIPFILE_EXAMPLES_COMMON_H
#define HIPFILE_EXAMPLES_COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_DIRECT */
#endif

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hip/hip_runtime_api.h>
#include <hipfile.h>

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

/* Prints the message and ends the program with status 1. */
#define DIE(...) (fprintf(stderr, "%s:%d: ", __FILE__, __LINE__), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))

/* For functions of HIP. */
#define CHECK_HIP(call)                                                                                                \
    do {                                                                                                               \
        hipError_t hip_ = (call);                                                                                      \
        if (hip_ != hipSuccess)                                                                                        \
            DIE("%s: %s", #call, hipGetErrorString(hip_));                                                             \
    } while (0)

/* For functions that return hipFileError_t: `err` says what failed, `hip_drv_err` why, if HIP was the reason. */
#define CHECK_HIPFILE(call)                                                                                            \
    do {                                                                                                               \
        hipFileError_t status_ = (call);                                                                               \
        if (IS_HIP_DRV_ERR(status_))                                                                                   \
            DIE("%s: HIP said: %s", #call, hipGetErrorString(HIP_DRV_ERR(status_)));                                   \
        if (status_.err != hipFileSuccess)                                                                             \
            DIE("%s: %s (%d)", #call, hipFileGetOpErrorString(status_.err), (int)status_.err);                         \
    } while (0)

/* For functions of the operating system that return -1 and set errno. */
#define CHECK_OS(call)                                                                                                 \
    do {                                                                                                               \
        if ((call) == -1)                                                                                              \
            DIE("%s: %s", #call, strerror(errno));                                                                     \
    } while (0)

/*
 * The reason behind a negative result of hipFileRead or hipFileWrite:
 *   -1               the operating system refused, errno says why
 *   -5001 .. -5039   a hipFileOpError_t, negated
 *   anything else    a hipError_t, negated
 * errno must still be what the call left behind.
 */
static inline const char *io_error(ssize_t result)
{
    if (result == -1)
        return strerror(errno);
    if (IS_HIPFILE_ERR(result))
        return HIPFILE_ERRSTR(result);
    return hipGetErrorString((hipError_t)-result);
}

/* Opens a file, with O_DIRECT where the file system has it: the library works either way. */
static inline int open_direct(const char *path, int flags)
{
    int fd = open(path, flags | O_DIRECT | O_CLOEXEC, 0644);
    if (fd == -1 && errno == EINVAL)
        fd = open(path, flags | O_CLOEXEC, 0644);
    if (fd == -1)
        DIE("cannot open %s: %s", path, strerror(errno));
    return fd;
}

/* The usual way to turn a file descriptor into a handle. The descriptor stays the caller's. */
static inline hipFileHandle_t register_fd(int fd)
{
    hipFileDescr_t descr;
    memset(&descr, 0, sizeof descr);
    descr.type = hipFileHandleTypeOpaqueFD;
    descr.handle.fd = fd;

    hipFileHandle_t handle = NULL;
    CHECK_HIPFILE(hipFileHandleRegister(&handle, &descr));
    return handle;
}

static inline unsigned char *alloc_host(size_t len)
{
    unsigned char *bytes = (unsigned char *)malloc(len);
    if (bytes == NULL)
        DIE("no memory for %zu bytes", len);
    return bytes;
}

/* Bytes that differ from place to place, so that a shifted copy cannot pass for a right one. */
static inline void fill_pattern(unsigned char *bytes, size_t len, uint64_t seed)
{
    uint64_t state = seed * 2 + 1;
    for (size_t i = 0; i < len; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        bytes[i] = (unsigned char)(state >> 56);
    }
}

/* FNV-1a, 64 bits. Start from FNV1A_START; feed the result back in to go on with the next piece. */
#define FNV1A_START UINT64_C(0xcbf29ce484222325)

static inline uint64_t fnv1a(uint64_t hash, const unsigned char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Hash of `len` bytes of a file from `offset` on, read without hipFile: the independent witness. */
static inline uint64_t hash_file(const char *path, off_t offset, size_t len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        DIE("cannot open %s: %s", path, strerror(errno));
    unsigned char *piece = alloc_host(MIB);
    uint64_t hash = FNV1A_START;
    while (len > 0) {
        ssize_t got = pread(fd, piece, len < MIB ? len : MIB, offset);
        if (got == -1 && errno == EINTR)
            continue;
        if (got <= 0)
            DIE("cannot read %s at %lld: %s", path, (long long)offset, got == 0 ? "end of file" : strerror(errno));
        hash = fnv1a(hash, piece, (size_t)got);
        offset += got;
        len -= (size_t)got;
    }
    free(piece);
    close(fd);
    return hash;
}

static inline size_t file_size(int fd)
{
    struct stat status;
    CHECK_OS(fstat(fd, &status));
    return (size_t)status.st_size;
}

/* The last line of each example: both hashes were compared, and they agree. */
static inline void report(const char *what, const char *with, size_t len, uint64_t hash, uint64_t expected)
{
    if (hash != expected)
        DIE("%s differs from %s: hash %016llx, expected %016llx", what, with, (unsigned long long)hash,
            (unsigned long long)expected);
    printf("OK %s == %s (%zu bytes, hash %016llx)\n", what, with, len, (unsigned long long)hash);
}

#endif
