/*
 * device.h: device memory for the tests: allocate, fill, take back, compare. Every access goes through HIP, for
 * the CPU cannot touch it.
 */
#ifndef HIPFILE_TEST_DEVICE_H
#define HIPFILE_TEST_DEVICE_H

#include <hip/hip_runtime_api.h>

#include "check.h"

#define CHECK_HIP(call)                                                                                                \
    do {                                                                                                               \
        const hipError_t hip_ = (call);                                                                                \
        if (hip_ != hipSuccess)                                                                                        \
            FAIL("%s gives %d: %s", #call, (int)hip_, hipGetErrorString(hip_));                                        \
    } while (0)

/* The byte that stands for "never written" in device memory. */
enum { POISON = 0xa5 };

static inline void dev_put(void *device, const void *host, size_t len)
{
    if (len > 0)
        CHECK_HIP(hipMemcpy(device, host, len, hipMemcpyHostToDevice));
}

static inline void dev_get(void *host, const void *device, size_t len)
{
    if (len > 0)
        CHECK_HIP(hipMemcpy(host, device, len, hipMemcpyDeviceToHost));
}

static inline void dev_poison(void *device, size_t len)
{
    CHECK_HIP(hipMemset(device, POISON, len));
    CHECK_HIP(hipDeviceSynchronize());
}

/* Poisoned device memory. */
static inline char *dev_alloc(size_t len)
{
    void *device = NULL;
    CHECK_HIP(hipMalloc(&device, len));
    CHECK(device != NULL);
    dev_poison(device, len);
    return (char *)device;
}

/* Device memory with `pattern(seed)` in it. */
static inline char *dev_pattern(size_t len, uint64_t seed)
{
    char *device = dev_alloc(len);
    unsigned char *host = host_alloc(len);
    pattern(host, len, seed);
    dev_put(device, host, len);
    free(host);
    return device;
}

#define CHECK_DEVICE(device, expected, len) check_device(__FILE__, __LINE__, #device, device, expected, len)

static inline void check_device(const char *file, int line, const char *what, const void *device, const void *expected,
                                size_t len)
{
    unsigned char *host = host_alloc(len);
    dev_get(host, device, len);
    check_bytes(file, line, what, host, expected, len);
    free(host);
}

/* Nothing was written there since `dev_poison`. */
#define CHECK_POISON(device, len) check_poison(__FILE__, __LINE__, #device, device, len)

static inline void check_poison(const char *file, int line, const char *what, const void *device, size_t len)
{
    unsigned char *poison = host_alloc(len);
    memset(poison, POISON, len);
    check_device(file, line, what, device, poison, len);
    free(poison);
}

#endif
