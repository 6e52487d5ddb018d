/* As much of CUDA's header of this name as programs beside hipfile.h meet: types and an include guard. */
#ifndef __CUDA_RUNTIME_H__
#define __CUDA_RUNTIME_H__
typedef enum cudaError { cudaSuccess = 0, cudaErrorInvalidValue = 1 } cudaError_t;
typedef struct CUstream_st *cudaStream_t;
#endif
