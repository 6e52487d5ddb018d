/*
 * devices: several GPUs. The caller's current device is the caller's: whatever device a buffer is on, and whatever a
 * call comes to, it is the same afterwards.
 */
#include <pthread.h>

#include "device.h"

enum { LEN = 20000, MAX_DEVICES = 8 };

static int count;
static char *buffers[MAX_DEVICES];
static hipFileHandle_t file;
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
    for (int on = 0; on < count; on++)
        for (int with = 0; with < count; with++)
            behaviour_57_pair(on, with);

    CHECK_HIP(hipSetDevice(1));
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, in_a_fresh_thread, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(current(), 1);

    KEEPS_DEVICE(hipFileHandleDeregister(file));
    KEEPS_DEVICE(CHECK_OK(hipFileDriverClose()));
    CHECK_EQ(close(fd), 0);
    printf("OK devices %d\n", count);
    return 0;
}
