/*
 * overloads.cpp - the conveniences that HIP's header has for C++: typed pointers and default values.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "check.h"

int main() {
    float *device = nullptr;
    double *pinned = nullptr;
    int *managed = nullptr;
    hipEvent_t event = nullptr;

    OK(hipMalloc(&device, 4096));
    OK(hipHostMalloc(&pinned, 4096));
    OK(hipMallocManaged(&managed, 4096));
    pinned[511] = 1.5;
    managed[1023] = 7;
    OK(hipMemcpyAsync(device, pinned, 4096, hipMemcpyHostToDevice));
    OK(hipMemsetAsync(pinned, 0, 4096));
    OK(hipEventCreate(&event));
    OK(hipEventRecord(event));
    OK(hipStreamWaitEvent(hipStreamPerThread, event));
    OK(hipMemcpyAsync(pinned, device, 4096, hipMemcpyDeviceToHost));
    OK(hipDeviceSynchronize());
    CHECK(pinned[511] == 1.5);
    OK(hipEventDestroy(event));
    OK(hipFree(device));
    OK(hipFree(managed));
    OK(hipHostFree(pinned));
    puts("passed");
    return 0;
}
