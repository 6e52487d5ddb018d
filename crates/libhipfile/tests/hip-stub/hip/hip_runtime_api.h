/* The two names of HIP's header that hipfile.h uses, for compiling it where HIP is not installed. */
#ifndef HIP_INCLUDE_HIP_HIP_RUNTIME_API_H
#define HIP_INCLUDE_HIP_HIP_RUNTIME_API_H
typedef enum hipError_t { hipSuccess = 0, hipErrorInvalidValue = 1, hipErrorUnknown = 999 } hipError_t;
typedef struct ihipStream_t *hipStream_t;
#endif
