/*
 * streams: operations on streams as a C program meets them: registered or not, fixed or late-bound, several streams at once,
 * the default streams, refusals, and what is left behind.
 */
#include <hipfile_ext.h>

#include "device.h"

enum { PIECE = 4096 + 17, PIECES = 24, LEN = PIECE * PIECES, STREAMS = 6 };

typedef struct {
    size_t size;
    hoff_t file_offset;
    hoff_t buffer_offset;
    ssize_t bytes;
} Operation;

static Operation operation(size_t piece)
{
    const Operation made = { PIECE, (hoff_t)(piece * PIECE), (hoff_t)(piece * PIECE), -77 };
    return made;
}

static hipFileError_t read_async(hipFileHandle_t file, void *device, Operation *o, hipStream_t stream)
{
    return hipFileReadAsync(file, device, &o->size, &o->file_offset, &o->buffer_offset, &o->bytes, stream);
}

static hipFileError_t write_async(hipFileHandle_t file, void *device, Operation *o, hipStream_t stream)
{
    return hipFileWriteAsync(file, device, &o->size, &o->file_offset, &o->buffer_offset, &o->bytes, stream);
}

static void registrations(hipStream_t stream)
{
    CHECK_CODE(hipFileStreamDeregister(stream), hipFileInvalidValue);
    CHECK_CODE(hipFileStreamRegister(stream, HIPFILE_STREAM_FLAGS_MASK + 1), hipFileInvalidValue);
    CHECK_OK(hipFileStreamRegister(stream, 0));
    CHECK_CODE(hipFileStreamRegister(stream, 0), hipFileInvalidValue);
    CHECK_OK(hipFileStreamDeregister(stream));
    CHECK_EQ(hipFileUseCount(), 0);
}

static void refusals(hipFileHandle_t file, char *device)
{
    Operation o = operation(0);
    CHECK_CODE(hipFileReadAsync(file, device, NULL, &o.file_offset, &o.buffer_offset, &o.bytes, NULL), hipFileInvalidValue);
    CHECK_CODE(hipFileReadAsync(file, device, &o.size, NULL, &o.buffer_offset, &o.bytes, NULL), hipFileInvalidValue);
    CHECK_CODE(hipFileReadAsync(file, device, &o.size, &o.file_offset, NULL, &o.bytes, NULL), hipFileInvalidValue);
    CHECK_CODE(hipFileReadAsync(file, device, &o.size, &o.file_offset, &o.buffer_offset, NULL, NULL), hipFileInvalidValue);
    CHECK_CODE(read_async(file, NULL, &o, NULL), hipFileInvalidValue);
    CHECK_CODE(read_async(NULL, device, &o, NULL), hipFileHandleNotRegistered);
    CHECK_CODE(read_async(file, &o, &o, NULL), hipFileInternalError);
    o.size = LEN + 1;
    CHECK_CODE(write_async(file, device, &o, NULL), hipFileInvalidValue);
    o = operation(0);
    o.file_offset = -1;
    CHECK_CODE(write_async(file, device, &o, NULL), hipFileInvalidValue);
    CHECK_EQ(o.bytes, -77);
    o = operation(0);
    o.size = 0;
    CHECK_OK(read_async(file, device, &o, NULL));
    CHECK_EQ(o.bytes, 0);
}

/* Memory to file on one stream, back into other memory, in order, without a wait between. */
static void there_and_back(hipFileHandle_t file, hipStream_t stream, unsigned flags, bool registered)
{
    char *from = dev_pattern(LEN, 5 + flags);
    char *to = dev_alloc(LEN);
    Operation out[PIECES], in[PIECES];
    if (registered)
        CHECK_OK(hipFileStreamRegister(stream, flags));
    for (size_t i = 0; i < PIECES; i++) {
        out[i] = operation(i);
        in[i] = operation(i);
        CHECK_OK(write_async(file, from, &out[i], stream));
        CHECK_OK(read_async(file, to, &in[i], stream));
        if (registered && flags & HIPFILE_STREAM_FIXED_FILE_SIZE)
            out[i].size = in[i].size = 1;
        if (registered && flags & HIPFILE_STREAM_FIXED_FILE_OFFSET)
            out[i].file_offset = in[i].file_offset = -1;
        if (registered && flags & HIPFILE_STREAM_FIXED_BUF_OFFSET)
            out[i].buffer_offset = in[i].buffer_offset = LEN;
    }
    if (registered)
        CHECK_OK(hipFileStreamDeregister(stream));
    CHECK_HIP(hipStreamSynchronize(stream));
    for (size_t i = 0; i < PIECES; i++) {
        CHECK_EQ(out[i].bytes, PIECE);
        CHECK_EQ(in[i].bytes, PIECE);
    }
    unsigned char *expected = host_alloc(LEN);
    pattern(expected, LEN, 5 + flags);
    CHECK_DEVICE(to, expected, LEN);
    free(expected);
    CHECK_HIP(hipFree(from));
    CHECK_HIP(hipFree(to));
}

