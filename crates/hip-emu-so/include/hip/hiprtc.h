/*
 * hip/hiprtc.h - header of hipfile's emulated GPU, not AMD's: the run-time compiler, in libhiprtc.so.
 *
 * The emulated compiler compiles the one program that it knows by its kernel's name, and answers all others with
 * HIPRTC_ERROR_COMPILATION and a log.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef HIPRTC_H
#define HIPRTC_H

#include <hip/hip_version.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hiprtcResult {
    HIPRTC_SUCCESS = 0,
    HIPRTC_ERROR_OUT_OF_MEMORY = 1,
    HIPRTC_ERROR_PROGRAM_CREATION_FAILURE = 2,
    HIPRTC_ERROR_INVALID_INPUT = 3,
    HIPRTC_ERROR_INVALID_PROGRAM = 4,
    HIPRTC_ERROR_INVALID_OPTION = 5,
    HIPRTC_ERROR_COMPILATION = 6,
    HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE = 7,
    HIPRTC_ERROR_INTERNAL_ERROR = 11
} hiprtcResult;

typedef struct _hiprtcProgram *hiprtcProgram;

hiprtcResult hiprtcVersion(int *major, int *minor);
/* A static text; never NULL. */
const char *hiprtcGetErrorString(hiprtcResult result);
/* name, header_texts and header_names may be NULL (the latter two when headers is 0). */
hiprtcResult hiprtcCreateProgram(hiprtcProgram *program, const char *source, const char *name, int headers,
                                 const char *const *header_texts, const char *const *header_names);
hiprtcResult hiprtcCompileProgram(hiprtcProgram program, int count, const char *const *options);
/* Sizes are bytes; that of the log counts its final NUL. */
hiprtcResult hiprtcGetCodeSize(hiprtcProgram program, size_t *size);
hiprtcResult hiprtcGetCode(hiprtcProgram program, char *code);
hiprtcResult hiprtcGetProgramLogSize(hiprtcProgram program, size_t *size);
hiprtcResult hiprtcGetProgramLog(hiprtcProgram program, char *log);
/* Sets *program to NULL. */
hiprtcResult hiprtcDestroyProgram(hiprtcProgram *program);

#ifdef __cplusplus
}
#endif

#endif
