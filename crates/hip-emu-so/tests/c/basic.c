/*
 * basic.c - one walk through the runtime: devices, memory of each type, copies, streams, events, host functions.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "check.h"

#include <pthread.h>
#include <string.h>

enum { SIZE = 3 * 65536 + 17 };

static void count_up(void *user_data) {
    ++*(int *)user_data;
}

static void devices(void) {
    int count = 0;
    int version = 0;
    int value = -1;
    char name[64];
    hipDeviceProp_t properties;

    OK(hipInit(0));
    OK(hipRuntimeGetVersion(&version));
    CHECK(version == HIP_VERSION);
    OK(hipGetDeviceCount(&count));
    CHECK(count == 1);
    OK(hipSetDevice(0));
    OK(hipDeviceGetName(name, sizeof(name), 0));
    OK(hipGetDeviceProperties(&properties, 0));
    CHECK(strcmp(name, properties.name) == 0);
    OK(hipDeviceGetAttribute(&value, hipDeviceAttributeWarpSize, 0));
    CHECK(value == properties.warpSize);
    CHECK(strcmp(hipGetErrorName(hipErrorInvalidValue), "hipErrorInvalidValue") == 0);
}

static void memory(void) {
    unsigned char *sent = malloc(SIZE);
    unsigned char *back = calloc(SIZE, 1);
    void *device = NULL;
    void *base = NULL;
    size_t size = 0;
    hipPointerAttribute_t attributes;
    size_t at;

    CHECK(sent && back);
    for (at = 0; at < SIZE; at++)
        sent[at] = (unsigned char)(at * 7 + at / 4096);
    OK(hipMalloc(&device, SIZE));
    OK(hipMemcpy(device, sent, SIZE, hipMemcpyHostToDevice));
    OK(hipMemcpy(back, device, SIZE, hipMemcpyDeviceToHost));
    CHECK(memcmp(sent, back, SIZE) == 0);

    OK(hipMemset((char *)device + 100, 0xAB, 50));
    memset(sent + 100, 0xAB, 50);
    OK(hipMemcpy(back, device, SIZE, hipMemcpyDefault));
    CHECK(memcmp(sent, back, SIZE) == 0);

    OK(hipPointerGetAttributes(&attributes, (char *)device + 5));
    CHECK(attributes.type == hipMemoryTypeDevice && attributes.hostPointer == NULL);
    OK(hipMemGetAddressRange(&base, &size, (char *)device + 5));
    CHECK(base == device && size == SIZE);
    CHECK(hipMemcpy(back, device, SIZE + 1, hipMemcpyDeviceToHost) != hipSuccess);
    OK(hipFree(device));
    CHECK(hipFree(device) == hipErrorInvalidValue);
    free(sent);
    free(back);
}

static void streams(void) {
    hipStream_t stream = NULL;
    hipEvent_t start = NULL;
    hipEvent_t end = NULL;
    void *pinned = NULL;
    void *device = NULL;
    float milliseconds = -1;
    int calls = 0;
    int round;

    OK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    OK(hipEventCreate(&start));
    OK(hipEventCreate(&end));
    OK(hipHostMalloc(&pinned, SIZE, hipHostMallocDefault));
    OK(hipMalloc(&device, SIZE));
    memset(pinned, 0x11, SIZE);
    OK(hipEventRecord(start, stream));
    for (round = 0; round < 10; round++) {
        OK(hipMemcpyAsync(device, pinned, SIZE, hipMemcpyHostToDevice, stream));
        OK(hipLaunchHostFunc(stream, count_up, &calls));
    }
    OK(hipMemsetAsync(device, 0x22, 1000, stream));
    OK(hipMemcpyAsync(pinned, device, SIZE, hipMemcpyDeviceToHost, stream));
    OK(hipEventRecord(end, stream));
    OK(hipEventSynchronize(end));
    CHECK(calls == 10);
    CHECK(((unsigned char *)pinned)[999] == 0x22 && ((unsigned char *)pinned)[1000] == 0x11);
    OK(hipEventElapsedTime(&milliseconds, start, end));
    CHECK(milliseconds >= 0);
    OK(hipEventDestroy(start));
    OK(hipEventDestroy(end));
    OK(hipStreamSynchronize(stream));
    OK(hipStreamDestroy(stream));
    OK(hipFree(device));
    OK(hipHostFree(pinned));
}

static void *on_a_thread(void *unused) {
    (void)unused;
    memory();
    streams();
    return NULL;
}

int main(void) {
    pthread_t threads[4];
    int index;

    devices();
    memory();
    streams();
    for (index = 0; index < 4; index++)
        CHECK(pthread_create(&threads[index], NULL, on_a_thread, NULL) == 0);
    for (index = 0; index < 4; index++)
        CHECK(pthread_join(threads[index], NULL) == 0);
    puts("passed");
    return 0;
}
