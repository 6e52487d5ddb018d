/*
 * hip/hip_runtime_api.h - header of hipfile's emulated GPU, not AMD's: HIP as far as the emulation has it.
 *
 * Programs built with it run on the emulation and, as names, values and layouts are HIP's, on AMD's runtime too.
 * What a function does is HIP's documentation's matter; comments here say what is particular. Every function may be
 * called from any thread. Those that return hipError_t return hipSuccess or say what is wrong.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef HIP_INCLUDE_HIP_HIP_RUNTIME_API_H
#define HIP_INCLUDE_HIP_HIP_RUNTIME_API_H

#if !defined(__HIP_PLATFORM_AMD__) || defined(__HIP_PLATFORM_NVIDIA__)
#error "hip/hip_runtime_api.h: define __HIP_PLATFORM_AMD__ and no other __HIP_PLATFORM_; this is an emulated AMD GPU"
#endif

#include <hip/hip_emu_types.h>
#include <hip/hip_version.h>

/* A parameter's default value, which C++ programs may rely on. */
#ifdef __cplusplus
#define HIP_EMU_DEFAULT(value) = value
#else
#define HIP_EMU_DEFAULT(value)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Devices. The current device is the calling thread's own, 0 at first. */
hipError_t hipInit(unsigned int flags);
hipError_t hipRuntimeGetVersion(int *version);
hipError_t hipDriverGetVersion(int *version);
hipError_t hipGetDeviceCount(int *count);
hipError_t hipGetDevice(int *device);
hipError_t hipSetDevice(int device);
hipError_t hipDeviceGet(hipDevice_t *device, int ordinal);
hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t attribute, int device);
hipError_t hipDeviceGetName(char *name, int len, hipDevice_t device);
hipError_t hipDeviceGetPCIBusId(char *id, int len, int device);
hipError_t hipDeviceGetByPCIBusId(int *device, const char *id);
hipError_t hipDeviceGetUuid(hipUUID *uuid, hipDevice_t device);
hipError_t hipDeviceTotalMem(size_t *bytes, hipDevice_t device);
hipError_t hipDeviceComputeCapability(int *major, int *minor, hipDevice_t device);
hipError_t hipDeviceSynchronize(void);
hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600 *properties, int device);
hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer);
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned int flags);
hipError_t hipDeviceDisablePeerAccess(int peer);
hipError_t hipDeviceGetStreamPriorityRange(int *least, int *greatest);

/* Errors. Texts are static and never NULL. */
const char *hipGetErrorName(hipError_t error);
const char *hipGetErrorString(hipError_t error);
hipError_t hipDrvGetErrorName(hipError_t error, const char **text);
hipError_t hipDrvGetErrorString(hipError_t error, const char **text);
hipError_t hipGetLastError(void);
hipError_t hipPeekAtLastError(void);
hipError_t hipExtGetLastError(void);

/* What a pointer is. */
hipError_t hipPointerGetAttributes(hipPointerAttribute_t *attributes, const void *ptr);
hipError_t hipPointerGetAttribute(void *data, hipPointer_attribute attribute, hipDeviceptr_t ptr);
hipError_t hipMemGetAddressRange(hipDeviceptr_t *base, size_t *size, hipDeviceptr_t ptr);

/* Device memory. */
hipError_t hipMalloc(void **ptr, size_t size);
hipError_t hipFree(void *ptr);
hipError_t hipMallocAsync(void **ptr, size_t size, hipStream_t stream);
hipError_t hipFreeAsync(void *ptr, hipStream_t stream);
hipError_t hipMallocManaged(void **ptr, size_t size, unsigned int flags HIP_EMU_DEFAULT(hipMemAttachGlobal));
hipError_t hipExtMallocWithFlags(void **ptr, size_t size, unsigned int flags);
hipError_t hipMemGetInfo(size_t *free, size_t *total);

/* Virtual memory: addresses are reserved, memory is mapped there, access is granted. Sizes are multiples of 2 MiB. */
hipError_t hipMemGetAllocationGranularity(size_t *granularity, const hipMemAllocationProp *prop,
                                          hipMemAllocationGranularity_flags option);
hipError_t hipMemCreate(hipMemGenericAllocationHandle_t *handle, size_t size, const hipMemAllocationProp *prop,
                        unsigned long long flags);
hipError_t hipMemRelease(hipMemGenericAllocationHandle_t handle);
hipError_t hipMemAddressReserve(void **ptr, size_t size, size_t alignment, void *addr, unsigned long long flags);
hipError_t hipMemAddressFree(void *ptr, size_t size);
hipError_t hipMemMap(void *ptr, size_t size, size_t offset, hipMemGenericAllocationHandle_t handle,
                     unsigned long long flags);
hipError_t hipMemUnmap(void *ptr, size_t size);
hipError_t hipMemSetAccess(void *ptr, size_t size, const hipMemAccessDesc *desc, size_t count);
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *ptr);
hipError_t hipIpcOpenMemHandle(void **ptr, hipIpcMemHandle_t handle, unsigned int flags);
hipError_t hipIpcCloseMemHandle(void *ptr);
hipError_t hipMemRetainAllocationHandle(hipMemGenericAllocationHandle_t *handle, void *addr);

/* Pinned host memory. */
hipError_t hipHostMalloc(void **ptr, size_t size, unsigned int flags);
hipError_t hipHostAlloc(void **ptr, size_t size, unsigned int flags);
hipError_t hipMallocHost(void **ptr, size_t size);
hipError_t hipHostFree(void *ptr);
hipError_t hipFreeHost(void *ptr);
hipError_t hipHostRegister(void *ptr, size_t size, unsigned int flags);
hipError_t hipHostUnregister(void *ptr);
hipError_t hipHostGetDevicePointer(void **device, void *host, unsigned int flags);
hipError_t hipHostGetFlags(unsigned int *flags, void *host);

