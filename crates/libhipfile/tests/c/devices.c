/*
 * devices: several GPUs. The caller's current device is the caller's: whatever device a buffer is on, and whatever a
 * call comes to, it is the same afterwards.
 */
#include <pthread.h>

#include "device.h"

enum { LEN = 20000, MAX_DEVICES = 8 };

static int count;
static char *buffers[MAX_DEVICES];
static hipFileHandle_t file, read_only;
static int fd;

static int current(void)
{
    int device = -1;
    CHECK_HIP(hipGetDevice(&device));
    return device;
}

/* One call, and a look at the current device around it. */
#define KEEPS_DEVICE(check)                                                                                            \
    do {                                                                                                               \
        const int before_ = current();                                                                                 \
        check;                                                                                                         \
        CHECK_EQ(current(), before_);                                                                                  \
    } while (0)

static void fill(char *buffer, uint64_t seed, unsigned char *bytes)
{
    pattern(bytes, LEN, seed);
    dev_put(buffer, bytes, LEN);
}

static hipStream_t stream_of(int device)
{
    const int before = current();
    hipStream_t stream;
    CHECK_HIP(hipSetDevice(device));
    CHECK_HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    CHECK_HIP(hipSetDevice(before));
    return stream;
}

static ssize_t on_stream(bool write, hipFileHandle_t handle, char *buffer, size_t size, hipStream_t stream)
{
    hoff_t offset = 0, at = 0;
    ssize_t bytes = -77;
    KEEPS_DEVICE(CHECK_OK(write ? hipFileWriteAsync(handle, buffer, &size, &offset, &at, &bytes, stream)
                                : hipFileReadAsync(handle, buffer, &size, &offset, &at, &bytes, stream)));
    CHECK_HIP(hipStreamSynchronize(stream));
    return bytes;
}

static hipFileIOEvents_t by_batch(bool write, hipFileHandle_t handle, char *buffer, size_t size)
{
    hipFileBatchHandle_t batch;
    hipFileIOParams_t params = { .mode = hipFileBatch, .fh = handle };
    params.opcode = write ? hipFileBatchWrite : hipFileBatchRead;
    params.u.batch.devPtr_base = buffer;
    params.u.batch.size = size;
    hipFileIOEvents_t event;
    unsigned nr = 1;
    KEEPS_DEVICE(CHECK_OK(hipFileBatchIOSetUp(&batch, 1)));
    KEEPS_DEVICE(CHECK_OK(hipFileBatchIOSubmit(batch, 1, &params, 0)));
    KEEPS_DEVICE(CHECK_OK(hipFileBatchIOGetStatus(batch, 1, &nr, &event, NULL)));
    CHECK_EQ(nr, 1);
    KEEPS_DEVICE(hipFileBatchIODestroy(batch));
    return event;
}

static void async_and_batch(char *buffer, const unsigned char *bytes, hipStream_t stream)
{
    KEEPS_DEVICE(CHECK_EQ(on_stream(true, file, buffer, LEN, stream), LEN));
    CHECK_HIP(hipMemset(buffer, POISON, LEN));
    KEEPS_DEVICE(CHECK_EQ(on_stream(false, file, buffer, LEN, stream), LEN));
    CHECK_DEVICE(buffer, bytes, LEN);
    CHECK_EQ(by_batch(true, file, buffer, LEN).status, hipFileComplete);
    CHECK_HIP(hipMemset(buffer, POISON, LEN));
    const hipFileIOEvents_t event = by_batch(false, file, buffer, LEN);
    CHECK_EQ(event.status, hipFileComplete);
    CHECK_EQ((ssize_t)event.ret, LEN);
    CHECK_DEVICE(buffer, bytes, LEN);

    /* Of a file that may not be written. */
    KEEPS_DEVICE(CHECK_EQ(on_stream(true, read_only, buffer, LEN, stream), -1));
    CHECK_EQ(by_batch(true, read_only, buffer, LEN).status, hipFileFailed);
    CHECK_DEVICE(buffer, bytes, LEN);
}

