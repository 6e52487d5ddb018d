/*
 * batch_roundtrip FILE [GPU]: many transfers at once, refilled as they end.
 *
 * Device memory is written to FILE and read back into other device memory, in pieces of 4 KiB, by a batch with room for 32
 * of them. Whenever an event comes, its place is given to the next piece.
 */
#include "common.h"

enum { PIECE = 4096, PIECES = 512, DEPTH = 32 };

/* Every piece once, in whatever order. */
static void run(hipFileBatchHandle_t batch, hipFileHandle_t file, hipFileOpcode_t opcode, void *device)
{
    unsigned next = 0;
    unsigned done = 0;
    while (done < PIECES) {
        /* As many pieces as there are free places. */
        hipFileIOParams_t params[DEPTH];
        unsigned count = 0;
        for (; next < PIECES && next - done < DEPTH; next++, count++) {
            memset(&params[count], 0, sizeof params[count]);
            params[count].mode = hipFileBatch;
            params[count].u.batch.devPtr_base = device;
            params[count].u.batch.devPtr_offset = (int64_t)next * PIECE;
            params[count].u.batch.file_offset = (int64_t)next * PIECE;
            params[count].u.batch.size = PIECE;
            params[count].fh = file;
            params[count].opcode = opcode;
            params[count].cookie = (void *)(uintptr_t)next;
        }
        if (count > 0)
            CHECK_HIPFILE(hipFileBatchIOSubmit(batch, count, params, 0));

        /* At least one event, and whatever else is there. */
        hipFileIOEvents_t events[DEPTH];
        unsigned nr = DEPTH;
        CHECK_HIPFILE(hipFileBatchIOGetStatus(batch, 1, &nr, events, NULL));
        for (unsigned i = 0; i < nr; i++) {
            const unsigned piece = (unsigned)(uintptr_t)events[i].cookie;
            if (events[i].status == hipFileFailed)
                DIE("piece %u failed: %zd", piece, (ssize_t)events[i].ret);
            if (events[i].status != hipFileComplete || events[i].ret != PIECE)
                DIE("piece %u: status %d, %zu bytes", piece, (int)events[i].status, events[i].ret);
        }
        done += nr;
    }
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: %s FILE [GPU]\nFILE is replaced. GPU is a device number, default 0.\n", argv[0]);
        return 2;
    }
    const size_t size = (size_t)PIECE * PIECES;
    CHECK_HIP(hipSetDevice(argc == 3 ? atoi(argv[2]) : 0));
    unsigned char *pattern = alloc_host(size);
    fill_pattern(pattern, size, 5);
    const uint64_t expected = fnv1a(FNV1A_START, pattern, size);
    void *from = NULL;
    void *to = NULL;
    CHECK_HIP(hipMalloc(&from, size));
    CHECK_HIP(hipMalloc(&to, size));
    CHECK_HIP(hipMemcpy(from, pattern, size, hipMemcpyHostToDevice));
    CHECK_HIP(hipMemset(to, 0, size));

    CHECK_HIPFILE(hipFileDriverOpen());
    int fd = open_direct(argv[1], O_RDWR | O_CREAT | O_TRUNC);
    hipFileHandle_t file = register_fd(fd);
    CHECK_HIPFILE(hipFileBufRegister(from, size, 0));
    CHECK_HIPFILE(hipFileBufRegister(to, size, 0));
    hipFileBatchHandle_t batch = NULL;
    CHECK_HIPFILE(hipFileBatchIOSetUp(&batch, DEPTH));
    run(batch, file, hipFileBatchWrite, from);
    run(batch, file, hipFileBatchRead, to);
    hipFileBatchIODestroy(batch);
    CHECK_HIPFILE(hipFileBufDeregister(to));
    CHECK_HIPFILE(hipFileBufDeregister(from));
    hipFileHandleDeregister(file);
    CHECK_OS(close(fd));
    CHECK_HIPFILE(hipFileDriverClose());

    CHECK_HIP(hipMemcpy(pattern, to, size, hipMemcpyDeviceToHost));
    if (fnv1a(FNV1A_START, pattern, size) != expected)
        DIE("what was read back differs");
    CHECK_HIP(hipFree(to));
    CHECK_HIP(hipFree(from));
    free(pattern);
    report(argv[1], "device memory", size, hash_file(argv[1], 0, size), expected);
    return 0;
}
