/*
 * leave.c - ends while everything is still open: streams with work, a host function that runs, memory of all types.
 * The process must end at once and well, by return or by exit from another thread, as the argument says.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "check.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

static void sleep_long(void *unused) {
    (void)unused;
    sleep(1000);
}

static void *leave(void *unused) {
    (void)unused;
    exit(0);
}

int main(int argc, char **argv) {
    hipStream_t stream = NULL;
    hipEvent_t event = NULL;
    void *device = NULL;
    void *pinned = NULL;
    pthread_t thread;

    OK(hipMalloc(&device, 1 << 20));
    OK(hipHostMalloc(&pinned, 1 << 20, hipHostMallocDefault));
    OK(hipStreamCreate(&stream));
    OK(hipEventCreate(&event));
    OK(hipLaunchHostFunc(stream, sleep_long, NULL));
    OK(hipMemcpyAsync(device, pinned, 1 << 20, hipMemcpyHostToDevice, stream));
    OK(hipEventRecord(event, stream));
    CHECK(hipStreamQuery(stream) == hipErrorNotReady);
    puts("leaving");
    if (argc > 1 && strcmp(argv[1], "exit") == 0) {
        CHECK(pthread_create(&thread, NULL, leave, NULL) == 0);
        sleep(1000);
    }
    return 0;
}
