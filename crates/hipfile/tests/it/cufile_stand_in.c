/* Stands in for libcufile where the GPU is emulated: it moves bytes by pread, pwrite and the copy that the test gives it, counts
 * calls, and fails as it is told. Written from NVIDIA's public cuFile API reference. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

typedef struct { int err, cu_err; } Error;
typedef struct { int type; union { int fd; void *handle; } handle; const void *ops; } Descr;
typedef struct {
    struct { unsigned major, minor; size_t poll, most; unsigned status, control; } nvfs;
    unsigned flags, cache, per_buffer, pinned, batch, timeout;
} Props;

/* What the test sets, and what it reads; the order is known to it. */
struct {
    int64_t open_error, status, control, register_error, fail_at, fail_errno, fail_code, most;
    int64_t opens, registers, deregisters, reads, writes, calls;
} stand_in = {.status = 1 << 4, .most = -1};
int (*stand_in_copy)(uintptr_t device, void *host, size_t len, int to_device);
static char known[1 << 16];
const char hipfile_stands_in_for_libcufile = 1;

Error cuFileDriverOpen(void)
{
    stand_in.opens++;
    return (Error){(int)stand_in.open_error, 0};
}

Error cuFileDriverGetProperties(Props *props)
{
    memset(props, 0, sizeof *props);
    props->nvfs.status = (unsigned)stand_in.status;
    props->nvfs.control = (unsigned)stand_in.control;
    return (Error){0, 0};
}

Error cuFileHandleRegister(void **handle, Descr *descr)
{
    if (descr->type != 1 || stand_in.register_error)
        return (Error){stand_in.register_error ? (int)stand_in.register_error : 5022, 0};
    if (descr->handle.fd < 0 || (size_t)descr->handle.fd >= sizeof known ||
        __atomic_exchange_n(&known[descr->handle.fd], 1, __ATOMIC_SEQ_CST))
        return (Error){5028, 0}; /* registered already, as numbers count */
    __atomic_fetch_add(&stand_in.registers, 1, __ATOMIC_SEQ_CST);
    *handle = (void *)(intptr_t)(0x1000 + descr->handle.fd);
    return (Error){0, 0};
}

void cuFileHandleDeregister(void *handle)
{
    known[(intptr_t)handle - 0x1000] = 0;
    __atomic_fetch_add(&stand_in.deregisters, 1, __ATOMIC_SEQ_CST);
}

static ssize_t carry(void *handle, uintptr_t base, size_t size, off_t file_offset, off_t base_offset, int read)
{
    const int fd = (int)((intptr_t)handle - 0x1000);
    if (__atomic_add_fetch(&stand_in.calls, 1, __ATOMIC_SEQ_CST) == stand_in.fail_at) {
        errno = (int)stand_in.fail_errno;
        return stand_in.fail_errno ? -1 : -stand_in.fail_code;
    }
    if ((base | size | (uintptr_t)file_offset) % 4096)
        return -5022;
    if (stand_in.most >= 0 && size > (size_t)stand_in.most)
        size = (size_t)stand_in.most;
    void *memory;
    if (posix_memalign(&memory, 4096, size ? size : 1))
        return -5030;
    ssize_t moved = 0;
    if (read)
        moved = pread(fd, memory, size, file_offset);
    if (moved >= 0 && stand_in_copy(base + (uintptr_t)base_offset, memory, read ? (size_t)moved : size, read))
        moved = -5011;
    if (moved >= 0 && !read)
        moved = pwrite(fd, memory, size, file_offset);
    const int error = errno;
    free(memory);
    errno = error;
    return moved;
}

ssize_t cuFileRead(void *handle, void *base, size_t size, off_t file_offset, off_t base_offset)
{
    __atomic_fetch_add(&stand_in.reads, 1, __ATOMIC_SEQ_CST);
    return carry(handle, (uintptr_t)base, size, file_offset, base_offset, 1);
}

ssize_t cuFileWrite(void *handle, const void *base, size_t size, off_t file_offset, off_t base_offset)
{
    __atomic_fetch_add(&stand_in.writes, 1, __ATOMIC_SEQ_CST);
    return carry(handle, (uintptr_t)base, size, file_offset, base_offset, 0);
}