/* Each stream has pieces of its own. */
static void several(hipFileHandle_t file, char *device)
{
    hipStream_t streams[STREAMS];
    Operation all[PIECES];
    dev_poison(device, LEN);
    for (size_t s = 0; s < STREAMS; s++) {
        CHECK_HIP(hipStreamCreateWithFlags(&streams[s], s % 2 ? hipStreamNonBlocking : hipStreamDefault));
        if (s % 3 == 0)
            CHECK_OK(hipFileStreamRegister(streams[s], (unsigned)s));
    }
    for (size_t i = 0; i < PIECES; i++) {
        all[i] = operation(i);
        CHECK_OK(read_async(file, device, &all[i], streams[i % STREAMS]));
    }
    for (size_t s = 0; s < STREAMS; s++) {
        CHECK_HIP(hipStreamSynchronize(streams[s]));
        CHECK_HIP(hipStreamDestroy(streams[s]));
    }
    unsigned char *expected = host_alloc(LEN);
    pattern(expected, LEN, 2);
    CHECK_DEVICE(device, expected, LEN);
    free(expected);
    for (size_t i = 0; i < PIECES; i++)
        CHECK_EQ(all[i].bytes, PIECE);
    for (size_t s = 0; s < STREAMS; s += 3)
        CHECK_OK(hipFileStreamDeregister(streams[s]));
}

static void end_of_file_and_errors(hipFileHandle_t file, char *device)
{
    Operation o = operation(PIECES - 1);
    o.file_offset += 4000;
    CHECK_OK(read_async(file, device, &o, NULL));
    CHECK_HIP(hipStreamSynchronize(NULL));
    CHECK_EQ(o.bytes, PIECE - 4000);
    o = operation(0);
    o.file_offset = LEN;
    CHECK_OK(read_async(file, device, &o, NULL));
    CHECK_HIP(hipStreamSynchronize(NULL));
    CHECK_EQ(o.bytes, 0);

    const int fd = open_file("data", O_RDONLY);
    hipFileHandle_t read_only = register_fd(fd);
    hipFileExtErrorInfo_t info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    CHECK_OK(write_async(read_only, device, &o, NULL));
    CHECK_HIP(hipStreamSynchronize(NULL));
    CHECK_EQ(o.bytes, -1);
    CHECK_OK(hipFileExtStreamError(&o.bytes, &info));
    CHECK_EQ(info.os_error, EBADF);
    CHECK(strstr(info.text, "hipFileWriteAsync") != NULL);
    hipFileHandleDeregister(read_only);
    CHECK_EQ(close(fd), 0);
}

int main(void)
{
    char *device = dev_alloc(LEN);
    hipStream_t stream;
    CHECK_HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    registrations(NULL);
    registrations(stream);
    make_file("data", LEN, 2);
    const int fd = open_file("data", O_RDWR);
    Operation o = operation(0);
    CHECK_CODE(read_async(NULL, device, &o, NULL), hipFileInvalidValue);
    CHECK_EQ(hipFileUseCount(), 1);
    hipFileHandle_t file = register_fd(fd);
    CHECK_OK(hipFileBufRegister(device, LEN, 0));
    refusals(file, device);
    several(file, device);
    end_of_file_and_errors(file, device);
    there_and_back(file, stream, 0, false);
    there_and_back(file, NULL, 0, false);
    there_and_back(file, hipStreamPerThread, 0, false);
    for (unsigned flags = 0; flags <= HIPFILE_STREAM_FLAGS_MASK; flags++)
        there_and_back(file, flags % 3 ? stream : NULL, flags, true);
    CHECK_OK(hipFileBufDeregister(device));
    hipFileHandleDeregister(file);
    close_driver_fully();
    CHECK_HIP(hipStreamDestroy(stream));
    CHECK_EQ(close(fd), 0);
    CHECK_HIP(hipFree(device));
    puts("OK streams");
    return 0;
}