/* Copies. */
hipError_t hipMemcpy(void *dst, const void *src, size_t size, hipMemcpyKind kind);
hipError_t hipMemcpyAsync(void *dst, const void *src, size_t size, hipMemcpyKind kind,
                          hipStream_t stream HIP_EMU_DEFAULT(0));
hipError_t hipMemcpyWithStream(void *dst, const void *src, size_t size, hipMemcpyKind kind, hipStream_t stream);
hipError_t hipMemcpyHtoD(hipDeviceptr_t dst, const void *src, size_t size);
hipError_t hipMemcpyDtoH(void *dst, hipDeviceptr_t src, size_t size);
hipError_t hipMemcpyDtoD(hipDeviceptr_t dst, hipDeviceptr_t src, size_t size);
hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t dst, const void *src, size_t size, hipStream_t stream);
hipError_t hipMemcpyDtoHAsync(void *dst, hipDeviceptr_t src, size_t size, hipStream_t stream);
hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t dst, hipDeviceptr_t src, size_t size, hipStream_t stream);
hipError_t hipMemcpyPeer(void *dst, int dst_device, const void *src, int src_device, size_t size);
hipError_t hipMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device, size_t size,
                              hipStream_t stream HIP_EMU_DEFAULT(0));

/* Memsets. Those with D32 in the name count values of four bytes, all others bytes. */
hipError_t hipMemset(void *dst, int value, size_t size);
hipError_t hipMemsetAsync(void *dst, int value, size_t size, hipStream_t stream HIP_EMU_DEFAULT(0));
hipError_t hipMemsetD8(hipDeviceptr_t dst, unsigned char value, size_t count);
hipError_t hipMemsetD8Async(hipDeviceptr_t dst, unsigned char value, size_t count,
                            hipStream_t stream HIP_EMU_DEFAULT(0));
hipError_t hipMemsetD32(hipDeviceptr_t dst, int value, size_t count);
hipError_t hipMemsetD32Async(hipDeviceptr_t dst, int value, size_t count, hipStream_t stream HIP_EMU_DEFAULT(0));

/* Streams. */
hipError_t hipStreamCreate(hipStream_t *stream);
hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned int flags);
hipError_t hipStreamCreateWithPriority(hipStream_t *stream, unsigned int flags, int priority);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamQuery(hipStream_t stream);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int flags HIP_EMU_DEFAULT(0));
hipError_t hipStreamGetFlags(hipStream_t stream, unsigned int *flags);
hipError_t hipStreamGetPriority(hipStream_t stream, int *priority);
hipError_t hipStreamGetDevice(hipStream_t stream, hipDevice_t *device);
/* A function that calls HIP is a program's error, which real HIP answers with a deadlock: the emulation says so and
 * aborts. */
hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void *user_data);

/* Stream memory operations. */
hipError_t hipStreamWaitValue32(hipStream_t stream, void *ptr, uint32_t value, unsigned int flags,
                                uint32_t mask HIP_EMU_DEFAULT(0xffffffffu));
hipError_t hipStreamWaitValue64(hipStream_t stream, void *ptr, uint64_t value, unsigned int flags,
                                uint64_t mask HIP_EMU_DEFAULT(UINT64_MAX));
hipError_t hipStreamWriteValue32(hipStream_t stream, void *ptr, uint32_t value, unsigned int flags);
hipError_t hipStreamWriteValue64(hipStream_t stream, void *ptr, uint64_t value, unsigned int flags);

/* Events. */
hipError_t hipEventCreate(hipEvent_t *event);
hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned int flags);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream HIP_EMU_DEFAULT(0));
hipError_t hipEventQuery(hipEvent_t event);
hipError_t hipEventSynchronize(hipEvent_t event);
hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t start, hipEvent_t stop);
hipError_t hipEventDestroy(hipEvent_t event);

/* Stream capture. The emulation records that a stream is captured, not what. */
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode);
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph);
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus *status);
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode);
hipError_t hipGraphDestroy(hipGraph_t graph);

/* Programs that hiprtc made. */
hipError_t hipModuleLoadData(hipModule_t *module, const void *image);
hipError_t hipModuleUnload(hipModule_t module);
hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name);
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned int grid_x, unsigned int grid_y,
                                 unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                 unsigned int block_z, unsigned int shared_bytes, hipStream_t stream,
                                 void **params, void **extra);

/* Functions by name. */
hipError_t hipGetProcAddress(const char *symbol, void **function, int version, uint64_t flags,
                             hipDriverProcAddressQueryResult *status);

#ifdef __cplusplus
}

/* The same with typed pointers. */
template <class T> static inline hipError_t hipMalloc(T **ptr, size_t size) {
    return hipMalloc(reinterpret_cast<void **>(ptr), size);
}
template <class T> static inline hipError_t hipMallocManaged(T **ptr, size_t size,
                                                             unsigned int flags = hipMemAttachGlobal) {
    return hipMallocManaged(reinterpret_cast<void **>(ptr), size, flags);
}
template <class T> static inline hipError_t hipHostMalloc(T **ptr, size_t size,
                                                          unsigned int flags = hipHostMallocDefault) {
    return hipHostMalloc(reinterpret_cast<void **>(ptr), size, flags);
}
#endif

#undef HIP_EMU_DEFAULT

#endif
