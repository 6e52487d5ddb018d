/*
 * roundtrip CREATED: hipFile in a program of CUDA's runtime, with no HIP on the machine.
 *
 * Memory of an NVIDIA GPU -> CREATED by a call -> other memory of that GPU in the order of a CUDA stream; then that memory is
 * compared with what was written. CUDA's header comes first: hipStream_t is cudaStream_t then, and device pointers are CUDA's.
 *
 * cc -I... roundtrip.c -lhipfile -lcudart
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_DIRECT */
#endif

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda_runtime.h>

#include <hipfile.h>

#define SIZE ((size_t)8 * 1024 * 1024 + 321) /* ends in the middle of a block */

/* Prints the message and ends the program with status 1. */
#define DIE(...) (fprintf(stderr, "%s:%d: ", __FILE__, __LINE__), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))

#define CHECK_CUDA(call)                                                                                               \
    do {                                                                                                               \
        cudaError_t cuda_ = (call);                                                                                    \
        if (cuda_ != cudaSuccess)                                                                                      \
            DIE("%s: %s", #call, cudaGetErrorString(cuda_));                                                           \
    } while (0)

/* `hip_drv_err` has CUDA's own number where CUDA was the reason. */
#define CHECK_HIPFILE(call)                                                                                            \
    do {                                                                                                               \
        hipFileError_t status_ = (call);                                                                               \
        if (IS_HIP_DRV_ERR(status_))                                                                                   \
            DIE("%s: CUDA said: %s", #call, cudaGetErrorString((cudaError_t)HIP_DRV_ERR(status_)));                    \
        if (status_.err != hipFileSuccess)                                                                             \
            DIE("%s: %s (%d)", #call, hipFileGetOpErrorString(status_.err), (int)status_.err);                         \
    } while (0)

static hipFileHandle_t register_fd(int fd)
{
    hipFileHandle_t handle = NULL;
    hipFileDescr_t descr;
    memset(&descr, 0, sizeof descr);
    descr.type = hipFileHandleTypeOpaqueFD;
    descr.handle.fd = fd;
    CHECK_HIPFILE(hipFileHandleRegister(&handle, &descr));
    return handle;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s CREATED\nThe file is replaced.\n", argv[0]);
        return 2;
    }
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0644);
    if (fd == -1 && errno == EINVAL) /* no O_DIRECT here: the library works either way */
        fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd == -1)
        DIE("cannot open %s: %s", argv[1], strerror(errno));

    unsigned char *pattern = (unsigned char *)malloc(SIZE);
    unsigned char *found = (unsigned char *)malloc(SIZE);
    if (pattern == NULL || found == NULL)
        DIE("no memory for %zu bytes", SIZE);
    for (size_t i = 0; i < SIZE; i++)
        pattern[i] = (unsigned char)(i * 31 + i / 4096);

    void *from = NULL;
    void *to = NULL;
    cudaStream_t stream = NULL;
    CHECK_CUDA(cudaSetDevice(0));
    CHECK_CUDA(cudaMalloc(&from, SIZE));
    CHECK_CUDA(cudaMalloc(&to, SIZE));
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaMemcpy(from, pattern, SIZE, cudaMemcpyHostToDevice));

    CHECK_HIPFILE(hipFileDriverOpen());
    hipFileHandle_t file = register_fd(fd);
    ssize_t written = hipFileWrite(file, from, SIZE, 0, 0);
    if (written != (ssize_t)SIZE)
        DIE("hipFileWrite: %zd of %zu bytes", written, SIZE);

    /* Before the read in the stream's order, and after it: the variables must stay until the stream is waited for. */
    size_t size = SIZE;
    hoff_t file_offset = 0;
    hoff_t buffer_offset = 0;
    ssize_t got = -1;
    CHECK_HIPFILE(hipFileStreamRegister(stream, 0));
    CHECK_CUDA(cudaMemsetAsync(to, 0, SIZE, stream));
    CHECK_HIPFILE(hipFileReadAsync(file, to, &size, &file_offset, &buffer_offset, &got, stream));
    CHECK_CUDA(cudaMemcpyAsync(found, to, SIZE, cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_HIPFILE(hipFileStreamDeregister(stream));
    if (got != (ssize_t)SIZE)
        DIE("hipFileReadAsync: %zd of %zu bytes", got, SIZE);
    if (memcmp(pattern, found, SIZE) != 0)
        DIE("%s came back otherwise than it was written", argv[1]);

    hipFileHandleDeregister(file);
    CHECK_HIPFILE(hipFileDriverClose());
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(to));
    CHECK_CUDA(cudaFree(from));
    free(found);
    free(pattern);
    close(fd);
    printf("OK %s == device memory (%zu bytes)\n", argv[1], SIZE);
    return 0;
}
