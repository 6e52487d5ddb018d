/*
 * async_roundtrip FILE [GPU]: reads and writes in the order of GPU streams.
 *
 * First on one stream: device memory is written to FILE and read back into other device memory, in pieces, and nothing is
 * waited for until all of it is queued. Then again on several streams, each with pieces of its own. Of these some are
 * registered: there sizes and offsets are copied when an operation is submitted. On the others they are read when the
 * stream gets there, so the variables must live until then.
 */
#include "common.h"

enum { PIECE = 256 * 1024 + 100, PIECES = 16, STREAMS = 4 };

/* The variables of one operation. `bytes` is valid when the stream has passed it. */
typedef struct {
    size_t size;
    hoff_t file_offset;
    hoff_t buffer_offset;
    ssize_t bytes;
} Operation;

static void set(Operation *o, size_t piece)
{
    o->size = PIECE;
    o->file_offset = (hoff_t)(piece * PIECE);
    o->buffer_offset = (hoff_t)(piece * PIECE);
}

static void check(const Operation *o, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (o[i].bytes != PIECE)
            DIE("piece %zu: %s", i, o[i].bytes < 0 ? io_error(o[i].bytes) : "short");
}

/* A write and a read of every piece, on the streams in turn. A stream does its work in order: each read finds what the
 * write before it has written. */
static void round_trip(hipFileHandle_t file, void *from, void *to, const hipStream_t *streams, size_t count)
{
    Operation writes[PIECES];
    Operation reads[PIECES];
    for (size_t i = 0; i < PIECES; i++) {
        hipStream_t stream = streams[i % count];
        set(&writes[i], i);
        set(&reads[i], i);
        CHECK_HIPFILE(hipFileWriteAsync(file, from, &writes[i].size, &writes[i].file_offset, &writes[i].buffer_offset,
                                        &writes[i].bytes, stream));
        CHECK_HIPFILE(hipFileReadAsync(file, to, &reads[i].size, &reads[i].file_offset, &reads[i].buffer_offset,
                                       &reads[i].bytes, stream));
    }
    for (size_t s = 0; s < count; s++)
        CHECK_HIP(hipStreamSynchronize(streams[s]));
    check(writes, PIECES);
    check(reads, PIECES);
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: %s FILE [GPU]\nFILE is replaced. GPU is a device number, default 0.\n", argv[0]);
        return 2;
    }
    const size_t size = (size_t)PIECE * PIECES;
    CHECK_HIP(hipSetDevice(argc == 3 ? atoi(argv[2]) : 0));
    unsigned char *bytes = alloc_host(size);
    void *from = NULL;
    void *to = NULL;
    CHECK_HIP(hipMalloc(&from, size));
    CHECK_HIP(hipMalloc(&to, size));

    CHECK_HIPFILE(hipFileDriverOpen());
    int fd = open_direct(argv[1], O_RDWR | O_CREAT | O_TRUNC);
    hipFileHandle_t file = register_fd(fd);
    CHECK_HIPFILE(hipFileBufRegister(from, size, 0));
    CHECK_HIPFILE(hipFileBufRegister(to, size, 0));
    hipStream_t streams[STREAMS];
    for (size_t s = 0; s < STREAMS; s++)
        CHECK_HIP(hipStreamCreateWithFlags(&streams[s], hipStreamNonBlocking));
    /* The first two are registered; the others show that this is optional. */
    const unsigned fixed =
        HIPFILE_STREAM_FIXED_BUF_OFFSET | HIPFILE_STREAM_FIXED_FILE_OFFSET | HIPFILE_STREAM_FIXED_FILE_SIZE;
    CHECK_HIPFILE(hipFileStreamRegister(streams[0], fixed));
    CHECK_HIPFILE(hipFileStreamRegister(streams[1], HIPFILE_STREAM_FIXED_FILE_SIZE));

    uint64_t expected = 0;
    for (size_t count = 1; count <= STREAMS; count += STREAMS - 1) {
        fill_pattern(bytes, size, count);
        expected = fnv1a(FNV1A_START, bytes, size);
        CHECK_HIP(hipMemcpy(from, bytes, size, hipMemcpyHostToDevice));
        CHECK_HIP(hipMemset(to, 0, size));
        /* The default stream, which these copies are ordered by, and these streams do not wait for each other. */
        CHECK_HIP(hipStreamSynchronize(NULL));
        round_trip(file, from, to, streams, count);
        CHECK_HIP(hipMemcpy(bytes, to, size, hipMemcpyDeviceToHost));
        if (fnv1a(FNV1A_START, bytes, size) != expected)
            DIE("%zu streams: what was read back differs", count);
    }

    CHECK_HIPFILE(hipFileStreamDeregister(streams[0]));
    CHECK_HIPFILE(hipFileStreamDeregister(streams[1]));
    for (size_t s = 0; s < STREAMS; s++)
        CHECK_HIP(hipStreamDestroy(streams[s]));
    CHECK_HIPFILE(hipFileBufDeregister(to));
    CHECK_HIPFILE(hipFileBufDeregister(from));
    hipFileHandleDeregister(file);
    CHECK_OS(close(fd));
    CHECK_HIPFILE(hipFileDriverClose());
    CHECK_HIP(hipFree(to));
    CHECK_HIP(hipFree(from));
    free(bytes);
    report(argv[1], "device memory", size, hash_file(argv[1], 0, size), expected);
    return 0;
}
