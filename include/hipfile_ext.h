/*
 * hipfile_ext.h - what this library offers beyond the common hipFile interface.
 *
 * Names begin with hipFileExt. Other implementations of hipFile lack these functions: a program that must run on
 * any of them looks them up with dlsym. The rules at the top of hipfile.h hold here too.
 *
 * Every structure begins with its size. The caller sets it to sizeof the structure it was compiled with; the library
 * fills no more than that, and sets the field to the number of bytes that it filled. So either side may be newer.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef HIPFILE_EXT_H
#define HIPFILE_EXT_H

#include "hipfile.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup ext Extensions
 * @{
 */

/** Bits of hipFileExtBuildInfo_t::features: what works in this build, rather than answering hipFileInternalError. */
#define HIPFILE_EXT_FEATURE_SYNC_IO 0x1u       /**< hipFileRead, hipFileWrite */
#define HIPFILE_EXT_FEATURE_STREAM_IO 0x2u     /**< hipFileReadAsync, hipFileWriteAsync, hipFileStream* */
#define HIPFILE_EXT_FEATURE_BATCH_IO 0x4u      /**< hipFileBatchIO* */
#define HIPFILE_EXT_FEATURE_PROPERTIES 0x8u    /**< hipFileDriverGetProperties, hipFileDriverSet* */
#define HIPFILE_EXT_FEATURE_PARAMETERS 0x10u   /**< hipFileGetParameter*, hipFileSetParameter* */
#define HIPFILE_EXT_FEATURE_STATISTICS 0x20u   /**< hipFileGetStats*, hipFileStats* */
#define HIPFILE_EXT_FEATURE_USERSPACE_FS 0x40u /**< hipFileHandleTypeUserspaceFS */

/** Which library this is. */
typedef struct hipFileExtBuildInfo {
    size_t size;                  /**< in: sizeof the structure; out: bytes filled */
    const char *name;             /**< "hipfile (independent implementation)"; static */
    const char *version;          /**< this library's own version, such as "0.5.0"; static */
    uint64_t features;            /**< HIPFILE_EXT_FEATURE_* bits */
    uint32_t emulation_available; /**< 1 if an emulated GPU is built in, else 0. It serves only when asked for */
    uint32_t reserved;            /**< 0 */
} hipFileExtBuildInfo_t;

/** The last failure on a thread. */
typedef struct hipFileExtErrorInfo {
    size_t size;            /**< in: sizeof the structure; out: bytes filled */
    hipFileOpError_t err;   /**< the code; hipFileSuccess if -1 was returned, or if nothing has failed yet */
    hipError_t hip_drv_err; /**< the GPU runtime's code if err is hipFileHipDriverError, else zero */
    int os_error;           /**< the errno behind the failure, 0 if there is none */
    const char *function;   /**< the function that failed; static; "" if nothing has failed yet */
    const char *text;       /**< one line: what failed, on which file, offset and size, and why; "" if nothing has
                                 failed yet. Valid until the next hipFile call on this thread */
} hipFileExtErrorInfo_t;

/**
 * Tells which library this is and what it can do. Opens nothing.
 *
 * @param[in,out] info  info->size is set by the caller
 * @return hipFileSuccess; hipFileInvalidValue if info is NULL or info->size is too small for any field.
 */
HIPFILE_API hipFileError_t hipFileExtGetBuildInfo(hipFileExtBuildInfo_t *info);

/**
 * Tells the last failure of a hipFile function on the calling thread. Successful calls do not clear it, as with
 * errno. The functions that return nothing, and this one, never record a failure. Opens nothing.
 *
 * @param[in,out] info  info->size is set by the caller
 * @return hipFileSuccess; hipFileInvalidValue if info is NULL or info->size is too small for any field.
 */
HIPFILE_API hipFileError_t hipFileExtLastError(hipFileExtErrorInfo_t *info);

/** @} */

#ifdef __cplusplus
}
#endif

#endif /* HIPFILE_EXT_H */