static void behaviour_57_pair(int on, int with)
{
    unsigned char bytes[LEN], host[16];
    char *buffer = buffers[with];
    CHECK_HIP(hipSetDevice(on));
    fill(buffer, (uint64_t)(on * 16 + with), bytes);

    KEEPS_DEVICE(CHECK_IO(hipFileWrite(file, buffer, LEN, 0, 0), LEN));
    CHECK_HIP(hipMemset(buffer, POISON, LEN));
    KEEPS_DEVICE(CHECK_IO(hipFileRead(file, buffer, LEN, 0, 0), LEN));
    CHECK_DEVICE(buffer, bytes, LEN);
    KEEPS_DEVICE(CHECK_IO(hipFileRead(file, buffer + 3, 1001, 4097, 0), 1001));
    CHECK_DEVICE(buffer + 3, bytes + 4097, 1001);

    KEEPS_DEVICE(CHECK_OK(hipFileBufRegister(buffer, LEN, 0)));
    KEEPS_DEVICE(CHECK_IO(hipFileRead(file, buffer, LEN, 0, 0), LEN));
    CHECK_DEVICE(buffer, bytes, LEN);

    /* The same on a stream of that GPU and by a batch, and what they come to when it fails. */
    hipStream_t stream;
    KEEPS_DEVICE(stream = stream_of(with));
    KEEPS_DEVICE(async_and_batch(buffer, bytes, stream));
    CHECK_HIP(hipStreamDestroy(stream));
    CHECK_EQ(current(), on);

    /* Refusals. */
    KEEPS_DEVICE(CHECK_CODE(hipFileBufRegister(buffer, LEN, 0), hipFileMemoryAlreadyRegistered));
    KEEPS_DEVICE(CHECK_CODE(hipFileBufRegister(buffer + 1, (size_t)1 << 40, 0), hipFileHipPointerRangeError));
    KEEPS_DEVICE(CHECK_CODE(hipFileBufRegister(host, sizeof host, 0), hipFileHipMemoryTypeInvalid));
    KEEPS_DEVICE(CHECK_IO(hipFileRead(file, buffer, LEN + 1, 0, 0), -hipFileInvalidValue));
    KEEPS_DEVICE(CHECK_IO(hipFileRead(file, host, 1, 0, 0), -hipFileHipMemoryTypeInvalid));
    KEEPS_DEVICE(CHECK_ERRNO(hipFileWrite(file, buffer, 1, -1, 0), EINVAL));
    KEEPS_DEVICE(CHECK_EQ(hipFileWrite(file, buffer, 1, INT64_MAX, 0), -1));
    KEEPS_DEVICE(CHECK_OK(hipFileBufDeregister(buffer)));
}

/* A thread that never chose a device is on device 0, and stays there. */
static void *in_a_fresh_thread(void *nothing)
{
    unsigned char bytes[LEN];
    CHECK_IO(hipFileRead(file, buffers[count - 1], 1, 0, 0), 1);
    CHECK_EQ(current(), 0);
    for (int device = 0; device < count; device++) {
        fill(buffers[device], (uint64_t)(100 + device), bytes);
        CHECK_IO(hipFileWrite(file, buffers[device], LEN, 0, 0), LEN);
        CHECK_IO(hipFileRead(file, buffers[(device + 1) % count], LEN, 0, 0), LEN);
        CHECK_DEVICE(buffers[(device + 1) % count], bytes, LEN);
        CHECK_EQ(current(), 0);
    }
    return nothing;
}

int main(int argc, char **argv)
{
    CHECK_HIP(hipGetDeviceCount(&count));
    CHECK_EQ(argc, 2);
    CHECK_EQ(count, atoi(argv[1]));
    CHECK(count >= 2 && count <= MAX_DEVICES);
    for (int device = 0; device < count; device++) {
        CHECK_HIP(hipSetDevice(device));
        buffers[device] = dev_alloc(LEN);
    }
    fd = open_file("data", O_RDWR | O_CREAT | O_TRUNC);
    KEEPS_DEVICE(CHECK_OK(hipFileDriverOpen()));
    KEEPS_DEVICE(file = register_fd(fd));
    const int read_only_fd = open_file("data", O_RDONLY);
    KEEPS_DEVICE(read_only = register_fd(read_only_fd));
    for (int on = 0; on < count; on++)
        for (int with = 0; with < count; with++)
            behaviour_57_pair(on, with);

    CHECK_HIP(hipSetDevice(1));
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, in_a_fresh_thread, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(current(), 1);

    KEEPS_DEVICE(hipFileHandleDeregister(file));
    KEEPS_DEVICE(hipFileHandleDeregister(read_only));
    CHECK_EQ(close(read_only_fd), 0);
    KEEPS_DEVICE(CHECK_OK(hipFileDriverClose()));
    CHECK_EQ(close(fd), 0);
    printf("OK devices %d\n", count);
    return 0;
}
