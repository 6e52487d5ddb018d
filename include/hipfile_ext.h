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

/** Most engines and most reasons that a hipFileExtHandleInfo_t of this header has room for. */
#define HIPFILE_EXT_MAX_ENGINES 8
#define HIPFILE_EXT_MAX_REASONS 64

/** What one engine moved for a handle. */
typedef struct hipFileExtEngineCounters {
    const char *name;          /**< for instance "p2p"; static */
    uint64_t read_operations;  /**< reads it carried, wholly or in part */
    uint64_t read_bytes;       /**< bytes it read */
    uint64_t read_errors;      /**< attempts to read that failed; another engine may have gone on */
    uint64_t write_operations; /**< writes it carried, wholly or in part */
    uint64_t write_bytes;      /**< bytes it wrote */
    uint64_t write_errors;     /**< attempts to write that failed */
} hipFileExtEngineCounters_t;

/** What was staged through host memory for one reason. */
typedef struct hipFileExtReasonCounters {
    const char *word;          /**< one word, for instance "alignment"; static. Its place in the list never changes */
    const char *text;          /**< what is missing, in plain words; static */
    uint64_t read_operations;  /**< reads that were staged for it, wholly or in part */
    uint64_t read_bytes;       /**< bytes of reads that were staged for it */
    uint64_t write_operations; /**< writes that were staged for it, wholly or in part */
    uint64_t write_bytes;      /**< bytes of writes that were staged for it */
} hipFileExtReasonCounters_t;

/** How staged transfers treat the page cache. */
typedef enum hipFileExtPageCache {
    hipFileExtPageCacheDefault = 0,  /**< the driver's setting (HIPFILE_PAGE_CACHE) */
    hipFileExtPageCacheAuto = 1,     /**< by what is resident, and by size */
    hipFileExtPageCacheDirect = 2,   /**< around it wherever the file has O_DIRECT */
    hipFileExtPageCacheBuffered = 3, /**< through it */
    hipFileExtPageCacheNoCache = 4   /**< around it, or through it with nothing left behind */
} hipFileExtPageCache_t;

/** What is known about a registered file, and what moved. */
typedef struct hipFileExtHandleInfo {
    size_t size;                  /**< in: sizeof the structure; out: bytes filled */
    const char *engine;           /**< what an aligned read of 1 MiB into GPU memory would start with now; static */
    const char *reason;           /**< why that engine stages, in one word; "" if it does not; static */
    const char *reason_text;      /**< the same in plain words; static */
    char file_system[32];         /**< its type, for instance "ext4"; "" if unknown */
    char path[1024];              /**< where the file is, cut to fit; "" if it has no name */
    uint32_t device_major;        /**< the block device under it; 0 and 0 if there is none or it is unknown */
    uint32_t device_minor;
    uint32_t memory_align;        /**< alignments of direct I/O in bytes; 0 if the file has none */
    uint32_t offset_align;        /**< of file offsets and sizes of writes */
    uint32_t read_offset_align;   /**< of file offsets and sizes of reads */
    uint32_t private_descriptors; /**< descriptors that the library opened for it: 0 to 2 */
    hipFileExtPageCache_t page_cache; /**< the setting in force */
    uint32_t engine_count;        /**< entries of engines */
    uint32_t reason_count;        /**< entries of reasons */
    uint32_t emulated;            /**< 1 if the GPU that serves is the emulated one, else 0 */
    hipFileExtEngineCounters_t engines[HIPFILE_EXT_MAX_ENGINES]; /**< every engine of the library */
    hipFileExtReasonCounters_t reasons[HIPFILE_EXT_MAX_REASONS]; /**< every reason; bytes sum up to what was staged */
} hipFileExtHandleInfo_t;

/** The staging memory. */
typedef struct hipFileExtPoolInfo {
    size_t size;         /**< in: sizeof the structure; out: bytes filled */
    uint64_t held_bytes; /**< bytes held now */
    uint64_t most_bytes; /**< bytes it may grow to */
    uint64_t block_size; /**< bytes of one Block */
} hipFileExtPoolInfo_t;

/**
 * Tells which path a file's transfers take, why, and what moved so far by engine and reason. Loads the GPU runtime if
 * that has not happened yet. May be called while transfers run; the counters of one call need not be of one moment.
 *
 * @param      fh    a registered handle
 * @param[in,out] info  info->size is set by the caller
 * @return hipFileSuccess; hipFileHandleNotRegistered for an unknown handle, also when the driver is closed;
 *         hipFileInvalidValue if info is NULL or info->size is too small for any field.
 */
HIPFILE_API hipFileError_t hipFileExtHandleGetInfo(hipFileHandle_t fh, hipFileExtHandleInfo_t *info);

/**
 * Gives a file a page cache setting of its own. Takes effect with the next transfer.
 *
 * @return hipFileSuccess; hipFileHandleNotRegistered; hipFileInvalidValue for a setting that is none of the enumeration.
 */
HIPFILE_API hipFileError_t hipFileExtHandleSetPageCache(hipFileHandle_t fh, hipFileExtPageCache_t setting);

/**
 * Has the functions of a userspace file system (hipFileHandleTypeUserspaceFS) called for this file by one thread at a time,
 * or again by any number, which is how it begins. Calls under way are not waited for.
 *
 * @param fh  a registered handle
 * @param on  0: by any number
 * @return hipFileSuccess; hipFileHandleNotRegistered; hipFileInvalidValue for a handle of another type.
 */
HIPFILE_API hipFileError_t hipFileExtHandleSetSerialized(hipFileHandle_t fh, int on);

/**
 * Tells how much staging memory the library holds.
 *
 * @param[in,out] info  info->size is set by the caller
 * @return hipFileSuccess, with zeroes while the driver is closed; hipFileInvalidValue if info is NULL or info->size is
 *         too small for any field.
 */
HIPFILE_API hipFileError_t hipFileExtPoolGetInfo(hipFileExtPoolInfo_t *info);

/** A registration of memory. */
typedef struct hipFileExtBufInfo {
    size_t size;       /**< in: sizeof the structure; out: bytes filled */
    const void *start; /**< where the registered range begins */
    uint64_t length;   /**< bytes of it */
    int gpu;           /**< the GPU whose memory it is; -1 for memory of the host */
    uint32_t emulated; /**< 1 if that is the emulated GPU, else 0 */
    uint32_t current;  /**< 1; 0 if its allocation was freed, whoever has the address now: transfers then follow the rules
                            for memory that is not registered */
    uint32_t reserved; /**< 0 */
    uint64_t pieces;   /**< of how many pieces it is made: more than one where the virtual-memory API mapped several side
                            by side */
} hipFileExtBufInfo_t;

/**
 * Tells the registration that holds a whole range of memory; of several, the one that begins last. Opens nothing. May be called
 * while transfers run.
 *
 * @param      buffer  where the range begins
 * @param      length  bytes of the range; 0 is taken for 1
 * @param[in,out] info  info->size is set by the caller
 * @return hipFileSuccess; hipFileMemoryNotRegistered if no registration holds all of it, also when the driver is closed;
 *         hipFileInvalidValue if info is NULL or info->size is too small for any field.
 */
HIPFILE_API hipFileError_t hipFileExtBufGetInfo(const void *buffer, size_t length, hipFileExtBufInfo_t *info);

/**
 * Gives staging memory that is not in use back to the system now. The library does so by itself after some idle time.
 * Unpinning waits for work that is queued on the GPU already.
 *
 * @return hipFileSuccess, also when there was nothing to give back.
 */
HIPFILE_API hipFileError_t hipFileExtPoolTrim(void);

/**
 * Tells which library this is and what it can do. Opens nothing.
 *
 * @param[in,out] info  info->size is set by the caller
 * @return hipFileSuccess; hipFileInvalidValue if info is NULL or info->size is too small for any field.
 */
HIPFILE_API hipFileError_t hipFileExtGetBuildInfo(hipFileExtBuildInfo_t *info);

/**
 * Tells the last failure of a hipFile function on the calling thread. Successful calls do not clear it, as with
 * errno. An event of hipFileBatchIOGetStatus that tells of a failure counts as one; of several in one call, the last. The functions that return nothing, and this one, never record a failure. Opens nothing.
 *
 * @param[in,out] info  info->size is set by the caller
 * @return hipFileSuccess; hipFileInvalidValue if info is NULL or info->size is too small for any field.
 */
HIPFILE_API hipFileError_t hipFileExtLastError(hipFileExtErrorInfo_t *info);

/**
 * Tells why an operation on a stream failed, in more words than the negative number that it left behind: the errno behind
 * -1, for instance. What it tells becomes the last failure of the calling thread, see hipFileExtLastError. The last 256
 * failures of the process are kept.
 *
 * @param      bytes_p  what was given to hipFileReadAsync or hipFileWriteAsync; the stream has passed the operation
 * @param[in,out] info  info->size is set by the caller
 * @return hipFileSuccess, with hipFileSuccess and "" in info if *bytes_p is not negative; hipFileInvalidValue if a pointer
 *         is NULL, info->size is too small for any field, or no failure is kept for bytes_p.
 */
HIPFILE_API hipFileError_t hipFileExtStreamError(const ssize_t *bytes_p, hipFileExtErrorInfo_t *info);

/** @} */

#ifdef __cplusplus
}
#endif

#endif /* HIPFILE_EXT_H */
